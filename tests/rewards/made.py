"""Completions for the tests of rewards."""

import torch

from tutelage.core.batch import Rollout
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.records import Message, Messages, Prompt, user
from tutelage.rewards.reward import Completion, Completions

TALK: Messages = (
    Message("system", "Be brief."),
    Message("user", "Hi"),
    Message("assistant", "Hello"),
    Message("user", "Why?"),
)


def completion(answer: str, /, prompt_id: str = "p", messages: Messages = TALK, **data: object) -> Completion:
    """A completion of which only the text is known."""
    return Completion(prompt_id, messages, answer, data)


def rollout(rows: list[EncodedRow], group: int = 1) -> Rollout:
    """Rows as a sampler returns them; every other answer was cut."""
    made = collate(rows, 0, torch.device("cpu"))
    ended = torch.arange(len(rows)) % 2 == 0
    return Rollout(
        prompt=made.prompt,
        prompt_mask=made.prompt_mask,
        response=made.response,
        mask=made.mask,
        logp=torch.zeros(made.mask.shape),
        terminated=ended,
        truncated=~ended,
        group=group,
        ids=("p",) * len(rows),
    )


def sampled(rows: list[EncodedRow]) -> Completions:
    """Completions of a rollout of these rows."""
    prompts = [Prompt(f"p{i}", user(f"Question {i}?"), data={"number": i}) for i in range(len(rows))]
    return Completions(prompts, [f"answer {i}" for i in range(len(rows))], rollout(rows))

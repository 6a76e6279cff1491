"""Protocol of generators, which complete prompts of token ids; encoded prompts; rollouts from completions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import Branches, Rollout, extended, stacked
from tutelage.core.rows import left_padded
from tutelage.data.chat_tokens import encode
from tutelage.data.records import Prompt
from tutelage.data.tokenizer import SpelledTokens
from tutelage.engines.interface import PromptTokens


@dataclass(frozen=True)
class EncodedPrompt:
    """Prompt with its conversation as token ids, up to the start of the completion."""

    prompt: Prompt
    tokens: tuple[int, ...]


def encode_prompts(prompts: Sequence[Prompt], tokenizer: Any) -> list[EncodedPrompt]:
    """Encode prompts with the tokenizer's chat template, or in the plain form.

    Raises TutelageError if a chat template was applied to most of them already."""
    spelled = SpelledTokens(tokenizer)
    for prompt in prompts:
        spelled.add(message.content for message in prompt.messages)
    spelled.describe()
    return [EncodedPrompt(p, tuple(encode(p.messages, None, tokenizer)[0])) for p in prompts]


def prompt_tokens(prompts: Sequence[EncodedPrompt], scored_first: frozenset[str] = frozenset()) -> PromptTokens:
    """Generator arguments for some prompts: their token ids, and their ids as names of random streams."""
    return PromptTokens(tuple(p.tokens for p in prompts), tuple(p.prompt.id for p in prompts), scored_first)


__all__ = ["Generator", "PromptTokens", "Rollout", "RolloutError"]


class RolloutError(TutelageError):
    """A rollout failed for an external reason. Raised before any weight changes, so the state after the last step is
    valid and the run can resume once the cause is fixed."""


class Generator(Protocol):
    """Prompts as token ids → `n` completions each, as a `Rollout` whose row b completes prompt b // n.

    The rollout has the completion's token ids, the log-probability of each under its sampling distribution,
    `terminated`, the `texts`, and `version` Int[B, R] with the version of the weights that wrote each token (None
    for a generator without weights). As far as the backend allows, a row depends only on the seed, the prompt's id
    and the number of the completion, not on other rows.
    """

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """Sample completions. Raises TutelageError if a prompt leaves no room for a completion."""
        ...

    def sync(self, version: int) -> None:
        """Load the current weights of the policy, as version `version`."""
        ...


@dataclass(frozen=True)
class SampledCompletion:
    """Completion: token ids, their log-probabilities, the text, and the version of the weights per token."""

    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    terminated: bool
    text: str
    version: tuple[int, ...] | None = None


def assemble(
    prompts: PromptTokens, responses: Sequence[SampledCompletion], *, pad: int, device: torch.device | str = "cpu"
) -> Rollout:
    """Rollout of all completions, grouped by prompt, the same number each."""
    group, rest = divmod(len(responses), len(prompts.tokens))
    if rest or not group:
        raise ValueError(
            f"{counted(len(responses), 'response')} cannot be shared among {counted(len(prompts.tokens), 'prompt')} "
            "evenly"
        )
    lengths = torch.tensor([len(response.tokens) for response in responses], device=device)
    width = int(lengths.max())

    def column(rows: Sequence[Sequence[float]], fill: float, kind: torch.dtype) -> Tensor:
        padded = [[*row, *[fill] * (width - len(row))] for row in rows]
        return torch.tensor(padded, dtype=kind, device=device).reshape(len(rows), width)

    prompt, prompt_mask = left_padded(prompts.tokens, pad, torch.device(device))
    terminated = torch.tensor([response.terminated for response in responses], device=device)
    versions = [response.version for response in responses if response.version is not None]
    return Rollout(
        prompt=prompt.repeat_interleave(group, 0),
        prompt_mask=prompt_mask.repeat_interleave(group, 0),
        response=column([response.tokens for response in responses], pad, torch.long),
        mask=torch.arange(width, device=device) < lengths[:, None],
        logp=column([response.logp for response in responses], 0.0, torch.float32),
        terminated=terminated,
        truncated=~terminated,
        group=group,
        ids=tuple(name for name in prompts.ids for _ in range(group)),
        texts=tuple(response.text for response in responses),
        version=column(versions, 0, torch.long) if len(versions) == len(responses) else None,
    )


def concatenate(parts: Sequence[Rollout]) -> Rollout:
    """Stack rollouts, padded to a common width."""
    if len(parts) == 1:
        return parts[0]
    whole = stacked(*parts)

    def responses(name: str, kind: torch.dtype = torch.long) -> Tensor:
        """A column of tokens; a part without turns has single turns without a reward: zeros."""
        columns = (getattr(part, name) for part in parts)
        filled = [torch.zeros_like(p.mask, dtype=kind) if x is None else x for p, x in zip(parts, columns, strict=True)]
        return torch.cat([pad(x, (0, whole.mask.shape[1] - x.shape[1])) for x in filled])

    return extended(
        whole,
        Rollout,
        logp=responses("logp"),
        terminated=torch.cat([part.terminated for part in parts]),
        truncated=torch.cat([part.truncated for part in parts]),
        group=parts[0].group,
        ids=tuple(chain.from_iterable(part.ids for part in parts)),
        texts=tuple(chain.from_iterable(part.texts for part in parts)),
        version=None if any(part.version is None for part in parts) else responses("version"),
        turn=None if all(part.turn is None for part in parts) else responses("turn"),
        turn_reward=None
        if all(p.turn_reward is None for p in parts)
        else responses("turn_reward", parts[0].logp.dtype),
        outcome=None if any(part.outcome is None for part in parts) else torch.cat([p.outcome for p in parts]),  # type: ignore[misc]
        transcripts=tuple(chain.from_iterable(part.transcripts for part in parts)),
        branches=Branches.joined(parts),
        given=None if all(part.given is None for part in parts) else torch.cat([~p.drawn for p in parts]),
    )

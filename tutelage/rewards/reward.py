"""Protocol of rewards, which map completions to one score each, and the completions of a rollout as a sequence."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, overload, runtime_checkable

import numpy.typing as npt
import torch
from torch import Tensor

from tutelage.base.nouns import counted
from tutelage.core.batch import Rollout, Rows
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_endpoint import PaidEndpoint
from tutelage.data.records import Messages, Prompt
from tutelage.data.rubrics import COLUMNS

Scores: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[float | None]
"""One finite number per completion: Float[B] as a tensor or array of any numeric type, or a sequence of numbers, with
None for a completion to which the reward does not apply."""


@dataclass(frozen=True)
class Completion:
    """Completion of a prompt with its conversation: the input of a reward."""

    prompt_id: str
    messages: Messages
    """Whole conversation before the completion: system message and all turns, with calls and results of tools in
    episodes of several turns. The last of them is not the assistant's."""
    answer: str
    """Text of the completion, without its end token."""
    data: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Own columns of the prompt's row (`Prompt.data`)."""
    terminated: bool = True
    """Whether the completion terminated; False if it was truncated at the length limit."""
    prompt_tokens: tuple[int, ...] = ()
    """Token ids of the prompt in the policy's vocabulary; empty if only the text is known."""
    tokens: tuple[int, ...] = ()
    """Sampled token ids of the completion, including the end token; empty if only the text is known."""


class Reward(Protocol):
    """Scores completions. Called with those of a whole rollout; completions of one prompt are adjacent.

    Callers use `rewards.scores.scores_of`, which validates the scores and converts them to a tensor.
    """

    def __call__(self, completions: Sequence[Completion], /) -> Scores: ...


@runtime_checkable
class JudgingReward(Protocol):
    """Reward that sends requests to the model behind an endpoint."""

    @property
    def endpoint(self) -> PaidEndpoint | None: ...

    def questions(self, prompt: Prompt, completions: int) -> list[tuple[str, int]]:
        """Requests about the completions of a prompt, without their texts, and the number of each."""


@dataclass(frozen=True)
class Breakdown:
    """Scores of a reward, and those of its components, before weights and caps. Float[B] each, NaN for completions to
    which the reward or component does not apply.

    `credit` are rewards of turns beside the score, on the last token of each, which sum to 0 in every row: they pay
    each turn its share of the score in advance. Float[B, R]
    """

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    credit: Tensor | None = None


@runtime_checkable
class CompositeReward(Protocol):
    """Reward with components that reports the scores of each."""

    def breakdown(self, completions: Sequence[Completion], /) -> Breakdown: ...


class BreakdownReward(ABC):
    """Reward whose scores are the totals of its breakdown."""

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B]"""
        return self.breakdown(completions).total

    @abstractmethod
    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The scores, and those of the components."""


class RewardWrapper(BreakdownReward):
    """Wrapper that computes or changes the scores of another reward, and has its name."""

    reward: Reward

    @property
    def name(self) -> str:
        """Name of the wrapped reward."""
        return reward_name(self.reward)

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """The wrapped reward."""
        return (self.reward,)


def reward_name(reward: Reward) -> str:
    """Name of a reward in logs and messages: its attribute `name`, a function's name without its module, or its
    class."""
    name = getattr(reward, "name", None) or getattr(reward, "__qualname__", type(reward).__name__)
    return str(name).rpartition(":")[2]


def made_of(reward: object) -> Iterator[object]:
    """A reward and all its components, in order, as listed in `made_of`."""
    yield reward
    for part in getattr(reward, "made_of", ()):
        yield from made_of(part)


def applies_to_all(reward: object) -> bool:
    """Whether None of a reward is a missing score, which a sum cannot leave out, not a completion to which it does not
    apply."""
    return any(getattr(part, "applies_to_all", False) for part in made_of(reward))


def columns_read(reward: object) -> tuple[str, ...]:
    """Columns of the prompts' rows that a reward requires, without duplicates, as far as its components declare
    them."""
    columns = (column for part in made_of(reward) for column in getattr(part, "columns", ()))
    return tuple(dict.fromkeys(columns))


SYNONYMS: Mapping[str, tuple[str, ...]] = {"rubric": COLUMNS}
"""Columns that stand for each other, by the one that rewards declare."""

UNUSED_PAD = 0
"""Padding of the tokens of single completions; masked, so its id is irrelevant."""


class Completions(Sequence[Completion]):
    """Sequence of B completions, created on first access.

    `prompts` has the prompt of each, `answers` the texts. `rows` are the tokens as one batch, if known: a reward
    model reads these, and no completion is created. Without them, `terminated` gives the completions that
    terminated, as in a `Rollout`.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[str],
        rows: Rows | None = None,
        *,
        terminated: Sequence[bool] | None = None,
    ) -> None:
        self.prompts, self.answers, self.rows = prompts, answers, rows
        self.terminated = rows.terminated.tolist() if isinstance(rows, Rollout) else terminated
        for part in (prompts, rows, self.terminated):
            if part is not None and len(part) != len(answers):
                raise ValueError(
                    f"{counted(len(answers), 'answer')} cannot belong to {counted(len(part), 'prompt')} or rows"
                )

    @property
    def device(self) -> torch.device:
        """Device of the tokens; the CPU without tokens."""
        return torch.device("cpu") if self.rows is None else self.rows.prompt.device

    def __len__(self) -> int:
        return len(self.answers)

    @overload
    def __getitem__(self, index: int) -> Completion: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Completion]: ...

    def __getitem__(self, index: int | slice) -> Completion | Sequence[Completion]:
        return self._items[index]

    @cached_property
    def _items(self) -> tuple[Completion, ...]:
        count = len(self)
        empty: list[tuple[Any, ...]] = [()] * count
        rows = self.rows
        prompt_ids = empty if rows is None else _token_ids(rows.prompt, rows.prompt_mask)
        answered = empty if rows is None else _token_ids(rows.response, rows.mask)
        ended = [True] * count if self.terminated is None else self.terminated
        transcripts = rows.transcripts if isinstance(rows, Rollout) and rows.transcripts else empty
        columns = zip(self.prompts, transcripts, self.answers, ended, prompt_ids, answered, strict=True)
        return tuple(
            Completion(prompt.id, turns[:-1] or prompt.messages, answer, prompt.data, end, prompt_tokens, tokens)
            for prompt, turns, answer, end, prompt_tokens, tokens in columns
        )


def selected(completions: Sequence[Completion], index: Sequence[int]) -> Sequence[Completion]:
    """Completions at `index`, in that order."""
    if not isinstance(completions, Completions):
        return [completions[i] for i in index]
    rows, ended = completions.rows, completions.terminated
    return Completions(
        [completions.prompts[i] for i in index],
        [completions.answers[i] for i in index],
        None if rows is None else rows.rows(torch.tensor(index, dtype=torch.long)),
        terminated=None if ended is None else [ended[i] for i in index],
    )


def prompt_ids(completions: Sequence[Completion]) -> list[str]:
    """Prompt id of each completion."""
    if isinstance(completions, Completions):
        return [prompt.id for prompt in completions.prompts]
    return [one.prompt_id for one in completions]


def _token_ids(tokens: Tensor, mask: Tensor) -> list[tuple[int, ...]]:
    """Token ids under the mask, row by row."""
    ids, ends = tokens[mask].tolist(), mask.sum(1).cumsum(0).tolist()
    return [tuple(ids[start:end]) for start, end in pairwise([0, *ends])]


def rows_of(completions: Sequence[Completion]) -> Rows | None:
    """Tokens of all completions as one padded batch, of episodes with what the policy read; None if only texts are
    known."""
    if isinstance(completions, Completions):
        rows = completions.rows
        return rows if rows is None or rows.branches is None else rows.branches.last(len(rows))
    if not all(one.prompt_tokens for one in completions):
        return None
    encoded = [EncodedRow(one.prompt_tokens, one.tokens) for one in completions]
    return collate(encoded, UNUSED_PAD, torch.device("cpu"))


def device_of(completions: Sequence[Completion]) -> torch.device:
    """Device for the scores of these completions: the device of their tokens."""
    return completions.device if isinstance(completions, Completions) else torch.device("cpu")

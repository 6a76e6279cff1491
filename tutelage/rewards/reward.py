"""The protocol of a reward, which maps completions to one score each; the completions of a rollout as a sequence."""

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
from tutelage.data.records import Messages, Prompt

Scores: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[float]
"""One finite number for each completion: Float[B] as a tensor or array of any numeric type, or numbers."""


@dataclass(frozen=True)
class Completion:
    """A policy's answer to a prompt, with the conversation before it: what a reward scores."""

    prompt_id: str
    messages: Messages
    """The whole conversation before the answer: system message and all turns, the last of them not the assistant's."""
    answer: str
    """The text of the answer, without its end token."""
    data: Mapping[str, object] = field(default_factory=dict, hash=False)
    """The own columns of the prompt's row (`Prompt.data`)."""
    terminated: bool = True
    """Whether the answer ended by itself; False where it was cut at the length limit."""
    prompt_tokens: tuple[int, ...] = ()
    """The prompt's token ids in the policy's vocabulary; empty where only the text is known."""
    tokens: tuple[int, ...] = ()
    """The answer's token ids as they were sampled, the end token included; empty where only the text is known."""


class Reward(Protocol):
    """Scores completions. Called with those of a whole rollout, the answers to one prompt side by side.

    Callers take the scores from `rewards.scores.scores_of`, which checks them and makes a tensor of them.
    """

    def __call__(self, completions: Sequence[Completion], /) -> Scores: ...


@dataclass(frozen=True)
class Breakdown:
    """The scores of a reward, and those of the parts that it is made of, before weights and caps. Float[B] each."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


@runtime_checkable
class CompositeReward(Protocol):
    """A reward that is made of others and can say what each of them gave."""

    def breakdown(self, completions: Sequence[Completion], /) -> Breakdown: ...


class BreakdownReward(ABC):
    """A reward whose scores are the totals of its breakdown."""

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B]"""
        return self.breakdown(completions).total

    @abstractmethod
    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The scores, and those of the parts."""


class RewardWrapper(BreakdownReward):
    """A reward around another: it has the name of that one, and computes or changes its scores."""

    reward: Reward

    @property
    def name(self) -> str:
        """The name of the reward inside."""
        return reward_name(self.reward)

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """The reward inside."""
        return (self.reward,)


def reward_name(reward: Reward) -> str:
    """What logs and messages call a reward: its own name, that of a function without its module, or its class."""
    name = getattr(reward, "name", None) or getattr(reward, "__qualname__", type(reward).__name__)
    return str(name).rpartition(":")[2]


def made_of(reward: object) -> Iterator[object]:
    """A reward and, in order, all that it is made of: what sums, caps and ensembles name in `made_of`."""
    yield reward
    for part in getattr(reward, "made_of", ()):
        yield from made_of(part)


def columns_read(reward: object) -> tuple[str, ...]:
    """The columns of the prompts' rows without which a reward cannot score, each once, as far as its parts say so."""
    columns = (column for part in made_of(reward) for column in getattr(part, "columns", ()))
    return tuple(dict.fromkeys(columns))


UNUSED_PAD = 0
"""What pads the tokens of single completions: masks say where tokens are, so its id means nothing."""


class Completions(Sequence[Completion]):
    """B completions that are made when the first of them is looked at.

    `prompts` has the prompt of each, `answers` the texts. `rows` are the tokens as one batch, where they are known: a
    reward model reads these, and no completion is made. Without them `terminated` says which answers ended by
    themselves; a `Rollout` knows.
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
                    f"{counted(len(answers), 'answer')} cannot belong to "
                    f"{counted(len(part), 'prompt')} or rows"
                )

    @property
    def device(self) -> torch.device:
        """The device of the tokens; the CPU where there are none."""
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
        empty: list[tuple[int, ...]] = [()] * count
        rows = self.rows
        prompt_ids = empty if rows is None else _token_ids(rows.prompt, rows.prompt_mask)
        answered = empty if rows is None else _token_ids(rows.response, rows.mask)
        ended = [True] * count if self.terminated is None else self.terminated
        columns = zip(self.prompts, self.answers, ended, prompt_ids, answered, strict=True)
        return tuple(
            Completion(prompt.id, prompt.messages, answer, prompt.data, end, prompt_tokens, tokens)
            for prompt, answer, end, prompt_tokens, tokens in columns
        )


def selected(completions: Sequence[Completion], index: Sequence[int]) -> Sequence[Completion]:
    """The completions at `index`, in that order."""
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
    """The id of each completion's prompt."""
    if isinstance(completions, Completions):
        return [prompt.id for prompt in completions.prompts]
    return [one.prompt_id for one in completions]


def _token_ids(tokens: Tensor, mask: Tensor) -> list[tuple[int, ...]]:
    """The ids under the mask, row by row."""
    ids, ends = tokens[mask].tolist(), mask.sum(1).cumsum(0).tolist()
    return [tuple(ids[start:end]) for start, end in pairwise([0, *ends])]


def rows_of(completions: Sequence[Completion]) -> Rows | None:
    """The tokens of all completions as one padded batch; None where only texts are known."""
    if isinstance(completions, Completions):
        return completions.rows
    if not all(one.prompt_tokens for one in completions):
        return None
    encoded = [EncodedRow(one.prompt_tokens, one.tokens) for one in completions]
    return collate(encoded, UNUSED_PAD, torch.device("cpu"))


def device_of(completions: Sequence[Completion]) -> torch.device:
    """The device that scores of these completions belong on: the device of their tokens."""
    return completions.device if isinstance(completions, Completions) else torch.device("cpu")

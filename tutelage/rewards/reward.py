"""The protocol of a reward: completions in, one score for each out."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy.typing as npt
from torch import Tensor

from tutelage.data.records import Messages

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


class RewardWrapper(ABC):
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

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B]"""
        return self.breakdown(completions).total

    @abstractmethod
    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The scores, and those of the parts."""


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

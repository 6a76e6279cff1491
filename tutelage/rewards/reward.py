"""The protocol of a reward: completions in, one score for each out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

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

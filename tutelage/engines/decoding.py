"""The protocol of a decoder, which reads prompts and tokens of answers and returns the logits of the next tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from tutelage.core.batch import Rollout


@dataclass(frozen=True)
class PromptBatch:
    """Different prompts that are decoded together, and the number of answers to each."""

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(map(len, self.prompts))


@runtime_checkable
class Decoder(Protocol):
    """Reads the tokens of answers that are being sampled. Its lines are these answers, prompt by prompt."""

    def start(self) -> Float[Tensor, "n V"]:
        """Read the prompts. Returns the logits of the first token of each line."""
        ...

    def step(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """Read one more token of each line. Returns the logits of the next one."""
        ...

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """Drop all lines but these, which are ascending."""
        ...

    def close(self, rows: Rollout) -> None:
        """Called when all lines have ended. `rows` are all answers, prompt by prompt."""
        ...


@runtime_checkable
class Decoders(Protocol):
    """Makes decoders on the weights that a model has now. Several may be in use in turn."""

    def decoder(self, batch: PromptBatch, limit: int) -> Decoder:
        """A decoder of answers of up to `limit` tokens."""
        ...

    def step(
        self, decoders: Sequence[Decoder], tokens: Sequence[Int[Tensor, " _"]]
    ) -> list[Float[Tensor, "_ _"]]:
        """Have several decoders, of which each has read its prompts, read one more token of each line: together, where
        that is faster. Returns the logits of the next tokens."""
        ...

    def restore(self) -> None:
        """Return the model to its own layout, for a forward pass between two steps of decoders."""
        ...


@dataclass(frozen=True)
class RolloutSize:
    """What a rollout will hold: `n` answers of up to `limit` tokens to each prompt. `first` are the prompts whose rows
    will be scored with gradients next."""

    prompts: tuple[tuple[int, ...], ...]
    n: int
    limit: int
    first: frozenset[tuple[int, ...]]

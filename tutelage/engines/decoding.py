"""The protocol of a decoder: what reads prompts and the tokens of answers, and gives the logits of the next tokens."""

from dataclasses import dataclass
from typing import Protocol

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


class Decoder(Protocol):
    """Reads tokens for answers that are being written. Lines are answers, prompt by prompt."""

    def start(self) -> Tensor:
        """Read the prompts. Returns the logits of every answer's first token. Float[n, V]"""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each answer. Int[n] -> logits of the next Float[n, V]"""
        ...

    def keep(self, lines: Tensor) -> None:
        """Drop all lines but these. Int[n], ascending"""
        ...

    def close(self, rows: Rollout) -> None:
        """Take notice that all lines have ended, with what was written, prompt by prompt."""
        ...

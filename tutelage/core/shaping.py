"""From the score that a reward gave to the score that the policy is trained on.

Both are logged (`score/mean`, `score/shaped`): a penalty must never be mistaken for the reward model's
opinion.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

Normalise = Literal["none", "batch", "running"]


class Shaping(Protocol):
    """(score [B], terminated [B], length [B], max_length, mean, std) -> shaped score [B]"""

    def __call__(
        self,
        score: Tensor,
        terminated: Tensor,
        length: Tensor,
        max_length: int | None,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> Tensor: ...


@dataclass(frozen=True)
class Overlong:
    """Soft overlong punishment (DAPO, Yu et al. 2025): 0 up to limit − buffer, then down to −penalty at the limit.

    `buffer` is the share of the limit over which it falls (4,096 of 20,480 tokens in the paper).
    """

    buffer: float = 0.2
    penalty: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.buffer <= 1 and self.penalty > 0):
            raise ValueError(
                f"Overlong: buffer must be in (0, 1] and penalty above 0, not {self.buffer}, {self.penalty}."
            )

    def __call__(self, length: Tensor, max_length: int) -> Tensor:
        """What is added to the score. Int[B] -> Float[B]"""
        over = (length - (1 - self.buffer) * max_length) / (self.buffer * max_length)
        return -self.penalty * over.clamp(0, 1)


@dataclass(frozen=True)
class ScoreShaping:
    """In this order: normalise, scale, clip, missing end, overlong."""

    normalise: Normalise = "none"
    """"batch" subtracts the mean and divides by the standard deviation of this batch; "running" those of
    all scores so far, this batch included.
    """
    scale: float = 1.0
    """Factor on the (normalised) score."""
    clip: float | None = None
    """Bound on the absolute value of the scaled score."""
    missing_end: float | None = -1.0
    """What a response that did not end by itself scores *instead* (N+ implementation details: −1, which
    presumes a reward centred on 0); None leaves its score.
    """
    missing_end_penalty: float = 0.0
    """What is subtracted from the score of a response that did not end by itself."""
    overlong: Overlong | None = None
    """Lowers the score of responses that come near the limit."""

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(
                f"ScoreShaping: scale must be above 0, not {self.scale}: another sign is another goal."
            )
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"ScoreShaping: clip must be above 0, not {self.clip}.")
        if self.missing_end is not None and self.missing_end_penalty:
            raise ValueError(
                "ScoreShaping: missing_end replaces the score of a response without an end, and missing_end_penalty "
                "lowers it. Choose one (missing_end=none to lower it)."
            )

    def __call__(
        self,
        score: Tensor,
        terminated: Tensor,
        length: Tensor,
        max_length: int | None,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> Tensor:
        if self.normalise != "none":
            score = (score - mean) / (std + 1e-8)
        shaped = score * self.scale
        if self.clip is not None:
            shaped = shaped.clamp(-self.clip, self.clip)
        if self.missing_end is not None:
            shaped = torch.where(terminated, shaped, self.missing_end)
        shaped = shaped - self.missing_end_penalty * (~terminated)
        if self.overlong is not None:
            if max_length is None:
                raise ValueError(
                    "Overlong measures against the limit on response tokens: max_length must be given."
                )
            shaped = shaped + self.overlong(length, max_length)
        return shaped

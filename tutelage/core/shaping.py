"""Shaping: transforms the score of a reward into the score that the policy is trained on.

Both are logged (`score/mean`, `score/shaped`): so that penalties are not mistaken for the reward model's score.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch

from tutelage.core.pieces import Context, State, check_range
from tutelage.core.shapes import Lengths, PerRow, RowMask

Normalise = Literal["none", "batch", "running"]


@runtime_checkable
class Shaping(Protocol):
    """(score [B], terminated [B], length [B], context) -> shaped score [B]"""

    def __call__(self, score: PerRow, terminated: RowMask, length: Lengths, context: Context) -> PerRow: ...


@runtime_checkable
class StatefulShaping(Protocol):
    """A shaping with a state: (score [B], terminated [B], length [B], context, state) -> (shaped [B], next state)"""

    def init(self) -> State:
        """The initial state."""

    def __call__(
        self, score: PerRow, terminated: RowMask, length: Lengths, context: Context, state: State
    ) -> tuple[PerRow, State]: ...


@dataclass(frozen=True)
class Overlong:
    """Soft overlong punishment (DAPO, Yu et al. 2025): 0 up to limit − buffer, then down to −penalty at the limit.

    `buffer` is the share of the limit over which it falls (4,096 of 20,480 tokens in the paper).
    """

    buffer: float = 0.2
    penalty: float = 1.0

    def __post_init__(self) -> None:
        check_range(self, "(0, 1]", buffer=self.buffer)
        check_range(self, "(0, ∞]", penalty=self.penalty)

    def __call__(self, length: Lengths, max_length: int) -> PerRow:
        """The term added to the score. Int[B] -> Float[B]"""
        over = (length - (1 - self.buffer) * max_length) / (self.buffer * max_length)
        return -self.penalty * over.clamp(0, 1)


Statistics = dict[str, float]
NO_SCORES: Statistics = {"count": 0.0, "mean": 0.0, "squares": 0.0}

MISSING_END = -1.0
"""Score of an unfinished completion if `missing_end` is "auto" and the first rollout meets its criterion (N+
implementation details, Huang et al. 2024, for rewards centred on 0)."""
KEPT = "kept"
"""The decision of "auto" to keep the scores of unfinished completions."""


@dataclass(frozen=True)
class ScoreShaping:
    """Normalises, scales and clips the score, then handles unfinished and overlong completions, in this order.

    The state holds the number of scores, their mean, and the sum of their squared deviations from it: those of the last
    batch for "batch", of all batches for "running". With `missing_end` "auto" it also contains the decision made at the
    first rollout, None before.
    """

    normalise: Normalise = "none"
    """"batch" subtracts the mean and divides by the standard deviation of this batch; "running" those of all scores so
    far, including this batch.
    """
    scale: float = 1.0
    """Factor on the (normalised) score."""
    clip: float | None = None
    """Bound on the absolute value of the scaled score."""
    missing_end: float | Literal["auto"] | None = "auto"
    """Score *replacing* that of an unfinished completion; None keeps it. "auto" decides at the first rollout, for the
    whole run: −1 if at least half of the completions are finished and these score above −1 on average; otherwise scores
    are kept, because −1 would replace most of them or would be a better score.
    """
    missing_end_penalty: float = 0.0
    """Penalty subtracted from the score of an unfinished completion."""
    overlong: Overlong | None = None
    """Penalty for completions near the length limit."""

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"ScoreShaping: scale must be above 0, not {self.scale}: another sign is another goal.")
        check_range(self, "(0, ∞]", clip=self.clip)
        if self.missing_end is not None and self.missing_end_penalty:
            raise ValueError(
                "ScoreShaping: missing_end replaces the score of a response without an end, and missing_end_penalty "
                "lowers it. Choose one (missing_end=none to lower it)."
            )

    def init(self) -> State:
        """The initial state: no scores, no decision."""
        return {**NO_SCORES, "missing_end": None} if self.missing_end == "auto" else NO_SCORES

    def replacement(self, state: State) -> float | None:
        """The score replacing that of an unfinished completion; None if it is kept or not yet decided."""
        decision = state["missing_end"] if self.missing_end == "auto" else self.missing_end
        return None if decision == KEPT else decision

    def __call__(
        self, score: PerRow, terminated: RowMask, length: Lengths, context: Context, state: State
    ) -> tuple[PerRow, State]:
        shaped = score
        if self.normalise != "none":
            if not context.is_greedy:
                state = state | _with_scores(score, NO_SCORES if self.normalise == "batch" else state)
            std = (state["squares"] / state["count"]) ** 0.5 if state["count"] else 0.0
            shaped = (score - state["mean"]) / (std + 1e-8)
        shaped = shaped * self.scale
        if self.clip is not None:
            shaped = shaped.clamp(-self.clip, self.clip)
        if self.missing_end == "auto" and state["missing_end"] is None and not context.is_greedy:
            state = state | {"missing_end": _decided(shaped, terminated)}
        instead = self.replacement(state)
        if instead is not None:
            shaped = torch.where(terminated, shaped, instead)
        shaped = shaped - self.missing_end_penalty * (~terminated)
        if self.overlong is not None:
            if context.max_length is None:
                raise ValueError(
                    "Overlong measures against the limit on response tokens: Context(max_length=...) must be given."
                )
            shaped = shaped + self.overlong(length, context.max_length)
        return shaped, state


def _decided(shaped: PerRow, terminated: RowMask) -> float | str:
    """The decision of "auto" at the first rollout: `MISSING_END` or `KEPT`. Float[B], Bool[B]"""
    most = 2 * int(terminated.sum()) >= len(terminated)
    return MISSING_END if most and float(shaped[terminated].mean()) > MISSING_END else KEPT


def _with_scores(score: PerRow, state: Statistics) -> Statistics:
    """The statistics updated with these scores (pairwise update of Chan et al. 1983). Float[B]"""
    count, mean = float(len(score)), float(score.mean())
    total = state["count"] + count
    difference = mean - state["mean"]
    squares = float(((score - mean) ** 2).sum()) + difference**2 * state["count"] * count / total
    return {"count": total, "mean": state["mean"] + difference * count / total, "squares": state["squares"] + squares}

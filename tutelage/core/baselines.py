"""Baselines: terms that can be subtracted from a return without changing the expected policy gradient.

E[∇ log π(a|s) b] = 0 for any b that does not depend on a. A mean over the batch includes the row from which it is
subtracted, which shrinks the gradient by about 1/B; `MovingAverage` and `LeaveOneOut` avoid this.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch

from tutelage.core.pieces import Context, State, check_range
from tutelage.core.reduce import masked_mean
from tutelage.core.shapes import PerToken, TokenMask


def score_norm_bound(logp: PerToken) -> PerToken:
    """(1 − p)² with p the probability of the sampled token: ‖∇ log π‖² in the logits, up to a factor of 2. [B, R]

    That norm is ‖eₐ − π‖² = (1 − p)² + Σ_{v≠a} π(v)², and the last sum lies between 0 and (1 − p)². The
    log-probabilities of the sampled tokens are therefore sufficient as weights; no per-sample gradients are needed.
    """
    return torch.expm1(logp) ** 2


@runtime_checkable
class Baseline(Protocol):
    """(returns [B, R], mask [B, R], context) -> baseline to subtract from the returns, [B, R]"""

    def __call__(self, returns: PerToken, mask: TokenMask, context: Context) -> PerToken: ...


@runtime_checkable
class StatefulBaseline(Protocol):
    """A baseline with a state: (returns [B, R], mask [B, R], context, state) -> (baseline [B, R], next state)"""

    def init(self) -> State:
        """The initial state."""

    def __call__(
        self, returns: PerToken, mask: TokenMask, context: Context, state: State
    ) -> tuple[PerToken, State]: ...


@dataclass(frozen=True)
class NoBaseline:
    """b = 0."""

    def __call__(self, returns: PerToken, mask: TokenMask, context: Context) -> PerToken:
        return torch.zeros_like(returns)


@dataclass(frozen=True)
class BatchMean:
    """b = mean return over the tokens of the batch."""

    def __call__(self, returns: PerToken, mask: TokenMask, context: Context) -> PerToken:
        return masked_mean(returns, mask).expand_as(returns)


@dataclass(frozen=True)
class MovingAverage:
    """b = exponential average of the returns of *earlier* batches (Williams 1992: reinforcement comparison).

    b = sum / weight (0 in the first batch), and after each batch, with m the mean over completions of the return from
    the first token:
    sum ← decay · sum + (1 − decay) · m,  weight ← decay · weight + (1 − decay).
    """

    decay: float = 0.9

    def __post_init__(self) -> None:
        check_range(self, "[0, 1)", decay=self.decay)

    def init(self) -> dict[str, float]:
        """No batch so far."""
        return {"sum": 0.0, "weight": 0.0}

    def __call__(
        self, returns: PerToken, mask: TokenMask, context: Context, state: dict[str, float]
    ) -> tuple[PerToken, dict[str, float]]:
        average = state["sum"] / state["weight"] if state["weight"] > 0 else 0.0
        batch = float(torch.where(mask, returns, 0.0)[:, :1].sum(1).mean())
        after = {
            "sum": self.decay * state["sum"] + (1 - self.decay) * batch,
            "weight": self.decay * state["weight"] + (1 - self.decay),
        }
        return torch.full_like(returns, average), after


@dataclass(frozen=True)
class MinimumVariance:
    """b = Σ n G / Σ n, n = ‖∇ log π(aₜ|sₜ)‖²: the constant of smallest gradient variance (Weaver & Tao 2001).

    Minimises E‖Σₜ ∇ log πₜ (Gₜ − b)‖² when the score functions of different tokens are orthogonal, as they
    are for a policy with parameters of its own for every state.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"score_norm"})

    def __call__(self, returns: PerToken, mask: TokenMask, context: Context) -> PerToken:
        if context.score_norm is None:
            raise ValueError("MinimumVariance needs the squared norms of the score function: Context(score_norm=...).")
        weight = torch.where(mask, context.score_norm, 0.0)
        total = weight.sum()
        return ((weight * returns).sum() / torch.where(total > 0, total, 1.0)).expand_as(returns)


@dataclass(frozen=True)
class TimeDependent:
    """bₜ = mean return over the rows that have a token t.

    Where a single row is left, the row is its own baseline, and its advantage is 0.
    """

    def __call__(self, returns: PerToken, mask: TokenMask, context: Context) -> PerToken:
        mean = torch.where(mask, returns, 0.0).sum(0) / mask.sum(0).clamp(min=1)
        return mean.expand_as(returns)


@dataclass(frozen=True)
class LeaveOneOut:
    """bₜ of row i = mean return at token t of the *other* rows that reach it: unbiased; 0 where there are none."""

    def __call__(self, returns: PerToken, mask: TokenMask, context: Context) -> PerToken:
        returns = torch.where(mask, returns, 0.0)
        others = mask.sum(0) - mask.long()
        return (returns.sum(0) - returns) / others.clamp(min=1)

"""Surrogates: per-token objectives to maximise, from the log-probabilities of policy and sampler, and Ψ.

With ρₜ = π(aₜ|sₜ) / π_old(aₜ|sₜ), the ratio of the policy to the sampler. At π = π_old all have the gradient ∇ log π ·
Ψ; they differ once the policy moves away from the sampler.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from tutelage.core.kl import (
    CoefficientState,
    Controller,
    Doubling,
    StatefulController,
    control,
    controlled,
    kl_estimate,
)
from tutelage.core.pieces import Observation, State, check_range
from tutelage.core.shapes import PerToken, TokenMask


@runtime_checkable
class Surrogate(Protocol):
    """(logp, old_logp, advantage, mask), each [B, R] -> per-token objective to MAXIMISE, [B, R]

    A surrogate declares `per_response`, `on_policy` and `proximal` if they apply; see `tutelage.core.pieces.Traits`.
    """

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken: ...


@runtime_checkable
class ClippingSurrogate(Surrogate, Protocol):
    """A surrogate that can clip a token's gradient and reports which (for the metric `clip_fraction`)."""

    def clipped(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> TokenMask:
        """Tokens with a clipped gradient or weight. Bool[B, R]"""


@runtime_checkable
class AdaptiveSurrogate(Surrogate, Protocol):
    """A surrogate with a state that changes between steps. All minibatches of a step use the same state."""

    def init(self) -> State:
        """The initial state."""

    def at(self, state: State) -> Surrogate:
        """The surrogate of a step with this state."""

    def observe(self, observation: Observation, state: State) -> State:
        """The state after a step."""


def at_state(surrogate: Surrogate, state: State) -> Surrogate:
    """The surrogate for a step: `surrogate.at(state)`, or the surrogate itself if it has no state."""
    return surrogate.at(state) if isinstance(surrogate, AdaptiveSurrogate) else surrogate


def observe(surrogate: Surrogate, observation: Observation, state: State) -> State:
    """The state of a surrogate after a step; `()` if it has none."""
    return surrogate.observe(observation, state) if isinstance(surrogate, AdaptiveSurrogate) else state


@dataclass(frozen=True)
class ScoreFunction:
    """log π · Ψ: valid only for one gradient step on fresh samples."""

    on_policy: ClassVar[bool] = True

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken:
        return logp * advantage


@dataclass(frozen=True)
class _Capped:
    """A surrogate with an optional bound on its weight."""

    cap: float | None = None

    def __post_init__(self) -> None:
        check_range(self, "(1, ∞]", cap=self.cap)

    @property
    def proximal(self) -> bool:
        """Whether the weight is capped."""
        return self.cap is not None


@dataclass(frozen=True)
class ImportanceWeighted(_Capped):
    """min(ρ, `cap`) · Ψ: the policy's improvement over the sampler, to first order.

    Corrects the probability of the token, not that of its state; `TrajectoryWeighted` does both.
    """

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken:
        ratio = torch.exp(logp - old_logp)
        return (ratio if self.cap is None else ratio.clamp(max=self.cap)) * advantage

    def clipped(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> TokenMask:
        """Tokens with a clipped gradient. Bool[B, R]"""
        return _above(logp - old_logp, self.cap) & mask


@dataclass(frozen=True)
class TrajectoryWeighted(_Capped):
    """(Πₜ ρₜ) · log π · Ψ without a gradient through the weight: off-policy REINFORCE (Precup et al. 2000).

    Without a cap the gradient is unbiased for any sampler, but its variance grows exponentially with the length; `cap`
    bounds the weight and biases it.
    """

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken:
        weight = torch.exp(_row_sum(logp - old_logp, mask)).detach()
        return (weight if self.cap is None else weight.clamp(max=self.cap)) * logp * advantage

    def clipped(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> TokenMask:
        """Tokens with a weight at the cap. Bool[B, R]"""
        return _above(_row_sum(logp - old_logp, mask), self.cap) & mask


@dataclass(frozen=True)
class Clipped:
    """min(ρ Ψ, clip(ρ, 1 − low, 1 + high) Ψ) (PPO, Schulman et al. 2017): no incentive to move further.

    `high` above `low` is clip-higher (DAPO). `dual` = c > 1 bounds the objective below by c Ψ where Ψ < 0, so that one
    token with a huge ratio cannot dominate (Ye et al. 2020).
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    proximal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", low=self.low, high=self.high)
        check_range(self, "(1, ∞]", dual=self.dual)

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken:
        ratio = torch.exp(logp - old_logp)
        objective = torch.minimum(ratio * advantage, ratio.clamp(1 - self.low, 1 + self.high) * advantage)
        if self.dual is not None:
            objective = torch.where(advantage < 0, torch.maximum(objective, self.dual * advantage), objective)
        return objective

    def clipped(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> TokenMask:
        """Tokens with a clipped gradient. Bool[B, R]"""
        log_ratio = logp - old_logp
        cut = _outside(log_ratio.exp(), advantage, self.low, self.high)
        if self.dual is not None:
            cut = cut | ((advantage < 0) & _above(log_ratio, self.dual))
        return cut & mask


@dataclass(frozen=True)
class KlPenalised:
    """ρ Ψ − coef · KL(old‖π), the other PPO of Schulman et al. 2017; `controller` changes `coef` between steps.

    KL(old‖π) is estimated by k3 on the sampler's tokens, unbiased in both value and gradient.
    """

    coef: float = 1.0
    controller: Controller | StatefulController = Doubling(target=0.01)  # noqa: RUF009 - frozen
    needs: ClassVar[frozenset[str]] = frozenset({"kl_old"})
    proximal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.coef > 0:
            raise ValueError(f"KlPenalised: coef must be above 0, not {self.coef}; use ImportanceWeighted() for none.")

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken:
        return torch.exp(logp - old_logp) * advantage - self.coef * kl_estimate(old_logp, logp, "k3")

    def init(self) -> CoefficientState:
        """`coef` and the initial state of the controller."""
        return controlled(self.coef, self.controller)

    def at(self, state: CoefficientState) -> "KlPenalised":
        """The same surrogate with the current coefficient."""
        return replace(self, coef=state["coef"])

    def observe(self, observation: Observation, state: CoefficientState) -> CoefficientState:
        """The state updated with KL(old‖π) of the step, nats per token."""
        return control(self.controller, observation.kl_old, observation.rows, state)


@dataclass(frozen=True)
class SequenceClipped:
    """min(s Ψ, clip(s, 1 − low, 1 + high) Ψ) with one ratio s for the whole completion.

    s = (Πₜ ρₜ)^(1/length), the geometric mean, in GSPO (Zheng et al. 2025); `length_normalised=False` takes
    the product itself (RLOO with reuse, Ahmadian et al. 2024), whose natural range is much wider.
    """

    low: float = 3e-4
    high: float = 4e-4
    length_normalised: bool = True
    per_response: ClassVar[bool] = True
    proximal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", low=self.low, high=self.high)

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken:
        ratio = self._log_ratio(logp, old_logp, mask).exp()
        return torch.minimum(ratio * advantage, ratio.clamp(1 - self.low, 1 + self.high) * advantage)

    def clipped(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> TokenMask:
        """Tokens with a clipped gradient. Bool[B, R]"""
        ratio = self._log_ratio(logp, old_logp, mask).exp()
        return _outside(ratio, advantage, self.low, self.high) & mask

    def _log_ratio(self, logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
        total = _row_sum(logp - old_logp, mask)
        return total / mask.sum(-1, keepdim=True).clamp(min=1) if self.length_normalised else total


@dataclass(frozen=True)
class Cispo:
    """min(ρ, cap) · log π · Ψ without a gradient through the ratio: every token keeps a gradient (MiniMax-M1, 2025)."""

    cap: float = 5.0
    proximal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range(self, "(1, ∞]", cap=self.cap)

    def __call__(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> PerToken:
        return torch.exp(logp - old_logp).clamp(max=self.cap).detach() * logp * advantage

    def clipped(self, logp: PerToken, old_logp: PerToken, advantage: PerToken, mask: TokenMask) -> TokenMask:
        """Tokens with a weight at the cap. Bool[B, R]"""
        return _above(logp - old_logp, self.cap) & mask


def _row_sum(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, log_ratio, 0.0).sum(-1, keepdim=True)


def _above(log_ratio: Tensor, cap: float | None) -> Tensor:
    return log_ratio.exp() > (float("inf") if cap is None else cap)


def _outside(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    return ((advantage > 0) & (ratio > 1 + high)) | ((advantage < 0) & (ratio < 1 - low))

"""KL divergence between two policies: estimators from sampled tokens, the exact value, and controllers of its
coefficient.

With x = log π(a|s) − log π_ref(a|s) on tokens drawn from π (Schulman 2020, "Approximating KL divergence"):

    kind      per token         mean under π      in the reward            in the loss, the gradient is
    k1        x                 KL(π‖ref)         ∇KL(π‖ref), exactly      0 in expectation: noise and no pull
    k2, mse   x² / 2            biased            biased                   ∇KL(π‖ref)  ¹
    k3        exp(−x) − 1 + x   KL(π‖ref)         biased                   ∇KL(ref‖π)  ¹
    k3_ratio  ρ (exp(−x) − 1 + x) KL(π‖ref)       refused                  ∇KL(π‖ref)  ¹
    abs       |x|               biased upwards    biased                   biased

    ¹ exactly for one token; for a completion of several the states depend on π too, and a loss that differentiates
      only the log-probabilities of given tokens does not see that part

In the reward the estimate is a number that earlier tokens are credited with: ∇ log π · Ψ is then the whole gradient,
states included. k3 has the right mean and yet the wrong gradient there, because E[k3 ∇ log π] lacks the derivative of
k3 itself. In the loss, k3_ratio adds that derivative: ρ = π / π_old is 1 for fresh samples and has the gradient of
log π, and for samples of an earlier policy it corrects the probability of the token (DeepSeek-V3.2, arXiv 2512.02556;
`use_bias_correction_kl` in TRL). `exact_kl` over the whole vocabulary has no variance; in the loss its gradient is the
mean of that of k2, and in the reward it would charge earlier tokens for the state and the token itself for nothing.
`exact_divergence` is the family between KL(π‖ref) and KL(ref‖π), for distillation.
Each cell is a test (tests/laws/test_kl_placement.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.core.pieces import State, apply, check_range, init


def _k2(x: Tensor) -> Tensor:
    return x**2 / 2


def _k3(x: Tensor) -> Tensor:
    return torch.expm1(-x) + x


K3_RATIO = "k3_ratio"
"""The estimator that is weighted with the ratio of the policy to the sampler."""
ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda x: x,
    "k2": _k2,
    "mse": _k2,
    "k3": _k3,
    K3_RATIO: _k3,
    "abs": torch.abs,
}
"""Estimators by name, as functions of x; "mse" is another name for k2."""


def kl_estimate(
    logp: Float[Tensor, "*shape"],
    ref_logp: Float[Tensor, "*shape"],
    kind: str,
    old_logp: Float[Tensor, "*shape"] | None = None,
) -> Float[Tensor, "*shape"]:
    """Per-token estimate of KL(π‖ref) in nats, from tokens drawn from π. [B, R], [B, R] -> [B, R]

    k3_ratio also takes `old_logp`, the log-probabilities under the sampler, from which its tokens are drawn. Raises
    ValueError for a `kind` that is not in `ESTIMATORS`, and for k3_ratio without `old_logp`.
    """
    if kind not in ESTIMATORS:
        raise ValueError(f"KL estimator {kind!r} is not known; choose one of {', '.join(ESTIMATORS)}.")
    estimate = ESTIMATORS[kind](logp - ref_logp)
    if kind != K3_RATIO:
        return estimate
    if old_logp is None:
        raise ValueError(f"KL estimator {K3_RATIO} requires the log-probabilities under the sampler.")
    return torch.exp(logp - old_logp) * estimate


def expectation(logp: Float[Tensor, "*shape V"], x: Float[Tensor, "*shape V"]) -> Float[Tensor, "*shape"]:
    """E[x] = Σ_v p(v) x(v) with p = exp(logp). [..., V], [..., V] -> [...]

    A token of probability 0 adds nothing to the value or the gradient, even if its x is infinite or not a number: the
    limit of p log p and of its derivative in the logit.
    """
    p = logp.exp()
    return (p * torch.where(p > 0, x, 0.0)).sum(-1)


def exact_kl(logits: Float[Tensor, "*shape V"], ref_logits: Float[Tensor, "*shape V"]) -> Float[Tensor, "*shape"]:
    """KL(π‖ref) = Σ_v π(v) (log π(v) − log ref(v)) of the next-token distributions. [..., V] -> [...]

    Tokens with probability 0 under π (logit −inf) contribute nothing, whatever their reference probability.
    """
    return _kl(torch.log_softmax(logits, -1), torch.log_softmax(ref_logits, -1))


def exact_divergence(
    logits: Float[Tensor, "*shape V"], ref_logits: Float[Tensor, "*shape V"], mixture: float = 1.0
) -> Float[Tensor, "*shape"]:
    """The generalised Jensen-Shannon divergence of the next-token distributions, in nats. [..., V] -> [...]

        D = β KL(ref‖m) + (1 − β) KL(π‖m),   m = β ref + (1 − β) π,   β = mixture        0 < β < 1
        D = KL(π‖ref)                                                                    β = 1
        D = KL(ref‖π)                                                                    β = 0

    Agarwal et al. 2024 (GKD, arXiv 2306.13649), with β as in TRL's `generalized_jsd_loss`. The ends are the limits of
    D / (1 − β) and D / β: between them D is at most log 2, and close to an end it is small.
    """
    if mixture == 1.0:
        return exact_kl(logits, ref_logits)
    logp, ref_logp = torch.log_softmax(logits, -1), torch.log_softmax(ref_logits, -1)
    if mixture == 0.0:
        return _kl(ref_logp, logp)
    impossible = logp.isneginf() & ref_logp.isneginf()  # logaddexp has no derivative there
    part, ref_part = logp + math.log1p(-mixture), ref_logp + math.log(mixture)
    log_m = torch.logaddexp(part.masked_fill(impossible, 0.0), ref_part.masked_fill(impossible, 0.0))
    return mixture * _kl(ref_logp, log_m) + (1.0 - mixture) * _kl(logp, log_m)


def _kl(logp: Tensor, other: Tensor) -> Tensor:
    """Σ_v p(v) (log p(v) − log q(v)) of log-probabilities. [..., V] -> [...]"""
    return expectation(logp, logp - other)


@runtime_checkable
class Controller(Protocol):
    """(coef, kl, rows) -> the coefficient of a KL term after a step that measured `kl` over `rows` completions"""

    def __call__(self, coef: float, kl: float, rows: int) -> float: ...


@runtime_checkable
class StatefulController(Protocol):
    """A controller with a state: (coef, kl, rows, state) -> (next coefficient, next state)"""

    def init(self) -> State:
        """The initial state."""

    def __call__(self, coef: float, kl: float, rows: int, state: State) -> tuple[float, State]: ...


CoefficientState = dict[str, State]
"""{"coef": current coefficient, "controller": the controller's state}"""


def controlled(coef: float, controller: Controller | StatefulController) -> CoefficientState:
    """The initial state of a coefficient with a controller."""
    return {"coef": coef, "controller": init(controller)}


def control(
    controller: Controller | StatefulController, kl: float, rows: int, state: CoefficientState
) -> CoefficientState:
    """The state of a coefficient after a step that measured `kl` over `rows` completions."""
    coef, inner = apply(controller, state["coef"], kl, rows, state=state["controller"])
    return {"coef": float(coef), "controller": inner}


@dataclass(frozen=True)
class Fixed:
    """Constant coefficient."""

    def __call__(self, coef: float, kl: float, rows: int) -> float:
        return coef


@dataclass(frozen=True)
class Adaptive:
    """Proportional control: β ← β (1 + clip(kl / target − 1, ±0.2) · rows / horizon). Ziegler et al. 2019.

    `target` is in nats per sequence, `horizon` in sampled completions.
    """

    target: float = 6.0
    horizon: int = 10_000

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", target=self.target, horizon=self.horizon)

    def __call__(self, coef: float, kl: float, rows: int) -> float:
        error = min(max(kl / self.target - 1.0, -0.2), 0.2)
        return coef * (1.0 + error * rows / self.horizon)


@dataclass(frozen=True)
class Doubling:
    """β ← 2β when kl > 1.5 · target, β / 2 when kl < target / 1.5. Schulman et al. 2017, §4 (PPO-penalty)."""

    target: float = 0.01

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", target=self.target)

    def __call__(self, coef: float, kl: float, rows: int) -> float:
        if kl > 1.5 * self.target:
            return 2.0 * coef
        if kl < self.target / 1.5:
            return coef / 2.0
        return coef

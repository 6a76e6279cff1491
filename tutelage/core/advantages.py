"""Estimators of Ψ in ∇J = E[ Σₜ ∇ log π(aₜ|sₜ) · Ψₜ ].

Each piece is a function of the per-token rewards (the score on the last token, KL terms included where the
recipe puts them there) and, for those that use a critic, of the values of the states before each token. It
returns Ψ and, where there is something for a critic to fit, the critic's target. Pieces for groups of
responses: `tutelage.core.groups`.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from tutelage.core import returns as ret
from tutelage.core.baselines import NOTHING, Baseline, Context, NoBaseline
from tutelage.core.reduce import whiten as whitened

Psi = tuple[Tensor, Tensor | None]


class Advantage(Protocol):
    """(reward [B, R], mask [B, R], value [B, R] | None, group, context) -> (Ψ [B, R], target [B, R] | None)

    `group` is the number of consecutive rows that answer one prompt. A piece says what it cannot do without
    in a set named `needs`: "value" (a critic), "group" (two rows or more per prompt), or a field of
    `Context`. `per_response = True` says that Ψ is one number per response, repeated over its tokens.
    """

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi: ...


def needs(piece: object) -> frozenset[str]:
    """What a piece declares that it cannot do without; nothing for a plain function."""
    return frozenset(getattr(piece, "needs", ()))


@dataclass(frozen=True)
class TotalReturn:
    """Ψₜ = G₀ − b: every token is credited with the whole return (Williams 1992)."""

    baseline: Baseline = NoBaseline()  # noqa: RUF009 - frozen
    gamma: float = 1.0
    per_response: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return needs(self.baseline)

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi:
        total = ret.total_return(reward, mask, gamma=self.gamma)
        return torch.where(mask, total - self.baseline(total, mask, context), 0.0), None


@dataclass(frozen=True)
class RewardToGo:
    """Ψₜ = Gₜ − b: a token is credited with what comes after it. `whiten` scales over the batch (REINFORCE++)."""

    baseline: Baseline = NoBaseline()  # noqa: RUF009 - frozen
    gamma: float = 1.0
    whiten: bool = False

    @property
    def needs(self) -> frozenset[str]:
        return needs(self.baseline)

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi:
        going = ret.returns_to_go(reward, mask, gamma=self.gamma)
        psi = torch.where(mask, going - self.baseline(going, mask, context), 0.0)
        return (whitened(psi, mask) if self.whiten else psi), None


@dataclass(frozen=True)
class ValueBaseline:
    """Ψₜ = Gₜ − V(sₜ), target Gₜ: the baseline is a learned function of the state."""

    gamma: float = 1.0
    whiten: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi:
        going = ret.returns_to_go(reward, mask, gamma=self.gamma)
        psi = torch.where(mask, going - _given(value, self), 0.0)
        return (whitened(psi, mask) if self.whiten else psi), going


@dataclass(frozen=True)
class LengthAdaptive:
    """λ = 1 − 1/(α · length) of each response, not below 0 (VAPO, Yue et al. 2025): Σ λᵗ grows with the length."""

    alpha: float = 0.05

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"LengthAdaptive: alpha must be above 0, not {self.alpha}.")

    def __call__(self, mask: Tensor) -> Tensor:
        """Bool[B, R] -> Float[B]"""
        return (1 - 1 / (self.alpha * mask.sum(-1).clamp(min=1))).clamp(min=0.0)


@dataclass(frozen=True)
class Gae:
    """Generalised advantage estimation (Schulman et al. 2016): Ψₜ = δₜ + γλ Ψₜ₊₁, target Ψₜ + V(sₜ).

    The target is taken before whitening. `value_lam` gives the target a λ of its own (VC-PPO, Yuan et al.
    2025); None uses `lam` for both.
    """

    lam: float | LengthAdaptive = 0.95
    gamma: float = 1.0
    value_lam: float | None = None
    whiten: bool = True
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi:
        value = _given(value, self)
        lam = self.lam(mask) if isinstance(self.lam, LengthAdaptive) else self.lam
        psi = ret.gae(reward, value, mask, gamma=self.gamma, lam=lam)
        towards = psi
        if self.value_lam is not None:
            towards = ret.gae(reward, value, mask, gamma=self.gamma, lam=self.value_lam)
        target = torch.where(mask, towards + value, 0.0)
        return (whitened(psi, mask) if self.whiten else psi), target


@dataclass(frozen=True)
class TemporalDifference:
    """Ψₜ = δₜ = rₜ + γ V(sₜ₊₁) − V(sₜ), target rₜ + γ V(sₜ₊₁): one step of reward, then the critic's word for it."""

    gamma: float = 1.0
    whiten: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi:
        value = _given(value, self)
        psi = ret.td_errors(reward, value, mask, gamma=self.gamma)
        target = torch.where(mask, psi + value, 0.0)
        return (whitened(psi, mask) if self.whiten else psi), target


@dataclass(frozen=True)
class NStep:
    """Ψₜ = Gₜ⁽ⁿ⁾ − V(sₜ), target Gₜ⁽ⁿ⁾: n steps of reward, then the critic (Mnih et al. 2016)."""

    n: int = 5
    gamma: float = 1.0
    whiten: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"NStep: n must be at least 1, not {self.n}.")

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi:
        value = _given(value, self)
        target = ret.n_step(reward, value, mask, gamma=self.gamma, n=self.n)
        psi = torch.where(mask, target - value, 0.0)
        return (whitened(psi, mask) if self.whiten else psi), target


@dataclass(frozen=True)
class ActionValue:
    """Ψₜ = Q(sₜ, aₜ) = rₜ + γ V(sₜ₊₁), target the same: the actor-critic of Sutton et al. 2000 (no baseline).

    Writing is deterministic: sₜ₊₁ is sₜ with aₜ appended. So the value after the token *is* the action's
    value, and a Q critic needs no network of its own; the bootstrap target is that of SARSA.
    """

    gamma: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __call__(
        self, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
    ) -> Psi:
        q = torch.where(mask, reward + self.gamma * ret.next_value(_given(value, self), mask), 0.0)
        return q, q


def _given(value: Tensor | None, piece: object) -> Tensor:
    if value is None:
        raise ValueError(f"{type(piece).__name__} needs the values of the states, but there is no critic.")
    return value

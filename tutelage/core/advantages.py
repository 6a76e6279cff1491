"""Advantages: estimators of Ψ in ∇J = E[ Σₜ ∇ log π(aₜ|sₜ) · Ψₜ ].

An advantage is a function of the rewards per token (the score on the last token, minus the KL if the recipe puts it in
the reward) and, with a critic, of the value of the state before each token. It returns Ψ and the target of the critic,
None without a critic. Advantages that compare the completions to a prompt: `tutelage.core.groups`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch

from tutelage.core import returns as ret
from tutelage.core.baselines import Baseline, NoBaseline, StatefulBaseline
from tutelage.core.pieces import NOTHING, Context, State, apply, check_range, init, traits
from tutelage.core.reduce import whiten as whitened
from tutelage.core.shapes import PerRow, PerToken, TokenMask

Psi = tuple[PerToken, PerToken | None]
"""Ψ, and the target of the critic, if any."""


@runtime_checkable
class Advantage(Protocol):
    """(reward [B, R], mask [B, R], value [B, R] | None, group, context) -> (Ψ [B, R], target [B, R] | None)

    `group` is the number of consecutive rows per prompt. An advantage declares `needs` and `per_response` if they
    apply; see `tutelage.core.pieces.Traits`.
    """

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi: ...


@runtime_checkable
class StatefulAdvantage(Protocol):
    """An advantage with a state: (…, context, state) -> ((Ψ, target), next state)"""

    def init(self) -> State:
        """The initial state."""

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context, state: State
    ) -> tuple[Psi, State]: ...


@dataclass(frozen=True)
class _ReturnMinusBaseline:
    """Ψₜ = return − b without a critic. The state is the baseline's."""

    baseline: Baseline | StatefulBaseline = NoBaseline()  # noqa: RUF009 - frozen
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_range(self, "[0, 1]", gamma=self.gamma)

    @property
    def needs(self) -> frozenset[str]:
        """Requirements of the baseline."""
        return traits(self.baseline).needs

    def init(self) -> State:
        """The initial state of the baseline."""
        return init(self.baseline)

    def _less_baseline(
        self, returns: PerToken, mask: TokenMask, context: Context, state: State
    ) -> tuple[PerToken, State]:
        baseline, state = apply(self.baseline, returns, mask, context, state=state)
        return torch.where(mask, returns - baseline, 0.0), state


@dataclass(frozen=True)
class TotalReturn(_ReturnMinusBaseline):
    """Ψₜ = G₀ − b: every token is credited with the whole return (Williams 1992). The state is the baseline's."""

    per_response: ClassVar[bool] = True

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context, state: State
    ) -> tuple[Psi, State]:
        total = ret.total_return(reward, mask, gamma=self.gamma)
        psi, state = self._less_baseline(total, mask, context, state)
        return (psi, None), state


@dataclass(frozen=True)
class RewardToGo(_ReturnMinusBaseline):
    """Ψₜ = Gₜ − b: a token is credited only with later rewards. `whiten` normalises over the batch (REINFORCE++).

    The state is the baseline's.
    """

    whiten: bool = False

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context, state: State
    ) -> tuple[Psi, State]:
        returns = ret.returns_to_go(reward, mask, gamma=self.gamma)
        psi, state = self._less_baseline(returns, mask, context, state)
        return (whitened(psi, mask) if self.whiten else psi, None), state


@dataclass(frozen=True)
class ValueBaseline:
    """Ψₜ = Gₜ − V(sₜ), target Gₜ: the baseline is a learned function of the state."""

    gamma: float = 1.0
    whiten: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __post_init__(self) -> None:
        check_range(self, "[0, 1]", gamma=self.gamma)

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        returns = ret.returns_to_go(reward, mask, gamma=self.gamma, last=context.last_value)
        psi = torch.where(mask, returns - _required(value, self), 0.0)
        return (whitened(psi, mask) if self.whiten else psi), returns


@dataclass(frozen=True)
class LengthAdaptive:
    """λ = 1 − 1/(α · length) of each completion, not below 0 (VAPO, Yue et al. 2025): Σ λᵗ grows with the length."""

    alpha: float = 0.05

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", alpha=self.alpha)

    def __call__(self, mask: TokenMask) -> PerRow:
        """Bool[B, R] -> Float[B]"""
        return (1 - 1 / (self.alpha * mask.sum(-1).clamp(min=1))).clamp(min=0.0)


@dataclass(frozen=True)
class Gae:
    """Generalised advantage estimation (Schulman et al. 2016): Ψₜ = δₜ + γλ Ψₜ₊₁, target Ψₜ + V(sₜ).

    The target is taken before whitening. `value_lam` is a separate λ for the target (VC-PPO, Yuan et al. 2025); by
    default `lam`. With `per` "turn", γ and λ apply from the last token of a turn to the next turn, and are 1 within
    turns.
    """

    lam: float | LengthAdaptive = 0.95
    gamma: float = 1.0
    value_lam: float | None = None
    per: Literal["token", "turn"] = "token"
    whiten: bool = True
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __post_init__(self) -> None:
        lam = None if isinstance(self.lam, LengthAdaptive) else self.lam
        check_range(self, "[0, 1]", gamma=self.gamma, lam=lam, value_lam=self.value_lam)

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        value = _required(value, self)

        def estimate(lam: float | PerRow) -> PerToken:
            gamma: float | PerToken = self.gamma
            if self.per == "turn":
                ends = ret.turn_ends(ret.turn_index(context.turn, mask), mask)
                column = lam[:, None] if isinstance(lam, torch.Tensor) else lam
                gamma, lam = (torch.where(ends, rate, torch.ones_like(reward)) for rate in (gamma, column))
            return ret.gae(reward, value, mask, gamma=gamma, lam=lam, last=context.last_value)

        psi = estimate(self.lam(mask) if isinstance(self.lam, LengthAdaptive) else self.lam)
        improvement = psi if self.value_lam is None else estimate(self.value_lam)
        target = torch.where(mask, improvement + value, 0.0)
        return (whitened(psi, mask) if self.whiten else psi), target


@dataclass(frozen=True)
class TemporalDifference:
    """Ψₜ = δₜ = rₜ + γ V(sₜ₊₁) − V(sₜ), target rₜ + γ V(sₜ₊₁): one step of reward, then the critic."""

    gamma: float = 1.0
    whiten: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __post_init__(self) -> None:
        check_range(self, "[0, 1]", gamma=self.gamma)

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        value = _required(value, self)
        psi = ret.td_errors(reward, value, mask, gamma=self.gamma, last=context.last_value)
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
        check_range(self, "[1, ∞]", n=self.n)
        check_range(self, "[0, 1]", gamma=self.gamma)

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        value = _required(value, self)
        target = ret.n_step(reward, value, mask, gamma=self.gamma, n=self.n, last=context.last_value)
        psi = torch.where(mask, target - value, 0.0)
        return (whitened(psi, mask) if self.whiten else psi), target


@dataclass(frozen=True)
class ActionValue:
    """Ψₜ = Q(sₜ, aₜ) = rₜ + γ V(sₜ₊₁), target the same: the actor-critic of Sutton et al. 2000 (no baseline).

    Writing is deterministic: sₜ₊₁ is sₜ with aₜ appended. The value after the token *is* the action value, so a Q
    critic needs no separate network; the bootstrap target is that of SARSA.
    """

    gamma: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"value"})

    def __post_init__(self) -> None:
        check_range(self, "[0, 1]", gamma=self.gamma)

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        value = _required(value, self)
        errors = ret.td_errors(reward, value, mask, gamma=self.gamma, last=context.last_value)
        q = torch.where(mask, errors + value, 0.0)
        return q, q


def _required(value: PerToken | None, piece: object) -> PerToken:
    if value is None:
        raise ValueError(f"{type(piece).__name__} needs the values of the states, but there is no critic.")
    return value

"""Strengths of players (models, responses) from paired comparisons, with and without ties.

    Bradley-Terry (1952)   P(i beats j) = σ(s_i - s_j)
    Davidson (1970)        P(i beats j) = e^{d/2}/Z,  P(tie) = ν/Z,  Z = e^{d/2} + e^{-d/2} + ν,  d = s_i - s_j

Under Davidson's model the decided comparisons follow Bradley-Terry exactly (its case ν = 0), so dropping ties is
unbiased and only loses data. Counting a tie as half a win is biased: it shrinks all strengths, by about 30 % at
25-30 % ties. Both add a Gaussian prior s ~ N(0, 1/ridge), which keeps the strengths of unbeaten players finite and
centres them.
"""

from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import normal_quantile
from tutelage.stats.vote_codes import Floats, Ints, sum_by
from tutelage.stats.win_rates import check_outcomes

_ROUNDS = 100
_NU_RIDGE = 0.01  # log ν ~ N(0, 100): finite if no or all comparisons are ties


@dataclass(frozen=True, eq=False)
class Strengths:
    """Fitted strengths of P players, in nats, with mean 0 within each component.

    `strength`, `low`, `high` [P]: estimate and interval, NaN bounds for a player without a rival.
    `covariance` [P, P] of the estimates. `nu` with its interval: the tie parameter (equal players tie
    with probability ν/(2 + ν)); None if ties were dropped. `component` [P]: players of different components were
    not compared, even indirectly, and cannot be ranked against each other. `used`: number of comparisons fitted,
    `ties`: number of ties in the data.
    """

    strength: Floats
    low: Floats
    high: Floats
    covariance: Floats
    nu: float | None
    nu_low: float | None
    nu_high: float | None
    component: Ints
    used: int
    ties: int

    @property
    def connected(self) -> bool:
        """Whether all players can be ranked on one scale."""
        return bool(np.all(self.component == 0))

    def difference(self, i: int, j: int, level: float = 0.95) -> tuple[float, float, float]:
        """s_i - s_j and its interval. Raises TutelageError for players of different components."""
        if self.component[i] != self.component[j]:
            raise TutelageError(
                f"Players {i} and {j} were not compared, even indirectly, so "
                "their strengths have no common scale. Compare players of the two groups first."
            )
        c = self.covariance
        gap = float(self.strength[i] - self.strength[j])
        half = normal_quantile(level) * float(np.sqrt(c[i, i] + c[j, j] - 2 * c[i, j]))
        return gap, gap - half, gap + half


def bradley_terry(
    first: Ints,
    second: Ints,
    outcome: Floats,
    players: int,
    *,
    weight: Floats | None = None,
    ridge: float = 0.01,
    level: float = 0.95,
) -> Strengths:
    """Bradley-Terry strengths from the decided comparisons; ties are dropped and counted.

    `first`, `second` [N]: codes of the two players; `outcome` [N]: 1 the first won, 0 the second, .5 tie; `weight` [N].
    Maximises Σ w log P - ridge/2 Σ s², with intervals from the information matrix at the maximum.

    Votes are assumed independent; if several share a prompt, refit with `intervals.cluster_weights` as `weight`. Raises
    TutelageError for any other outcome, an unknown player, or a player compared with itself.
    """
    return _fit(first, second, outcome, players, weight, ridge, level, ties=False)


def davidson(
    first: Ints,
    second: Ints,
    outcome: Floats,
    players: int,
    *,
    weight: Floats | None = None,
    ridge: float = 0.01,
    level: float = 0.95,
) -> Strengths:
    """Davidson strengths and ν from all comparisons, ties included; arguments and errors as in `bradley_terry`."""
    return _fit(first, second, outcome, players, weight, ridge, level, ties=True)


def components(first: Ints, second: Ints, players: int) -> Ints:
    """The connected component of each player [P], numbered from 0 in the order of their first player."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    comparisons = coo_array((np.ones(len(first)), (first, second)), shape=(players, players))
    return connected_components(comparisons, directed=False)[1].astype(np.int64)


def _fit(
    first: Ints,
    second: Ints,
    outcome: Floats,
    players: int,
    weight: Floats | None,
    ridge: float,
    level: float,
    *,
    ties: bool,
) -> Strengths:
    _check(first, second, outcome, players)
    used = np.ones(len(outcome), dtype=bool) if ties else outcome != 0.5
    weights = np.ones(len(outcome)) if weight is None else np.asarray(weight, dtype=float)
    model = _Likelihood(first[used], second[used], outcome[used], weights[used], players, ridge, ties)
    parameters = _newton(model)
    covariance = np.linalg.inv(model.derivatives(parameters)[2])
    component = components(first[used], second[used], players)
    same = component[:, None] == component[None, :]
    centring = np.eye(players) - same / same.sum(axis=1, keepdims=True)
    spread = centring @ covariance[:players, :players] @ centring
    z = normal_quantile(level)
    half = np.where(same.sum(axis=1) > 1, z * np.sqrt(np.maximum(np.diag(spread), 0)), np.nan)
    strength = parameters[:players]
    nu, nu_low, nu_high = None, None, None
    if ties:
        log_nu, nu_half = parameters[players], z * np.sqrt(covariance[players, players])
        nu, nu_low, nu_high = (float(np.exp(log_nu + shift)) for shift in (0.0, -nu_half, nu_half))
    return Strengths(
        strength, strength - half, strength + half, spread, nu, nu_low, nu_high, component,
        used=int(used.sum()), ties=int((outcome == 0.5).sum()),
    )  # fmt: skip


def _check(first: Ints, second: Ints, outcome: Floats, players: int) -> None:
    check_outcomes(outcome)
    codes = np.concatenate([first, second])
    if len(codes) and not (codes.min() >= 0 and codes.max() < players):
        raise TutelageError(f"A comparison has a player outside 0 to {players - 1}.")
    if np.any(first == second):
        raise TutelageError(f"Player {first[first == second][0]} is compared with itself; remove such comparisons.")


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """The penalised log likelihood of (s_1 … s_P[, log ν]); ν = 0 without ties."""

    first: Ints
    second: Ints
    outcome: Floats
    weight: Floats
    players: int
    ridge: float
    ties: bool

    def derivatives(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient and information (minus the second derivative). With d = s_i - s_j and η = log ν:

        ∂log Z/∂d = (p_i - p_j)/2,  ∂log Z/∂η = p_tie,  and the second derivatives are the covariances of
        (d-coefficient, tie indicator) under (p_i, p_j, p_tie), as in every exponential family.
        """
        d = parameters[self.first] - parameters[self.second]
        log_nu = parameters[self.players] if self.ties else -np.inf
        scores = np.stack([d / 2, -d / 2, np.full_like(d, log_nu)])
        log_z = np.logaddexp.reduce(scores, axis=0)
        win, loss, tie = np.exp(scores - log_z)
        tied = self.outcome == 0.5
        reached = (self.outcome - 0.5) * d + np.where(tied & self.ties, log_nu, 0.0)
        penalty = np.full(len(parameters), self.ridge)
        penalty[self.players :] = _NU_RIDGE
        value = float((self.weight * (reached - log_z)).sum() - (penalty * parameters**2).sum() / 2)
        slope = self.weight * (self.outcome - 0.5 - (win - loss) / 2)
        bend = self.weight * (win + loss - (win - loss) ** 2) / 4
        gradient = self._by_player(slope) - penalty[: self.players] * parameters[: self.players]
        information = np.diag(penalty)
        information[: self.players, : self.players] += self._by_pair(bend)
        if self.ties:
            gradient = np.append(gradient, (self.weight * (tied - tie)).sum() - _NU_RIDGE * log_nu)
            cross = self._by_player(-self.weight * tie * (win - loss) / 2)
            information[-1, :-1] += cross
            information[:-1, -1] += cross
            information[-1, -1] += (self.weight * tie * (1 - tie)).sum()
        return value, gradient, information

    def _by_player(self, per_comparison: Floats) -> Floats:
        """Sum over comparisons of the derivative by d, as the gradient by s: + for i, - for j [P]."""
        plus = sum_by(self.first, per_comparison, self.players)
        return plus - sum_by(self.second, per_comparison, self.players)

    def _by_pair(self, per_comparison: Floats) -> Floats:
        """Sum over comparisons of the second derivative by d, as the Hessian by s [P, P]."""
        size = self.players
        pairs = sum_by(self.first * size + self.second, per_comparison, size * size).reshape(size, size)
        pairs = pairs + pairs.T
        return np.diag(pairs.sum(axis=1)) - pairs


def _newton(model: _Likelihood) -> Floats:
    """The maximiser, by Newton's method. The objective is concave; step halving ensures that it increases."""
    parameters = np.zeros(model.players + model.ties)
    value, gradient, information = model.derivatives(parameters)
    for _ in range(_ROUNDS):
        step = np.linalg.solve(information, gradient)
        if np.abs(step).max(initial=0.0) < 1e-10:
            break
        while True:
            trial = model.derivatives(parameters + step)
            if trial[0] >= value - 1e-9 * (1 + abs(value)):
                break
            step = step / 2
        parameters = parameters + step
        value, gradient, information = trial
    return parameters

"""Strengths of players (models, responses) from paired comparisons with ties.

    Davidson (1970)        P(i beats j) = e^{d/2}/Z,  P(tie) = ν/Z,  Z = e^{d/2} + e^{-d/2} + ν,  d = s_i - s_j
    Bradley-Terry (1952)   P(i beats j) = σ(d), the case ν = 0

Under Davidson's model the decided comparisons follow Bradley-Terry exactly, so dropping ties is unbiased and only loses
data. Counting a tie as half a win is biased: it shrinks all strengths, by about 30 % at 25-30 % ties. A Gaussian prior
s ~ N(0, 1/ridge) keeps the strengths of unbeaten players finite and centres them.
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
    with probability ν/(2 + ν)). `component` [P]: players of different components were not compared, even indirectly,
    and cannot be ranked against each other.
    """

    strength: Floats
    low: Floats
    high: Floats
    covariance: Floats
    nu: float
    nu_low: float
    nu_high: float
    component: Ints

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
    """Davidson strengths and ν from all comparisons, ties included.

    `first`, `second` [N]: codes of the two players; `outcome` [N]: 1 the first won, 0 the second, .5 tie; `weight` [N].
    Maximises Σ w log P - ridge/2 Σ s², with intervals from the information matrix at the maximum.

    Votes are assumed independent; if several share a prompt, refit with `intervals.cluster_weights` as `weight`. Raises
    TutelageError for any other outcome, an unknown player, or a player compared with itself.
    """
    _check(first, second, outcome, players)
    weights = np.ones(len(outcome)) if weight is None else np.asarray(weight, dtype=float)
    model = _Likelihood(first, second, outcome, weights, players, ridge)
    parameters = _newton(model)
    covariance = np.linalg.inv(model.derivatives(parameters)[2])
    component = components(first, second, players)
    same = component[:, None] == component[None, :]
    centring = np.eye(players) - same / same.sum(axis=1, keepdims=True)
    spread = centring @ covariance[:players, :players] @ centring
    z = normal_quantile(level)
    half = np.where(same.sum(axis=1) > 1, z * np.sqrt(np.maximum(np.diag(spread), 0)), np.nan)
    strength, log_nu = parameters[:players], parameters[players]
    nu_half = z * np.sqrt(covariance[players, players])
    nu, nu_low, nu_high = (float(np.exp(log_nu + shift)) for shift in (0.0, -nu_half, nu_half))
    return Strengths(strength, strength - half, strength + half, spread, nu, nu_low, nu_high, component)


def components(first: Ints, second: Ints, players: int) -> Ints:
    """The connected component of each player [P], numbered from 0 in the order of their first player."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    comparisons = coo_array((np.ones(len(first)), (first, second)), shape=(players, players))
    return connected_components(comparisons, directed=False)[1].astype(np.int64)


def _check(first: Ints, second: Ints, outcome: Floats, players: int) -> None:
    check_outcomes(outcome)
    codes = np.concatenate([first, second])
    if len(codes) and not (codes.min() >= 0 and codes.max() < players):
        raise TutelageError(f"A comparison has a player outside 0 to {players - 1}.")
    if np.any(first == second):
        raise TutelageError(f"Player {first[first == second][0]} is compared with itself; remove such comparisons.")


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """The penalised log likelihood of (s_1 … s_P, log ν)."""

    first: Ints
    second: Ints
    outcome: Floats
    weight: Floats
    players: int
    ridge: float

    def derivatives(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient and information (minus the second derivative). With d = s_i - s_j and η = log ν:

        ∂log Z/∂d = (p_i - p_j)/2,  ∂log Z/∂η = p_tie,  and the second derivatives are the covariances of
        (d-coefficient, tie indicator) under (p_i, p_j, p_tie), as in every exponential family.
        """
        d = parameters[self.first] - parameters[self.second]
        log_nu = parameters[self.players]
        scores = np.stack([d / 2, -d / 2, np.full_like(d, log_nu)])
        log_z = np.logaddexp.reduce(scores, axis=0)
        win, loss, tie = np.exp(scores - log_z)
        tied = self.outcome == 0.5
        reached = (self.outcome - 0.5) * d + np.where(tied, log_nu, 0.0)
        penalty = np.append(np.full(self.players, self.ridge), _NU_RIDGE)
        value = float((self.weight * (reached - log_z)).sum() - (penalty * parameters**2).sum() / 2)
        slope = self.weight * (self.outcome - 0.5 - (win - loss) / 2)
        bend = self.weight * (win + loss - (win - loss) ** 2) / 4
        gradient = np.append(self._by_player(slope), (self.weight * (tied - tie)).sum()) - penalty * parameters
        cross = self._by_player(-self.weight * tie * (win - loss) / 2)
        information = np.diag(penalty)
        information[:-1, :-1] += self._by_pair(bend)
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
    parameters = np.zeros(model.players + 1)
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

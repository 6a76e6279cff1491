"""Paired comparisons with ties: win rates of two models, also at equal length, and strengths of any number of players
(models, responses).

    Davidson (1970)        P(i beats j) = e^{d/2}/Z,  P(tie) = ν/Z,  Z = e^{d/2} + e^{-d/2} + ν,  d = s_i - s_j
    Bradley-Terry (1952)   P(i beats j) = σ(d), the case ν = 0

Under Davidson's model the decided comparisons follow Bradley-Terry exactly, so dropping ties is unbiased and only loses
data. Counting a tie as half a win is biased: it shrinks all strengths, by about 30 % at 25-30 % ties. A Gaussian prior
s ~ N(0, 1/ridge) keeps the strengths of unbeaten players finite and centres them.

Humans prefer the longer completion in about 64 % of pairs (AlpacaEval's table), so length alone wins comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import Interval, cluster_weights, normal_quantile, ratio_interval
from tutelage.stats.vote_codes import Floats, Ints, sum_by

_ROUNDS, _LOGISTIC_ROUNDS = 100, 50
_NU_RIDGE = 0.01  # log ν ~ N(0, 100): finite if no or all comparisons are ties
_RIDGE = 0.01  # coefficients ~ N(0, 100): finite if one side always wins


@dataclass(frozen=True)
class WinRate(Interval):
    """The share of comparisons won, with ties as half; `low`, `high` from resampling prompts."""

    wins: int
    ties: int
    losses: int
    prompts: int


def win_rate(outcome: Floats, prompt: ArrayLike, *, draws: int = 1000, seed: int = 0, level: float = 0.95) -> WinRate:
    """The win rate (wins + ties/2) / N over `outcome` [N] (1 win, .5 tie, 0 loss), clustered by `prompt` [N].

    Raises TutelageError for any other outcome.
    """
    check_outcomes(outcome)
    interval = ratio_interval(outcome, np.ones(len(outcome)), prompt, draws=draws, seed=seed, level=level)
    return WinRate(
        interval.value,
        interval.low,
        interval.high,
        wins=int((outcome == 1).sum()),
        ties=int((outcome == 0.5).sum()),
        losses=int((outcome == 0).sum()),
        prompts=len(np.unique(prompt)),
    )


def check_outcomes(outcome: Floats) -> None:
    """Raise TutelageError unless every outcome is 1, .5 or 0."""
    strange = ~np.isin(outcome, (0.0, 0.5, 1.0))
    if strange.any():
        raise TutelageError(
            f"The outcome {outcome[strange][0]:g} of a comparison is not 1 (win), 0.5 (tie) or 0 (loss)."
        )


def outcomes(first: Sequence[float], second: Sequence[float]) -> Floats:
    """Outcome of each comparison of two scores: 1 if the first is higher, 0 if the second is, .5 for a tie."""
    a, b = np.asarray(first, float), np.asarray(second, float)
    return np.select((a > b, a < b, a == b), (1.0, 0.0, 0.5), np.nan)  # nan is no tie: refused by check_outcomes


def scored_win_rate(first: Sequence[float], second: Sequence[float], prompts: Sequence[str]) -> dict[str, Any]:
    """The share of prompts on which the first model's completion scores higher than the second's; ties count half.

    The interval resamples whole prompts. Completions are scored individually, so their order does not matter. Keys:
    win_rate, win_rate_ci, wins, ties, losses, n, prompts.
    """
    outcome = outcomes(first, second)
    rate = win_rate(outcome, prompts)
    return {
        "win_rate": rate.value,
        "win_rate_ci": [rate.low, rate.high],
        "wins": rate.wins,
        "ties": rate.ties,
        "losses": rate.losses,
        "n": len(outcome),
        "prompts": rate.prompts,
    }


@dataclass(frozen=True)
class LengthControl:
    """A win rate at equal length: `value` with its interval, and `length_effect` (φ, log-odds), positive if longer
    completions win."""

    value: float
    low: float
    high: float
    length_effect: float


def length_controlled_win_rate(
    outcome: Floats, extra_length: Floats, prompt: ArrayLike, *, draws: int = 200, seed: int = 0, level: float = 0.95
) -> LengthControl:
    """The win rate at equal length, by logistic regression on two features (Dubois et al. 2024, arXiv 2404.04475,
    without its term for the instruction's difficulty):

        logit P(win) = θ + φ tanh(Δ / std(Δ)),        value = σ(θ)

    `outcome` [N]: 1 win, .5 tie, 0 loss; `extra_length` Δ [N]: length of the completion minus its rival's, in any
    unit; the interval refits on resampled prompts (`prompt` [N]).
    Raises TutelageError without comparisons or for any other outcome.
    """
    check_outcomes(outcome)
    if len(outcome) == 0:
        raise TutelageError("A length-controlled win rate needs at least one comparison; there are none.")
    spread = float(np.std(extra_length))
    feature = np.tanh(extra_length / spread) if spread > 0 else np.zeros(len(outcome))
    theta, phi = _logistic(feature, outcome, np.ones(len(outcome)))
    refits = [_logistic(feature, outcome, w)[0] for w in cluster_weights(prompt, draws=draws, seed=seed)]
    low, high = np.quantile(refits, [(1 - level) / 2, (1 + level) / 2])
    return LengthControl(_sigmoid(theta), _sigmoid(low), _sigmoid(high), phi)


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


def _logistic(feature: Floats, target: Floats, weight: Floats) -> tuple[float, float]:
    """θ, φ of the weighted logistic regression with a small ridge, by Newton's method."""
    design = np.stack([np.ones(len(feature)), feature], axis=1)
    coefficients = np.zeros(2)
    for _ in range(_LOGISTIC_ROUNDS):
        p = 1 / (1 + np.exp(-design @ coefficients))
        gradient = design.T @ (weight * (target - p)) - _RIDGE * coefficients
        information = (design.T * (weight * p * (1 - p))) @ design + _RIDGE * np.eye(2)
        step = np.linalg.solve(information, gradient)
        coefficients = coefficients + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-9:
            break
    return float(coefficients[0]), float(coefficients[1])


# Strengths -----------------------------------------------------------------------------------------------------------


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

"""Win rates of two models with cluster-bootstrap intervals, and length-controlled win rates.

Humans prefer the longer completion in about 64 % of pairs (AlpacaEval's table), so length alone wins comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import cluster_weights, ratio_interval
from tutelage.stats.vote_codes import Floats


@dataclass(frozen=True)
class WinRate:
    """The share of comparisons won, with ties as half; `low`, `high` from resampling prompts."""

    value: float | None
    low: float | None
    high: float | None
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


_RIDGE = 0.01  # coefficients ~ N(0, 100): finite if one side always wins
_ROUNDS = 50


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
    for _ in range(_ROUNDS):
        p = 1 / (1 + np.exp(-design @ coefficients))
        gradient = design.T @ (weight * (target - p)) - _RIDGE * coefficients
        information = (design.T * (weight * p * (1 - p))) @ design + _RIDGE * np.eye(2)
        step = np.linalg.solve(information, gradient)
        coefficients = coefficients + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-9:
            break
    return float(coefficients[0]), float(coefficients[1])

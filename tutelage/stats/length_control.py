"""A win rate from which the advantage of merely being longer is taken out.

Humans prefer the longer answer in about 64 % of pairs (AlpacaEval's table), so a model wins by writing more.
"""

from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import check_outcomes, cluster_weights
from tutelage.stats.votes import Floats, Ints

_RIDGE = 0.01  # coefficients ~ N(0, 100): finite when one side always wins
_ROUNDS = 50


@dataclass(frozen=True)
class LengthControl:
    """A win rate at equal length: `value` with its interval, and `length_effect` (φ, log-odds), what length is
    worth: 0 none, positive when longer answers win."""

    value: float
    low: float
    high: float
    length_effect: float


def length_controlled_win_rate(
    outcome: Floats,
    extra_length: Floats,
    prompt: Ints,
    *,
    draws: int = 200,
    seed: int = 0,
    level: float = 0.95,
) -> LengthControl:
    """The win rate at equal length, by logistic regression on two features (Dubois et al. 2024, arXiv 2404.04475,
    without its term for the instruction's difficulty):

        logit P(win) = θ + φ tanh(Δ / std(Δ)),        value = σ(θ)

    `outcome` [N]: 1 win, .5 tie, 0 loss; `extra_length` Δ [N]: length of the answer minus its rival's, in any
    unit; the interval refits on resampled prompts (`prompt` [N]).
    Raises TutelageError without comparisons and for another outcome.
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
    """θ, φ of the weighted, slightly ridged logistic regression, by Newton's method."""
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

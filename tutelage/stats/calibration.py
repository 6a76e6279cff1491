"""Calibration of predicted probabilities, and the accuracy ceiling for predicting single votes."""

from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.agreement import pair_agreement
from tutelage.stats.intervals import Interval
from tutelage.stats.vote_codes import Floats, Ints, Votes, sum_by

# Half a normal distribution at 4,000 midpoints: means of functions of |d|, exact to 1e-7 even with kinks.
_HALF_NORMAL = (np.arange(4000) + 0.5) * (9 / 4000)
_DENSITY = np.exp(-(_HALF_NORMAL**2) / 2) / np.exp(-(_HALF_NORMAL**2) / 2).sum()
_WIDEST = 40.0  # logit spread at which almost every item is unanimous


@dataclass(frozen=True, eq=False)
class Calibration:
    """A reliability diagram: bins of equal width over the predicted probability, with `edges` [bins + 1], `count`
    [bins], mean `predicted` and mean `observed` [bins] (NaN where empty). `ece` is the count-weighted mean of
    |predicted - observed|, `brier` the mean of (prediction - outcome)²."""

    edges: Floats
    count: Ints
    predicted: Floats
    observed: Floats
    ece: float
    brier: float

    def rows(self) -> list[dict[str, float]]:
        """The bins that are not empty, as they are written to files."""
        columns = (self.edges[:-1], self.edges[1:], self.predicted, self.observed)
        bins = zip(*(column.tolist() for column in columns), self.count.tolist(), strict=True)
        return [dict(zip(("low", "high", "predicted", "observed", "n"), row, strict=True)) for row in bins if row[-1]]


def calibration(predicted: Floats, outcome: Floats, bins: int = 10) -> Calibration:
    """The reliability diagram of `predicted` [N] in [0, 1] against `outcome` [N], the event (0, 1) or its frequency.

    Sources: Brier 1950; expected calibration error: Naeini et al. 2015. ECE is biased upwards by about √(p(1 - p)/n)
    per bin of n predictions, so use few bins for few votes.

    For pair predictions give p of a *random* side, not of the chosen one, or the outcome is always 1. Raises
    TutelageError without predictions, or if any is outside [0, 1].
    """
    if len(predicted) == 0 or predicted.min() < 0 or predicted.max() > 1:
        raise TutelageError("Calibration needs at least one prediction, all between 0 and 1.")
    edges = np.linspace(0, 1, bins + 1)
    code = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    count = np.bincount(code, minlength=bins)
    filled = np.where(count > 0, count, np.nan)
    mean_predicted = sum_by(code, predicted, bins) / filled
    mean_observed = sum_by(code, outcome, bins) / filled
    gap = np.nan_to_num(np.abs(mean_predicted - mean_observed))
    return Calibration(
        edges,
        count,
        mean_predicted,
        mean_observed,
        ece=float((count * gap).sum() / len(predicted)),
        brier=float(((predicted - outcome) ** 2).mean()),
    )


def label_hits(posterior: Floats, truth: Ints) -> Floats:
    """How far the label of each item is right [I]: 1 if the most probable class of the `posterior` [I, K] is the
    `truth`, 1/n if the truth is one of n equally probable ones, 0 otherwise."""
    leading = posterior >= posterior.max(axis=1, keepdims=True) - 1e-12
    return np.asarray((leading / leading.sum(axis=1, keepdims=True))[np.arange(len(truth)), truth])


@dataclass(frozen=True)
class VoteCeiling:
    """Accuracy ceiling: the share of single votes that the best possible predictor agrees with, estimated from
    items with several raters.

    With p the probability that a random rater says "a" about the item, two raters agree with probability
    a = E[p² + (1 - p)²] and the best predictor is right with c = E[max(p, 1 - p)]:

    `agreement`: a, unbiased. `lowest` = a and `highest` = (1 + √(2a - 1))/2: c lies between them, whatever
    the distribution of p (Jensen, and max ≥ mean); they are reached when every item is either certain or a
    coin, and when all are equally hard. `ceiling` assumes p = σ(d), d ~ N(0, spread²), the simulator's model;
    the error of that assumption is bounded by the two. `held_out`: how often the majority of an item's *other*
    votes predicts a vote, a tie as half: biased downwards, because few others are a poor predictor.
    Held-out accuracy above `ceiling.high` suggests that the predictor was trained on the same votes.
    """

    agreement: Interval
    lowest: float
    highest: float
    ceiling: Interval
    spread: float
    held_out: float


def vote_ceiling(votes: Votes, cluster: Ints | None = None, *, draws: int = 1000, seed: int = 0) -> VoteCeiling:
    """The `VoteCeiling` of a-or-b votes (two choices; remove ties first); `cluster` and the interval as in
    `agreement.pair_agreement`.

    Raises TutelageError unless there are two choices and an item with two raters.
    """
    if len(votes.choices) != 2:
        raise TutelageError(
            f"The vote ceiling needs two choices, not {len(votes.choices)}; remove ties and skips first."
        )
    agreement = pair_agreement(votes, cluster, draws=draws, seed=seed)
    if agreement.value is None:
        raise TutelageError("The vote ceiling needs at least one item with two or more raters; there is none.")
    spread = logit_spread(agreement.value)
    bounds = agreement.low, agreement.high
    low, high = (None if bound is None else ceiling_of_spread(logit_spread(bound)) for bound in bounds)
    return VoteCeiling(
        agreement=Interval(agreement.value, *bounds),
        lowest=max(0.5, agreement.value),
        highest=(1 + max(0.0, 2 * agreement.value - 1) ** 0.5) / 2,
        ceiling=Interval(ceiling_of_spread(spread), low, high),
        spread=spread,
        held_out=_held_out(votes.counts().astype(float)),
    )


def _held_out(counts: Floats) -> float:
    """P(a vote equals the majority of the item's other votes), the mean over items with two or more, ties as
    half."""
    counts = counts[counts.sum(axis=1) >= 2]
    lead = counts - counts[:, ::-1] - 1  # of a choice over the other, without one of its votes
    hit = np.where(lead > 0, 1.0, np.where(lead == 0, 0.5, 0.0))
    return float(((counts * hit).sum(axis=1) / counts.sum(axis=1)).mean())


def agreement_of_spread(spread: float) -> float:
    """The agreement of two votes E[p² + (1 - p)²] for p = σ(d), d ~ N(0, spread²): .726 (InstructGPT's labellers)
    at spread 2.34."""
    p = 1 / (1 + np.exp(-spread * _HALF_NORMAL))
    return float(_DENSITY @ (p**2 + (1 - p) ** 2))


def ceiling_of_spread(spread: float) -> float:
    """The ceiling E[max(p, 1 - p)] for p = σ(d), d ~ N(0, spread²)."""
    return float(_DENSITY @ (1 / (1 + np.exp(-spread * _HALF_NORMAL))))


def logit_spread(agreement: float) -> float:
    """The spread of d at which two votes agree with probability `agreement`: 0 at ½ or below, at most 40."""
    from scipy.optimize import brentq

    if agreement <= 0.5:
        return 0.0
    if agreement_of_spread(_WIDEST) <= agreement:
        return _WIDEST
    return brentq(lambda spread: agreement_of_spread(spread) - agreement, 0.0, _WIDEST, xtol=1e-12)

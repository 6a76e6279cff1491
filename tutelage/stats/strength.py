"""The worth of a stated strength ("slightly", "much better"), learnt from items that two raters judged.

The seven-point bar is a rater's opinion of their own certainty. What it means is measured: how often does
another rater agree with a vote of strength s?
"""

from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.votes import Floats, Ints, Votes, sum_by

_SURE = 0.98  # as in the rater models: no vote is infallible


@dataclass(frozen=True, eq=False)
class StrengthScale:
    """The worth of each strength s = 0 … S: `agreement` [S + 1], the probability that another rater agrees with a vote
    of strength s (shrunk towards the overall one, never falling with s); `accuracy` [S + 1], that such a vote
    is right; `pairs` [S + 1], the ordered pairs of votes it rests on."""

    agreement: Floats
    accuracy: Floats
    pairs: Ints
    overall: float

    def weights(self, strength: Ints) -> Floats:
        """The weights of votes [N] in the rater models: the log-odds of a vote of this strength relative to those of an
        average vote."""
        typical = _accuracy(np.array([self.overall]), self.overall)
        log_odds = np.log(self.accuracy / (1 - self.accuracy))
        return np.maximum(log_odds, 0.0)[strength] / float(np.log(typical / (1 - typical))[0])


def strength_scale(votes: Votes, strength: Ints, *, levels: int = 4, pseudo: float = 20.0) -> StrengthScale:
    """The scale of `strength` [N] (0 … levels - 1) of decided a-or-b votes, from items with several raters:

        c(s) = P(another rater agrees | a vote has strength s)
             = (Σ agreeing share + pseudo · p)/(votes of strength s + pseudo)

    where a vote's agreeing share is that of the item's other votes that equal it, so that crowded items do
    not drown the rest, and p is its mean over all strengths. Votes of larger strength are then not allowed to
    agree less (isotonic regression, which pools adjacent violators: Ayer et al. 1955). If votes of strength s
    are right with probability a_s and others with ā, independently, c(s) = a_s ā + (1 - a_s)(1 - ā), which gives

        ā = (1 + √(2p - 1))/2,    a_s = (c(s) - 1 + ā)/(2ā - 1), kept within [½, .98]

    Raises TutelageError for other than two choices, a strength out of range, no overlap, and agreement no
    better than chance, from which nothing can be calibrated.
    """
    from scipy.optimize import isotonic_regression

    if len(votes.choices) != 2:
        raise TutelageError(
            f"Strength is calibrated on two choices, not {len(votes.choices)}; leave ties out first."
        )
    if len(strength) and not (strength.min() >= 0 and strength.max() < levels):
        raise TutelageError(f"A strength lies outside 0 to {levels - 1}.")
    counts = votes.counts()
    others = counts.sum(axis=1)[votes.item] - 1
    overlapping = others >= 1
    if not overlapping.any():
        raise TutelageError(
            "Strength can only be calibrated where two raters judged the same item; nowhere here."
        )
    agreeing = (counts[votes.item, votes.choice] - 1)[overlapping] / others[overlapping]
    used = strength[overlapping]
    overall = float(agreeing.mean())
    if overall <= 0.5:
        raise TutelageError(
            f"Raters agree in {overall:.1%} of pairs, no better than chance; that calibrates no strength."
        )
    trials = np.bincount(used, minlength=levels).astype(np.float64)
    shares = (sum_by(used, agreeing, levels) + pseudo * overall) / (trials + pseudo)
    agreement = isotonic_regression(shares, weights=trials + pseudo).x
    pairs = sum_by(used, others[overlapping].astype(float), levels).astype(np.int64)
    return StrengthScale(agreement, _accuracy(agreement, overall), pairs, overall)


def _accuracy(agreement: Floats, overall: float) -> Floats:
    average = (1 + np.sqrt(2 * overall - 1)) / 2
    return np.clip((agreement - 1 + average) / (2 * average - 1), 0.5, _SURE)

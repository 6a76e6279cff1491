"""Inter-rater agreement, and the calibration of stated preference strength.

Agreement is the share of equal pairs, or Krippendorff's alpha, which corrects it for chance. Published preference data
lies between 63 % (hh-rlhf) and 81 % (MT-bench without ties) equal pairs, a mirrored alpha of .26 to .62: the textbook
threshold of .8 is for coding manuals, not for taste.

A stated strength ("slightly", "much better"), a rater's own estimate of their certainty, is calibrated on items with
two raters: how often does another rater agree with a vote of strength s?
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import Interval, ratio_interval
from tutelage.stats.vote_codes import Floats, Ints, Votes, sum_by

Level: TypeAlias = Literal["nominal", "ordinal", "interval"]

_NO_OVERLAP = "n/a until an item has two raters"
_NO_VARIATION = "n/a: every vote is the same"


@dataclass(frozen=True)
class PairAgreement(Interval):
    """The share of equal pairs of votes. `items` is the number of items with two or more raters, `pairs` of
    pairs of votes on them; `note` says why `value` is None, and is empty otherwise."""

    items: int
    pairs: int
    note: str = ""


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's alpha = 1 - observed/expected disagreement, over `items` items with two or more raters and
    their `votes` votes; `note` says why `value` is None, and is empty otherwise. `low` and `high` are its bootstrap
    interval over clusters of items, if it was asked for and there are two or more."""

    value: float | None
    observed: float
    expected: float
    items: int
    votes: int
    note: str = ""
    low: float | None = None
    high: float | None = None


def pair_agreement(
    votes: Votes, cluster: Ints | None = None, *, draws: int = 1000, seed: int = 0, level: float = 0.95
) -> PairAgreement:
    """Mean over items of the probability that two different raters of the item made the same choice:

        p = mean over items with m ≥ 2 of Σ_k n_k (n_k - 1) / (m (m - 1))

    The interval resamples clusters: `cluster` [I] gives the cluster of each item, such as its prompt; by
    default each item is its own cluster.
    """
    return agreement_of_counts(votes.counts(), cluster, draws=draws, seed=seed, level=level)


def agreement_of_counts(
    counts: Ints | Floats, cluster: ArrayLike | None = None, *, draws: int = 1000, seed: int = 0, level: float = 0.95
) -> PairAgreement:
    """`pair_agreement` of the number of raters who chose k for item i, `counts` [I, K]."""
    raters = counts.sum(axis=1)
    overlapping = raters >= 2
    counts, raters = counts[overlapping], raters[overlapping]
    if len(raters) == 0:
        return PairAgreement(None, None, None, 0, 0, _NO_OVERLAP)
    pairs = raters * (raters - 1)
    equal = (counts * (counts - 1)).sum(axis=1) / pairs
    groups = np.flatnonzero(overlapping) if cluster is None else np.asarray(cluster)[overlapping]
    share = ratio_interval(equal, np.ones(len(equal)), groups, draws=draws, seed=seed, level=level)
    return PairAgreement(share.value, share.low, share.high, len(raters), int(pairs.sum()) // 2)


def krippendorff_alpha(
    votes: Votes,
    level: Level = "nominal",
    values: Sequence[float] | None = None,
    *,
    cluster: ArrayLike | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Alpha:
    """Krippendorff's alpha with missing votes (Krippendorff 2011, "Computing Krippendorff's
    alpha-reliability"):

        o_ck = Σ_items [n_c (n_k - 1[c=k])] / (m - 1),   n_c = Σ_k o_ck,   n = Σ_c n_c
        alpha = 1 - D_o/D_e,   D_o = Σ o_ck δ²_ck / n,   D_e = Σ n_c n_k δ²_ck / (n (n - 1))
        δ²: nominal 1[c≠k]; interval (c - k)²; ordinal (Σ_{g=c..k} n_g - (n_c + n_k)/2)², in choice order

    `values` are the numbers of the choices (interval only; 0, 1, 2, … by default). Items with a single vote
    are ignored. With `cluster` [I], the cluster of each item, the result has a 95 % interval: the quantiles of alpha
    over `draws` samples of the clusters with replacement, in which each o is the sum over the drawn clusters.
    """
    counts = votes.counts()
    alpha = _alpha(counts, level, values)
    if cluster is None or alpha.value is None:
        return alpha
    overlapping = counts.sum(axis=1) >= 2
    _, groups = np.unique(np.asarray(cluster)[overlapping], return_inverse=True)
    if groups.max() < 1:
        return alpha
    tables = np.zeros((groups.max() + 1, counts.shape[1], counts.shape[1]))
    np.add.at(tables, groups, _coincidences(counts[overlapping].astype(float)))
    drawn = np.random.default_rng(seed).multinomial(len(tables), np.full(len(tables), 1 / len(tables)), size=draws)
    sums = np.einsum("dg,gjk->djk", drawn, tables)
    pairs = (_disagreement(each, level, values) for each in sums)
    sampled = [1 - observed / expected for observed, expected in pairs if expected]
    low, high = np.quantile(sampled, [0.025, 0.975]).tolist() if sampled else (None, None)
    return replace(alpha, low=low, high=high)


def mirrored_alpha(
    votes: Votes, mirror: Sequence[int], level: Level = "nominal", values: Sequence[float] | None = None
) -> Alpha:
    """Krippendorff's alpha after adding every item once more with the sides swapped: choice k becomes `mirror[k]`
    (a ↔ b, tie ↔ tie).

    Which answer was called "a" is then immaterial: without ties chance is exactly 1/2, and for items with
    equally many votes alpha = 1 - 2(1 - p)(n - 1)/n ≈ 2p - 1 with p the pair agreement and n twice the number
    of votes. For `level="interval"`, `values` must change sign under the mirror (-3 … 3).
    """
    counts = votes.counts()
    return _alpha(np.concatenate([counts, counts[:, list(mirror)]]), level, values)


def _alpha(counts: Ints, level: Level, values: Sequence[float] | None) -> Alpha:
    counts = counts[counts.sum(axis=1) >= 2].astype(float)
    if len(counts) == 0:
        return Alpha(None, 0.0, 0.0, 0, 0, _NO_OVERLAP)
    share = counts / (counts.sum(axis=1, keepdims=True) - 1)
    observed, expected = _disagreement(share.T @ counts - np.diag(share.sum(axis=0)), level, values)
    items, used = len(counts), int(counts.sum())
    if expected == 0:
        return Alpha(None, observed, expected, items, used, _NO_VARIATION)
    return Alpha(1 - observed / expected, observed, expected, items, used)


def _coincidences(counts: Floats) -> Floats:
    """[I, K, K]: the coincidences of each item."""
    share = counts / (counts.sum(axis=1, keepdims=True) - 1)
    return share[:, :, None] * (counts[:, None, :] - np.eye(counts.shape[1]))


def _disagreement(coincidences: Floats, level: Level, values: Sequence[float] | None) -> tuple[float, float]:
    """Observed and expected disagreement of coincidences [K, K]."""
    total = coincidences.sum(axis=1)
    n = total.sum()
    distance = _distance(level, total, values)
    observed = float((coincidences * distance).sum() / n)
    return observed, float((np.outer(total, total) * distance).sum() / (n * (n - 1)))


def _distance(level: Level, total: Floats, values: Sequence[float] | None) -> Floats:
    """δ² [K, K]."""
    if level == "nominal":
        return 1.0 - np.eye(len(total))
    if level == "ordinal":
        # The difference between the mean ranks of c and k.
        position = np.cumsum(total) - total / 2
    else:
        position = np.arange(len(total), dtype=float) if values is None else np.asarray(values, dtype=float)
    return (position[:, None] - position[None, :]) ** 2


_SURE = 0.98  # as in the rater models: no vote is certain


@dataclass(frozen=True, eq=False)
class StrengthScale:
    """Calibration of each strength s = 0 … S: `agreement` [S + 1], the probability that another rater agrees with a
    vote of strength s (shrunk towards the overall one, non-decreasing in s); `accuracy` [S + 1], the probability that
    such a vote is right; `pairs` [S + 1], the number of ordered pairs of votes."""

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

    where a vote's agreeing share is the share of the item's other votes that equal it, so that items with many
    votes do not dominate, and p is its mean over all strengths. The shares are then made non-decreasing in s
    (isotonic regression by pooling adjacent violators: Ayer et al. 1955). If votes of strength s
    are right with probability a_s and others with ā, independently, c(s) = a_s ā + (1 - a_s)(1 - ā), which gives

        ā = (1 + √(2p - 1))/2,    a_s = (c(s) - 1 + ā)/(2ā - 1), kept within [½, .98]

    Raises TutelageError unless there are two choices, all strengths are in range, some item has two raters, and
    agreement is better than chance.
    """
    from scipy.optimize import isotonic_regression

    if len(votes.choices) != 2:
        raise TutelageError(f"Strength is calibrated on two choices, not {len(votes.choices)}; remove ties first.")
    if len(strength) and not (strength.min() >= 0 and strength.max() < levels):
        raise TutelageError(f"A strength is outside 0 to {levels - 1}.")
    counts = votes.counts()
    others = counts.sum(axis=1)[votes.item] - 1
    overlapping = others >= 1
    if not overlapping.any():
        raise TutelageError("Strength can only be calibrated on items with two or more raters; there are none.")
    agreeing = (counts[votes.item, votes.choice] - 1)[overlapping] / others[overlapping]
    used = strength[overlapping]
    overall = float(agreeing.mean())
    if overall <= 0.5:
        raise TutelageError(
            f"Raters agree in {overall:.1%} of pairs, no better than chance, so strength cannot be calibrated."
        )
    trials = np.bincount(used, minlength=levels).astype(np.float64)
    shares = (sum_by(used, agreeing, levels) + pseudo * overall) / (trials + pseudo)
    agreement = isotonic_regression(shares, weights=trials + pseudo).x
    pairs = sum_by(used, others[overlapping].astype(float), levels).astype(np.int64)
    return StrengthScale(agreement, _accuracy(agreement, overall), pairs, overall)


def _accuracy(agreement: Floats, overall: float) -> Floats:
    average = (1 + np.sqrt(2 * overall - 1)) / 2
    return np.clip((agreement - 1 + average) / (2 * average - 1), 0.5, _SURE)

"""Tests of a single rater: known answers, side bias, preference for length, haste.

They raise flags for the owner to look at. None of them deletes a vote.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import wilson
from tutelage.stats.votes import Bools, Floats, Ints, sum_by

Standing: TypeAlias = Literal["learning", "cleared", "flagged"]


@dataclass(frozen=True)
class GoldTest:
    """The standing of a rater after questions of known answer (golds). `evidence` is log P(answers | guessing) -
    log P(answers | good) at the decision, `decided_after` the number of golds it took (None while learning)."""

    standing: Standing
    evidence: float
    right: int
    answered: int
    decided_after: int | None


def gold_test(
    right: Iterable[bool],
    *,
    good: float = 0.97,
    chance: float = 0.5,
    false_flag: float = 0.05,
    false_clear: float = 0.01,
) -> GoldTest:
    """Wald's sequential test between a good rater and one who guesses (Wald 1945), in the order of answering:

        Λ = Σ log P(answer | guessing)/P(answer | good)
        flagged when Λ ≥ log((1 - false_clear)/false_flag)
        cleared when Λ ≤ log(false_clear/(1 - false_flag))

    The first decision stands. `good` is the accuracy *on these golds*: they must be easy. With the defaults a
    guessing rater is flagged after 4.3 golds on average and within 10 in 95.4 % of cases; one right on 97 %
    of golds is ever flagged in 1.1 %, on 95 % in 3.3 %. No test of 10 golds can be that quick and spare
    someone right on only 85 % of them: whoever catches 95 % of guessers flags at least 21 % of those (Neyman
    and Pearson); here it is 24 %. For golds that hard use good=.85, false_flag=.01, false_clear=.05: it takes
    14 golds.
    Raises TutelageError unless chance < good < 1 and both error rates lie between 0 and 1/2.
    """
    if not 0 < chance < good < 1 or not (0 < false_flag < 0.5 and 0 < false_clear < 0.5):
        raise TutelageError(
            f"A gold test needs 0 < chance ({chance:g}) < good ({good:g}) < 1 and error rates between 0 and "
            f"0.5 (false_flag {false_flag:g}, false_clear {false_clear:g})."
        )
    flag, clear = math.log((1 - false_clear) / false_flag), math.log(false_clear / (1 - false_flag))
    answers = list(right)
    evidence = 0.0
    for count, correct in enumerate(answers, start=1):
        evidence += math.log(chance / good) if correct else math.log((1 - chance) / (1 - good))
        if evidence >= flag or evidence <= clear:
            standing: Standing = "flagged" if evidence >= flag else "cleared"
            return GoldTest(standing, evidence, sum(answers), len(answers), count)
    return GoldTest("learning", evidence, sum(answers), len(answers), None)


def side_bias(left: Ints, votes: Ints) -> Floats:
    """The exact two-sided binomial p-values [R] of `left` choices of the left side among `votes` decided votes,
    the sides being shown at random:

        p = min(1, 2 P(X ≤ min(left, votes - left))),   X ~ Binomial(votes, 1/2)

    A bias of .8 takes 39 votes to find (90 % power at p < .01), of .7 92, of .65 164, of .6 373.
    """
    from scipy.special import bdtr  # imported here, because the web application starts without it

    return np.minimum(1.0, 2 * bdtr(np.minimum(left, votes - left), votes, 0.5))


@dataclass(frozen=True)
class LengthPreference:
    """The share of votes for the longer answer, among `votes` decided votes on answers of unequal length."""

    rate: float | None
    low: float | None
    high: float | None
    votes: int
    flagged: bool


def prefers_longer(chose_longer: Bools, *, limit: float = 0.8, enough: int = 60) -> LengthPreference:
    """The share of `chose_longer` [n] with Wilson's interval; flagged above `limit` once there are `enough`
    votes.

    People as a whole choose the longer answer in about 64 %.
    """
    share = wilson(int(chose_longer.sum()), len(chose_longer))
    flagged = share.value is not None and share.value > limit and len(chose_longer) >= enough
    return LengthPreference(share.value, share.low, share.high, len(chose_longer), flagged)


def too_fast(
    seconds: Floats,
    characters: Floats,
    rater: Ints,
    *,
    reading_speed: float = 20.0,
    share: float = 0.25,
    enough: int = 20,
) -> Bools:
    """The votes [N] given in less than `share` of the time it takes to read the pair, at `reading_speed`
    characters per second, by raters with at least `enough` votes: before that nobody's pace is known.

    `seconds` [N] is active time, `characters` [N] the length of what was shown. 20 characters per second is a
    fast reader (some 240 words a minute); a quarter of that time is skimming at best.
    """
    hasty = seconds < share * characters / reading_speed
    experienced = np.bincount(rater, minlength=1)[rater] >= enough
    return hasty & experienced


def hasty_share(fast: Bools, rater: Ints, raters: int) -> Floats:
    """The share of each rater's votes that were too fast [R]; 0 without votes."""
    return sum_by(rater, fast.astype(float), raters) / np.maximum(np.bincount(rater, minlength=raters), 1)

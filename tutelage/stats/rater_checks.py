"""Checks of single raters: known answers, repeated questions, side bias, and flags from a rater model.

Flags are for the owner to review; no votes are deleted. Self-consistency, the share of repeated questions with the same
answer, needs no other raters.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import Interval, wilson
from tutelage.stats.reliability import Reliability
from tutelage.stats.vote_codes import Floats, Ints, Votes, sum_by

Standing: TypeAlias = Literal["learning", "cleared", "flagged"]


@dataclass(frozen=True)
class GoldTest:
    """The result of a rater's test on questions with known answers (golds). `evidence` is log P(answers | guessing) -
    log P(answers | good) at the decision, `decided_after` the number of golds it took (None while undecided)."""

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
    """Sequential probability ratio test of a good rater against one who guesses (Wald 1945), in the order of answers:

        Λ = Σ log P(answer | guessing)/P(answer | good)
        flagged when Λ ≥ log((1 - false_clear)/false_flag)
        cleared when Λ ≤ log(false_clear/(1 - false_flag))

    The first decision is final. `good` is the accuracy *on these golds*: they must be easy. By default a
    guessing rater is flagged after 4.3 golds on average and within 10 in 95.4 % of cases; a rater right on 97 %
    of golds is flagged in 1.1 %, on 95 % in 3.3 % of cases. No test of 10 golds can do so and spare raters right on
    only 85 % of them: a test that detects 95 % of guessers flags at least 21 % of those (Neyman and Pearson); here
    24 %. For such hard golds use good=.85, false_flag=.01, false_clear=.05, which takes 14 golds.
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

    Votes needed to detect a bias (90 % power at p < .01): 39 for .8, 92 for .7, 164 for .65, 373 for .6.
    """
    from scipy.special import bdtr  # lazy: the web application starts without scipy

    return np.minimum(1.0, 2 * bdtr(np.minimum(left, votes - left), votes, 0.5))


@dataclass(frozen=True)
class Repeats:
    """Self-consistency of a rater: of `seen` repeated questions, `same` got the first answer again."""

    same: int
    seen: int

    @property
    def share(self) -> Interval:
        """same / seen with Wilson's interval."""
        return wilson(self.same, self.seen)

    def reliability(self, classes: int = 2) -> float | None:
        """The accuracy a at which independent errors, spread evenly over K classes, give this consistency c:

            c = a² + (1 − a)²/(K − 1),   a = (1 + √((K − 1)(K c − 1)))/K

        An upper bound if errors are systematic (a rater who always prefers the longer answer is perfectly consistent).
        None without repeats; 1/K if repeats agree no more than by chance.
        """
        if not self.seen:
            return None
        excess = max(0.0, classes * self.same / self.seen - 1)
        return (1 + math.sqrt((classes - 1) * excess)) / classes


def self_consistency(item: Sequence[str], rater: Sequence[str], choice: Sequence[str]) -> dict[str, Repeats]:
    """The `Repeats` of each rater: later choices on an item against the first, in the order of the columns. Raters
    without repeats are omitted. For repeats with swapped sides, `choice` names the response, not the side."""
    first: dict[tuple[str, str], str] = {}
    answers: dict[str, list[bool]] = {}
    for question, who, answer in zip(item, rater, choice, strict=True):
        if (question, who) in first:
            answers.setdefault(who, []).append(answer == first[question, who])
        else:
            first[question, who] = answer
    return {who: Repeats(sum(same), len(same)) for who, same in answers.items()}


FlagKind: TypeAlias = Literal["adversarial", "random_like", "biased", "too_few"]

_LARGE_BIAS = 0.1


@dataclass(frozen=True)
class RaterFlag:
    """A warning about a rater: its `kind`, a phrase with the evidence, and the values in the phrase."""

    kind: FlagKind
    evidence: str
    values: tuple[str | float, ...] = ()


def rater_flags(votes: Votes, reliability: Reliability, *, enough: float = 10.0) -> tuple[tuple[RaterFlag, ...], ...]:
    """The flags of each rater, in code order:

    - adversarial: the interval of the rater's accuracy is below chance;
    - random_like: it is below the midpoint between chance and the typical (median) rater;
    - biased: one class is chosen over .1 more often than by an unbiased rater of that accuracy, significantly at a
      rate of one honest rater in twenty studies (normal test, Bonferroni over raters and classes);
    - too_few: the votes are equivalent to fewer than `enough` votes of known truth; no other flags are raised.

    Chance is the accuracy of the rater's answer shares independent of the truth: always giving the answer that is
    right on 90 % of items scores .9 and is still guessing.
    """
    per_rater = np.maximum(votes.per_rater(), 1)
    share = _choice_shares(votes) / per_rater[:, None]
    chance = share @ reliability.prevalence
    judged = reliability.evidence >= enough
    typical = float(np.median(reliability.accuracy[judged])) if judged.any() else 1.0
    excess, z = _class_bias(votes, reliability)
    limit = NormalDist().inv_cdf(1 - 0.05 / max(1, 2 * z.size))

    def flags(r: int) -> tuple[RaterFlag, ...]:
        if not judged[r]:
            return (RaterFlag("too_few", f"worth {reliability.evidence[r]:.1f} votes of known truth"),)
        raised: list[RaterFlag] = []
        below_chance = reliability.high[r] < chance[r]
        if below_chance or reliability.high[r] < (chance[r] + typical) / 2:
            phrase = f"right in at most {reliability.high[r]:.0%}, chance is {chance[r]:.0%}"
            shares = float(reliability.high[r]), float(chance[r])
            raised.append(RaterFlag("adversarial" if below_chance else "random_like", phrase, shares))
        k = int(np.argmax(excess[r]))
        if excess[r, k] > _LARGE_BIAS and z[r, k] > limit:
            unbiased = share[r, k] - excess[r, k]
            phrase = f"says '{votes.choices[k]}' in {share[r, k]:.0%}, expected {unbiased:.0%}"
            values = votes.choices[k], float(share[r, k]), float(unbiased)
            raised.append(RaterFlag("biased", phrase, values))
        return tuple(raised)

    return tuple(flags(r) for r in range(len(votes.raters)))


def _choice_shares(votes: Votes) -> Floats:
    """[R, K]: votes by rater and choice."""
    classes = len(votes.choices)
    cell = votes.rater * classes + votes.choice
    return np.bincount(cell, minlength=len(votes.raters) * classes).reshape(-1, classes).astype(float)


def _class_bias(votes: Votes, reliability: Reliability) -> tuple[Floats, Floats]:
    """[R, K] each: the excess share of votes for k over an unbiased rater of equal accuracy, and its z-value.

    Unbiased means errors spread evenly: P(k) = a q_k + (1 - a)(1 - q_k)/(K - 1) on an item with posterior q.
    """
    classes = len(votes.choices)
    accuracy, posterior = reliability.accuracy[votes.rater][:, None], reliability.posterior[votes.item]
    p = accuracy * posterior + (1 - accuracy) * (1 - posterior) / (classes - 1)
    raters, per_rater = len(votes.raters), np.maximum(votes.per_rater(), 1)[:, None]
    expected = np.stack([sum_by(votes.rater, p[:, k], raters) for k in range(classes)], axis=1)
    variance = np.stack([sum_by(votes.rater, p[:, k] * (1 - p[:, k]), raters) for k in range(classes)], axis=1)
    surplus = _choice_shares(votes) - expected
    return surplus / per_rater, surplus / np.sqrt(np.maximum(variance, 1e-12))

"""Checks of single raters: known answers, repeated questions, side bias, and flags from a rater model.

They raise flags for the owner to look at. None of them deletes a vote. Self-consistency, how
often a question that is asked again gets the same answer, needs no other votes.
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

    The first decision is final. `good` is the accuracy *on these golds*: they must be easy. With the defaults a
    guessing rater is flagged after 4.3 golds on average and within 10 in 95.4 % of cases; one right on 97 %
    of golds is ever flagged in 1.1 %, on 95 % in 3.3 %. No test of 10 golds can be that quick and spare
    someone right on only 85 % of them: a test that catches 95 % of guessers flags at least 21 % of those (Neyman
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
class Repeats:
    """The consistency of a rater: of `seen` questions that were asked again, `same` got the answer of the first
    time."""

    same: int
    seen: int

    @property
    def share(self) -> Interval:
        """same / seen with Wilson's interval."""
        return wilson(self.same, self.seen)

    def reliability(self, classes: int = 2) -> float | None:
        """The accuracy a at which independent errors, spread evenly over K classes, repeat an answer as often:

            c = a² + (1 − a)²/(K − 1),   a = (1 + √((K − 1)(K c − 1)))/K

        An upper bound where errors are habits (a rater who always prefers the longer answer never contradicts himself).
        None without repeats; 1/K where they agree no more than chance.
        """
        if not self.seen:
            return None
        excess = max(0.0, classes * self.same / self.seen - 1)
        return (1 + math.sqrt((classes - 1) * excess)) / classes


def self_consistency(item: Sequence[str], rater: Sequence[str], choice: Sequence[str]) -> dict[str, Repeats]:
    """The `Repeats` of each rater: later choices on an item against the first, in the order of the columns. Raters who
    were never asked again are left out. For repeats with swapped sides, `choice` names the response, not the side."""
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


def rater_flags(
    votes: Votes, reliability: Reliability, *, enough: float = 10.0
) -> tuple[tuple[RaterFlag, ...], ...]:
    """The flags of each rater, in code order:

    - adversarial: the interval of the rater's accuracy lies below chance;
    - random_like: it lies below the midpoint between chance and the typical (median) rater;
    - biased: one class is named over .1 more often than an unbiased rater of that accuracy would name it, so
      clearly that it happens to one honest rater in twenty studies (normal test, Bonferroni over raters and
      classes);
    - too_few: the votes are worth fewer than `enough` votes of known truth, so nothing else is said.

    Chance is what the rater's shares of answers would score if they had nothing to do with the truth: always
    giving the answer that is right in 90 % of items scores .9 and is still guessing.
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
    """[R, K] each: share of votes for k beyond what an unbiased rater of equal accuracy gives, and its
    z-value.

    Unbiased means errors spread evenly: P(k) = a q_k + (1 - a)(1 - q_k)/(K - 1) on an item with posterior q.
    """
    classes = len(votes.choices)
    accuracy, posterior = reliability.accuracy[votes.rater][:, None], reliability.posterior[votes.item]
    p = accuracy * posterior + (1 - accuracy) * (1 - posterior) / (classes - 1)
    raters, per_rater = len(votes.raters), np.maximum(votes.per_rater(), 1)[:, None]
    expected = np.stack([sum_by(votes.rater, p[:, k], raters) for k in range(classes)], axis=1)
    variance = np.stack(
        [sum_by(votes.rater, p[:, k] * (1 - p[:, k]), raters) for k in range(classes)], axis=1
    )
    surplus = _choice_shares(votes) - expected
    return surplus / per_rater, surplus / np.sqrt(np.maximum(variance, 1e-12))

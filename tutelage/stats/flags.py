"""Flags on raters, from the votes and a fitted rater model: a word for the owner of the study, with its evidence."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np

from tutelage.stats.reliability import Reliability
from tutelage.stats.votes import Floats, Votes, sum_by

FlagKind: TypeAlias = Literal["adversarial", "random_like", "biased", "too_few"]

_LARGE_BIAS = 0.1


@dataclass(frozen=True)
class Flag:
    """A warning about a rater: its `kind`, a phrase with the evidence, and the values in the phrase."""

    kind: FlagKind
    evidence: str
    values: tuple[str | float, ...] = ()


def rater_flags(votes: Votes, found: Reliability, *, enough: float = 10.0) -> tuple[tuple[Flag, ...], ...]:
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
    chance = share @ found.prevalence
    judged = found.evidence >= enough
    typical = float(np.median(found.accuracy[judged])) if judged.any() else 1.0
    excess, z = _class_bias(votes, found)
    limit = NormalDist().inv_cdf(1 - 0.05 / max(1, 2 * z.size))

    def flags(r: int) -> tuple[Flag, ...]:
        if not judged[r]:
            return (Flag("too_few", f"worth {found.evidence[r]:.1f} votes of known truth"),)
        raised: list[Flag] = []
        below_chance = found.high[r] < chance[r]
        if below_chance or found.high[r] < (chance[r] + typical) / 2:
            phrase = f"right in at most {found.high[r]:.0%}, chance is {chance[r]:.0%}"
            shares = float(found.high[r]), float(chance[r])
            raised.append(Flag("adversarial" if below_chance else "random_like", phrase, shares))
        k = int(np.argmax(excess[r]))
        if excess[r, k] > _LARGE_BIAS and z[r, k] > limit:
            unbiased = share[r, k] - excess[r, k]
            phrase = f"says '{votes.choices[k]}' in {share[r, k]:.0%}, expected {unbiased:.0%}"
            values = votes.choices[k], float(share[r, k]), float(unbiased)
            raised.append(Flag("biased", phrase, values))
        return tuple(raised)

    return tuple(flags(r) for r in range(len(votes.raters)))


def _choice_shares(votes: Votes) -> Floats:
    """[R, K]: votes by rater and choice."""
    classes = len(votes.choices)
    cell = votes.rater * classes + votes.choice
    return np.bincount(cell, minlength=len(votes.raters) * classes).reshape(-1, classes).astype(float)


def _class_bias(votes: Votes, found: Reliability) -> tuple[Floats, Floats]:
    """[R, K] each: share of votes for k beyond what an unbiased rater of equal accuracy gives, and its
    z-value.

    Unbiased means errors spread evenly: P(k) = a q_k + (1 - a)(1 - q_k)/(K - 1) on an item with posterior q.
    """
    classes = len(votes.choices)
    accuracy, posterior = found.accuracy[votes.rater][:, None], found.posterior[votes.item]
    p = accuracy * posterior + (1 - accuracy) * (1 - posterior) / (classes - 1)
    raters, per_rater = len(votes.raters), np.maximum(votes.per_rater(), 1)[:, None]
    expected = np.stack([sum_by(votes.rater, p[:, k], raters) for k in range(classes)], axis=1)
    variance = np.stack(
        [sum_by(votes.rater, p[:, k] * (1 - p[:, k]), raters) for k in range(classes)], axis=1
    )
    surplus = _choice_shares(votes) - expected
    return surplus / per_rater, surplus / np.sqrt(np.maximum(variance, 1e-12))

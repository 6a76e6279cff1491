"""Which raters copy: a likelihood-ratio test that lets honest raters agree for every other reason.

Two raters agree on an item because both are right, because both are biased or confused, because the item is easy, or
because it lures everybody to the same wrong answer. Under the null hypothesis nothing else makes them agree
(item_pulls.py); under the alternative one of them repeats the other's votes with probability κ.

With Λ = 2 (log L₁ - log L₀) and κ at the edge of its range under the null hypothesis, P(Λ > λ) = P(χ²₁ > λ)/2 for many
items (Chernoff 1954). A pair is linked where this is less than `level` over the number of ordered pairs, so that a
study of honest raters has a link with a probability of about `level`. Raters whose votes can all be explained as right
are never linked, however seldom the others agree with them: what two have in common has to contradict how well each
knows the truth. So two of five who always agree are not accused where the three others may have been misled.

Among few raters it may be that either of two pairs copies, and votes cannot say which. A pair is not linked where one
without a rater in common explains the votes nearly as well, within a likelihood ratio of 1/`level`, and nothing more is
explained by both.
"""

import math
from dataclasses import dataclass

import numpy as np

from tutelage.stats.copies import Link
from tutelage.stats.item_pulls import Fit, PulledItems
from tutelage.stats.votes import Bools, Floats, Ints, Votes

_TRIED = 3  # pairs by each of two orders
_SHARED = 20  # items that two raters must have in common before they can be linked
_SUSPECT = 2.5  # standard errors of the score; where no pair has so many, none is tested


def copying_links(votes: Votes, gold: Ints, *, level: float = 0.01) -> tuple[Link, ...]:
    """The links between raters who copy, the most evident first, each tested beside those before it; at most half as
    many as raters. `gold` [I] holds known classes or -1."""
    table = PulledItems.of(votes, gold)
    pairs = _pairs(table)
    if not pairs.any():
        return ()
    needed, margin = _critical_value(level / int(pairs.sum())), -2 * math.log(level)
    found = table.fit(table.guess(np.ones(len(table.votes))), ())
    while len(found.links) < len(votes.raters) // 2:
        null = found
        tests = sorted(
            (_test(table, null, link) for link in _suspects(table, null, pairs)), key=lambda test: -test.ratio
        )
        if not tests or tests[0].ratio <= needed:
            break
        best, *others = tests
        rivals = [
            test for test in others if test.ratio > max(needed, best.ratio - margin) and best.differs(test)
        ]
        if any(_test(table, best.fit, rival.link).ratio <= needed for rival in rivals):
            break
        found = best.fit
    return found.links


def _critical_value(probability: float) -> float:
    """λ with P(χ²₁ > λ)/2 = `probability`."""
    from scipy.special import ndtri  # imported here, because the web application starts without it

    return float(ndtri(probability)) ** 2


@dataclass(frozen=True, eq=False)
class _Test:
    """A link, Λ as its `ratio`, and the fit with it."""

    link: Link
    ratio: float
    fit: Fit

    def differs(self, other: "_Test") -> bool:
        """Whether the two links have no rater in common."""
        return not {self.link.follower, self.link.leader} & {other.link.follower, other.link.leader}


def _pairs(table: PulledItems) -> Bools:
    """Which ordered pairs of raters have enough items in common [R, R]."""
    judged = (table.choices >= 0).astype(np.float32)
    return np.asarray((judged.T @ judged >= _SHARED) & ~np.eye(judged.shape[1], dtype=bool))


def _test(table: PulledItems, null: Fit, link: Link) -> _Test:
    """The likelihood has several maxima, so each hypothesis is fitted from the other's parameters too."""
    others = (table.votes.rater != link.follower).astype(float)
    links = (*null.links, link)
    fits = [table.fit(at, links) for at in (null.parameters, table.guess(others))]
    found = max(fits, key=lambda fit: fit.log_likelihood)
    again = table.fit(found.parameters, null.links)
    return _Test(link, 2 * (found.log_likelihood - max(null.log_likelihood, again.log_likelihood)), found)


def _suspects(table: PulledItems, null: Fit, pairs: Bools) -> list[Link]:
    """The pairs to test: those of the largest score d log L/dκ at κ = 0 in standard errors, and those who agree on
    the largest share of their items; none where no score is large."""
    weight = (null.posterior[table.votes.item] / null.chance).sum(axis=1)
    gain = np.zeros(table.choices.shape)
    gain[table.votes.item, table.votes.rater] = weight
    # each shared item adds w - 1 to the score where both chose alike, and -1 elsewhere
    judged = (table.choices >= 0).astype(float)
    shared = judged.T @ judged
    alike, total, squares = np.zeros_like(shared), -shared, shared.copy()
    for choice in range(len(table.votes.choices)):
        chose = (table.choices == choice).astype(float)
        alike += chose.T @ chose
        total += (chose * gain).T @ chose
        squares += (chose * (gain**2 - 2 * gain)).T @ chose
    score = total / np.sqrt(squares + 1e-9)
    agreement = alike / np.maximum(1, shared)
    open_ones = pairs.copy()
    for link in null.links:
        open_ones[link.follower, link.leader] = open_ones[link.leader, link.follower] = False
    score = np.where(open_ones, score, -np.inf)
    if score.max(initial=-np.inf) < _SUSPECT:
        return []
    return _first_pairs(score, np.where(open_ones, agreement, -np.inf))


def _first_pairs(*orders: Floats) -> list[Link]:
    """The first pairs by each of these tables [R, R], follower by leader."""
    found: dict[frozenset[int], Link] = {}
    for order in orders:
        for place in np.argsort(-order, axis=None)[: 2 * _TRIED]:
            follower, leader = (int(code) for code in np.unravel_index(place, order.shape))
            if np.isfinite(order[follower, leader]):
                found.setdefault(frozenset((follower, leader)), Link(follower, leader, 0.5))
    return list(found.values())

"""Links between copying raters: votes that agree because they have a common source.

All rater models assume votes independent given the class of the item. Two raters with identical answers then seem
infallible, because agreement is the only evidence. A link (follower, leader) means that with probability κ the follower
repeats the leader's vote on the item, and otherwise votes independently:

    P(choice | leader's, j) = κ 1[choice = leader's] + (1 - κ) θ_follower[j, choice].

Each vote has a probability of being the rater's own, w = (1 - κ)p/(κ 1[choice = leader's] + (1 - κ)p) with p the
model's chance of the choice, and the model is fitted with votes weighted by w (mean-field in the classes and the
copying); κ is the mean of 1 - w over the votes with a leader.

Votes do not identify which of two groups knows the truth: two raters in full and three in partial agreement could be
two experts and three raters with a common prejudice. The likelihood favours copying for raters who repeat each other
vote by vote; known answers can correct it. copy_evidence.py tests whether a link has any other explanation.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tutelage.stats.reliability import Reliability
from tutelage.stats.vote_codes import Bools, Floats, Ints, Votes

Weighted = Callable[[Votes, Ints, Floats], Reliability]
"""A function that fits a rater model to votes with golds [I] and weights [N]."""

_ROUNDS = 2
_SHARE_ROUNDS = 30
_START = 0.8  # initial κ
_NO_TABLE: Ints = np.empty((0, 0), dtype=np.int64)
SHARED = 20  # minimum number of common items of linked raters


@dataclass(frozen=True)
class Link:
    """The `follower` and the `leader` by code, and the `share` κ of the follower's votes that repeat the leader's."""

    follower: int
    leader: int
    share: float = _START

    @property
    def pair(self) -> frozenset[int]:
        """The two raters."""
        return frozenset((self.follower, self.leader))


@dataclass(frozen=True, eq=False)
class Independent:
    """A fit that discounts copied votes: the `reliability`, the `links` with their shares, and the `weight` of each
    vote [N], the probability that it is the rater's own."""

    reliability: Reliability
    links: tuple[Link, ...]
    weight: Floats


def fit_without_copies(votes: Votes, gold: Ints, links: tuple[Link, ...], fit_weighted: Weighted) -> Independent:
    """Fit a rater model with these links, whose shares are initial values."""
    table = votes.table() if links else _NO_TABLE
    pairs = [linked_votes(votes, table, link) for link in links]
    shares = [link.share for link in links]
    weight = np.ones(len(votes))
    for (mine, same), share in zip(pairs, shares, strict=True):
        weight[mine] = np.where(same, 1 - share, 1.0)
    fit = fit_weighted(votes, gold, weight)
    for _ in range(_ROUNDS if links else 0):
        for number, (mine, same) in enumerate(pairs):
            item, choice = votes.item[mine], votes.choice[mine]
            alone = fit.chance(item, votes.rater[mine])[np.arange(len(mine)), choice]
            shares[number], weight[mine] = _share(alone, same, shares[number])
        fit = fit_weighted(votes, gold, weight)
    fitted = (Link(link.follower, link.leader, share) for link, share in zip(links, shares, strict=True))
    return Independent(fit, tuple(fitted), weight)


def linked_votes(votes: Votes, table: Ints, link: Link) -> tuple[Ints, Bools]:
    """The indices of the follower's votes on items that the leader judged, and whether they equal the leader's. `table`
    is `votes.table()`."""
    theirs = table[votes.item, link.leader]
    mine = np.flatnonzero((votes.rater == link.follower) & (theirs >= 0))
    return mine, votes.choice[mine] == theirs[mine]


def _share(alone: Floats, same: Bools, share: float) -> tuple[float, Floats]:
    """Estimate κ by expectation-maximisation from `share`; returns κ and the weights. `alone` is the model's
    probability of each vote."""
    for _ in range(_SHARE_ROUNDS):
        own = (1 - share) * alone
        weight = own / np.maximum(own + share * same, 1e-12)
        share = float(np.clip(1 - weight.mean(), 0.0, 0.99)) if len(weight) else share
    return share, weight


def predict(fit: Independent, votes: Votes, item: Ints, rater: Ints) -> Floats:
    """[n, K]: the probability of each choice by these raters on these items, given the `votes` of the fit; a linked
    rater repeats the leader's vote with the link's share."""
    chance = fit.reliability.chance(item, rater)
    table = votes.table() if fit.links else _NO_TABLE
    for link in fit.links:
        for one, other in ((link.follower, link.leader), (link.leader, link.follower)):
            linked = np.flatnonzero((rater == one) & (table[item, other] >= 0))
            chance[linked] *= 1 - link.share
            chance[linked, table[item[linked], other]] += link.share
    return chance


def likely_links(votes: Votes, most: int) -> Iterator[Link]:
    """The pairs of raters with the most agreement on common items, as links in one direction."""
    from scipy.sparse import csr_matrix  # lazy: the web application starts without scipy

    shape = len(votes.items), len(votes.raters)
    ones = np.ones(len(votes))
    judged = csr_matrix((ones, (votes.item, votes.rater)), shape=shape)
    shared = np.triu((judged.T @ judged).toarray(), 1)
    same = np.zeros_like(shared)
    for k in range(len(votes.choices)):
        chose = csr_matrix((ones * (votes.choice == k), (votes.item, votes.rater)), shape=shape)
        same += np.triu((chose.T @ chose).toarray(), 1)
    rate = np.where(shared >= SHARED, (same + 1) / (shared + 2), 0.0)
    lower = rate - np.sqrt(rate * (1 - rate) / (shared + 2))
    for pair in np.argsort(-lower, axis=None)[:most]:
        leader, follower = np.unravel_index(pair, rate.shape)
        if rate[leader, follower] > 0:
            yield Link(int(follower), int(leader))

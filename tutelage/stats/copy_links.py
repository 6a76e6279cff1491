"""Raters who copy: votes that agree because they come from one source, not because both are right.

All rater models take votes for independent once the class of the item is known. Two raters who give the same answers
whatever is true then look infallible: agreement is all the evidence there is. A link (follower, leader) says that with
probability κ the follower repeats the leader's vote on the item, and else votes alone:

    P(choice | leader's, j) = κ 1[choice = leader's] + (1 - κ) θ_follower[j, choice].

Each vote has a probability of being the rater's own, w = (1 - κ)p/(κ 1[choice = leader's] + (1 - κ)p) with p the
model's chance of the choice, and the model is fitted with votes weighted by w (mean-field in the classes and the
copying); κ is the mean of 1 - w over the votes with a leader.

What votes cannot say is which of two groups knows the truth: two who agree in everything and three who agree in much
could be two experts and three who share a prejudice. The likelihood takes those for copiers who repeat each other vote
by vote; known answers decide where that is wrong. Whether nothing but
a common source could explain a link is tested in copy_evidence.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tutelage.stats.reliability import Reliability
from tutelage.stats.vote_codes import Bools, Floats, Ints, Votes

Weighted = Callable[[Votes, Ints, Floats], Reliability]
"""Fits a rater model to votes with golds [I] and weights [N]."""

_ROUNDS = 2
_SHARE_ROUNDS = 30
_START = 0.8  # κ
_NO_TABLE: Ints = np.empty((0, 0), dtype=np.int64)
SHARED = 20  # items that two raters must have in common before they can be linked


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
    """A fit in which copied votes count less: the `reliability`, the `links` with their shares, and the `weight` of
    each vote [N], the probability that it is the rater's own."""

    reliability: Reliability
    links: tuple[Link, ...]
    weight: Floats


def fit_without_copies(
    votes: Votes, gold: Ints, links: tuple[Link, ...], fit_weighted: Weighted
) -> Independent:
    """The fit of a rater model with these links; their shares are only where the estimation starts."""
    table = votes.table() if links else _NO_TABLE
    pairs = [linked_votes(votes, table, link) for link in links]
    shares = [link.share for link in links]
    weight = np.ones(len(votes))
    for (mine, same), share in zip(pairs, shares, strict=True):
        weight[mine] = np.where(same, 1 - share, 1.0)
    fit = fit_weighted(votes, gold, weight)
    for _ in range(_ROUNDS if links else 0):
        for number, (link, (mine, same)) in enumerate(zip(links, pairs, strict=True)):
            item, choice = votes.item[mine], votes.choice[mine]
            alone = (fit.posterior[item] * fit.confusion[link.follower][:, choice].T).sum(axis=1)
            shares[number], weight[mine] = _share(alone, same, shares[number])
        fit = fit_weighted(votes, gold, weight)
    fitted = (Link(link.follower, link.leader, share) for link, share in zip(links, shares, strict=True))
    return Independent(fit, tuple(fitted), weight)


def linked_votes(votes: Votes, table: Ints, link: Link) -> tuple[Ints, Bools]:
    """The numbers of the follower's votes on items that the leader judged, and whether they are the same as the
    leader's. `table` is that of the votes."""
    theirs = table[votes.item, link.leader]
    mine = np.flatnonzero((votes.rater == link.follower) & (theirs >= 0))
    return mine, votes.choice[mine] == theirs[mine]


def _share(alone: Floats, same: Bools, share: float) -> tuple[float, Floats]:
    """κ by expectation-maximisation from `share`, and the weights with it; `alone` is the model's chance of each
    vote."""
    for _ in range(_SHARE_ROUNDS):
        own = (1 - share) * alone
        weight = own / np.maximum(own + share * same, 1e-12)
        share = float(np.clip(1 - weight.mean(), 0.0, 0.99)) if len(weight) else share
    return share, weight


def predict(fit: Independent, votes: Votes, item: Ints, rater: Ints) -> Floats:
    """[n, K]: the probability of each choice by these raters on these items, given the `votes` of the fit; a rater with
    a link repeats the other's vote with the link's share."""
    posterior, confusion = fit.reliability.posterior, fit.reliability.confusion
    chance: Floats = np.einsum("nj,njk->nk", posterior[item], confusion[rater])
    table = votes.table() if fit.links else _NO_TABLE
    for link in fit.links:
        for one, other in ((link.follower, link.leader), (link.leader, link.follower)):
            linked = np.flatnonzero((rater == one) & (table[item, other] >= 0))
            chance[linked] *= 1 - link.share
            chance[linked, table[item[linked], other]] += link.share
    return chance


def likely_links(votes: Votes, most: int) -> Iterator[Link]:
    """The pairs of raters who agree most on the items that both have judged, as links from the one to the other."""
    from scipy.sparse import csr_matrix  # imported here, because the web application starts without it

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

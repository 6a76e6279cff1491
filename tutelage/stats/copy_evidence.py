"""Likelihood-ratio test for copying between raters, which models all other reasons for agreement.

The model of honest raters has easy and misleading items. An item has a latent state (j, l, s): its class j and, with
some probability, a pull of strength s towards the choice l:

    P(k | r, j, l, s) = (1 - s) θ_r[j, k] + s 1[k = l],    s in {0, .3, .7},

independently for all raters; l = j is an easy item, l ≠ j a lure. The confusion matrices θ_r [K, K], the prevalence of
the classes and the probabilities of the pulls are fitted by maximum likelihood, without the priors and ceilings of the
other rater models, which would leave the agreement of perfect raters unexplained. With a link the follower r repeats
the leader's vote x with probability κ:

    P(k | r, x, state) = κ 1[k = x] + (1 - κ) P(k | r, state).

Two raters agree on an item because both are right, because both are biased or confused, because the item is easy, or
because it lures everybody to the same wrong answer. The null hypothesis has no other cause of agreement (the model
above); under the alternative one of them repeats the other's votes with probability κ.

With Λ = 2 (log L₁ - log L₀) and κ on the boundary of its range under the null hypothesis, P(Λ > λ) = P(χ²₁ > λ)/2 for
many items (Chernoff 1954). A pair is linked if this is less than `level` over the number of ordered pairs (Bonferroni),
so that a study of honest raters has a link with probability of about `level`. Raters whose votes can all be explained
as right are never linked, however seldom others agree with them: their common votes must contradict their accuracies.
So two of five raters who always agree are not linked if the other three may have been misled.

With few raters, votes may not identify which of two pairs copies. A pair is not linked if a disjoint pair explains the
votes nearly as well, within a likelihood ratio of 1/`level`, and both together explain no more.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tutelage.stats.copy_links import SHARED, Link, linked_votes
from tutelage.stats.vote_codes import Bools, Floats, Ints, Votes

_STRENGTHS = (0.3, 0.7)
_SPECK = 0.01  # pseudo-votes per cell of a matrix, to avoid zero probabilities
_ROUNDS, _SETTLED = 300, 3e-3  # convergence: change of the log-likelihood per round, in nats
_ITEMS = 4_000  # larger tables are subsampled to this number of items


@dataclass(frozen=True, eq=False)
class PulledParameters:
    """Confusion matrices θ [R, K, K], the prevalence [K], and the probabilities of no pull and of each strength towards
    the class and away from it [1 + 2 H]."""

    confusion: Floats
    prevalence: Floats
    pulls: Floats


@dataclass(frozen=True, eq=False)
class PulledFit:
    """Fitted parameters and links with their shares, with the posterior of the states [I, S], the probability of each
    vote by state [N, S] and log L."""

    parameters: PulledParameters
    links: tuple[Link, ...]
    posterior: Floats
    chance: Floats
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class States:
    """The states of an item with K classes: its class `truth` [S], the choice `lure` [S] that it pulls to, the
    `strength` [S] of the pull, and the index `pull` [S] of the pull's probability in the parameters."""

    truth: Ints
    lure: Ints
    strength: Floats
    pull: Ints

    @classmethod
    def of(cls, classes: int) -> "States":
        rows = [(j, j, 0.0, 0) for j in range(classes)]
        rows += [
            (j, lure, strength, 1 + 2 * number + (lure != j))
            for number, strength in enumerate(_STRENGTHS)
            for j in range(classes)
            for lure in range(classes)
        ]
        truth, lure, strength, pull = (np.array(column) for column in zip(*rows, strict=True))
        return cls(truth, lure, strength, pull)

    def log_prior(self, at: PulledParameters) -> Floats:
        """log P(state) [S]; lures are uniform over the other choices."""
        away = (self.lure != self.truth) * (len(at.prevalence) - 1)
        chance = at.prevalence[self.truth] * at.pulls[self.pull] / np.maximum(away, 1)
        return np.asarray(np.log(np.maximum(chance, 1e-300)))


@dataclass(frozen=True, eq=False)
class PulledItems:
    """Votes sorted by item, and the gold [I]."""

    votes: Votes
    gold: Ints
    states: States

    @classmethod
    def of(cls, votes: Votes, gold: Ints) -> "PulledItems":
        """The items with two or more votes, recoded; a random subsample if there are many."""
        together = np.flatnonzero(votes.per_item() > 1)
        items = np.random.default_rng(0).permutation(together)[:_ITEMS]
        code = np.full(len(votes.items), -1)
        code[items] = np.arange(len(items))
        order = np.argsort(code[votes.item], kind="stable")
        order = order[code[votes.item[order]] >= 0]
        names = tuple(votes.items[number] for number in items)
        part = replace(
            votes, item=code[votes.item[order]], rater=votes.rater[order], choice=votes.choice[order], items=names
        )
        return cls(part, gold[items], States.of(len(votes.choices)))

    @cached_property
    def choices(self) -> Ints:
        """The choice of each rater on each item [I, R]; -1 without a vote."""
        return self.votes.table()

    @cached_property
    def shared(self) -> Floats:
        """The number of items that two raters both judged [R, R]."""
        judged = (self.choices >= 0).astype(float)
        return judged.T @ judged

    @cached_property
    def _first(self) -> Ints:
        """The index of the first vote of each item."""
        return np.searchsorted(self.votes.item, np.arange(len(self.votes.items)))

    def guess(self, weight: Floats) -> PulledParameters:
        """Initial parameters: the class of an item is the majority of its votes, weighted by `weight` [N]."""
        votes, classes = self.votes, len(self.votes.choices)
        counts = np.zeros((len(votes.items), classes))
        np.add.at(counts, (votes.item, votes.choice), weight)
        share = (counts + 0.1) / (counts + 0.1).sum(axis=1, keepdims=True)
        confusion = np.ones((len(votes.raters), classes, classes))
        for j in range(classes):
            np.add.at(confusion[:, j], (votes.rater, votes.choice), share[votes.item, j])
        pulls = np.array([0.6] + [0.4 / (2 * len(_STRENGTHS))] * (2 * len(_STRENGTHS)))
        return PulledParameters(confusion / confusion.sum(axis=2, keepdims=True), np.full(classes, 1 / classes), pulls)

    def fit(self, at: PulledParameters, links: tuple[Link, ...]) -> PulledFit:
        """Maximum likelihood by expectation-maximisation, from these parameters and links."""
        fitted = self.expect(at, links)
        for _ in range(_ROUNDS):
            before, fitted = fitted.log_likelihood, self.expect(*self.maximise(fitted))
            if fitted.log_likelihood - before < _SETTLED:
                break
        return fitted

    def expect(self, at: PulledParameters, links: tuple[Link, ...]) -> PulledFit:
        """The posterior of the states and the likelihood, given parameters and links."""
        chance = self._alone(at)
        for link in links:
            mine, same = linked_votes(self.votes, self.choices, link)
            chance[mine] = link.share * same[:, None] + (1 - link.share) * chance[mine]
        joint = np.add.reduceat(np.log(chance), self._first, axis=0) + self.states.log_prior(at)
        joint[(self.gold[:, None] >= 0) & (self.gold[:, None] != self.states.truth)] = -np.inf
        top = joint.max(axis=1, keepdims=True)
        mass = np.exp(joint - top)
        total = mass.sum(axis=1, keepdims=True)
        return PulledFit(at, links, mass / total, chance, float((np.log(total) + top).sum()))

    def _alone(self, at: PulledParameters) -> Floats:
        """P(choice | state) of each vote without links [N, S]."""
        votes, states = self.votes, self.states
        own = at.confusion[votes.rater, :, votes.choice][:, states.truth] * (1 - states.strength)
        return np.asarray(own + states.strength * (votes.choice[:, None] == states.lure))

    def maximise(self, fitted: PulledFit) -> tuple[PulledParameters, tuple[Link, ...]]:
        """Optimal parameters and shares for this posterior, in closed form."""
        votes, states, at = self.votes, self.states, fitted.parameters
        classes = len(at.prevalence)
        by_chance = fitted.posterior[votes.item] / fitted.chance
        links = []
        for link in reversed(fitted.links):
            mine, same = linked_votes(self.votes, self.choices, link)
            copied = link.share * same * by_chance[mine].sum(axis=1)
            by_chance[mine] *= 1 - link.share
            links.append(replace(link, share=float(copied.mean())))
        own = by_chance * (1 - states.strength) @ np.eye(classes)[states.truth]
        own *= at.confusion[votes.rater, :, votes.choice]
        confusion = np.full(at.confusion.shape, _SPECK)
        cell = votes.rater * classes + votes.choice
        for j in range(classes):
            counts = np.bincount(cell, weights=own[:, j], minlength=len(votes.raters) * classes)
            confusion[:, j] += counts.reshape(-1, classes)
        total = fitted.posterior.sum(axis=0)
        prevalence = np.bincount(states.truth, weights=total, minlength=classes)
        pulls = np.bincount(states.pull, weights=total, minlength=len(at.pulls))
        return (
            PulledParameters(
                confusion / confusion.sum(axis=2, keepdims=True), prevalence / prevalence.sum(), pulls / pulls.sum()
            ),
            tuple(reversed(links)),
        )


_TRIED = 3  # pairs to test by each of two criteria
_SUSPECT = 2.5  # minimum score in standard errors; below it no pair is tested


def copying_links(votes: Votes, gold: Ints, *, level: float = 0.01) -> tuple[Link, ...]:
    """Links between copying raters, most significant first, each tested given those before it; at most half as many as
    raters. `gold` [I] holds known classes or -1."""
    table = PulledItems.of(votes, gold)
    pairs = (table.shared >= SHARED) & ~np.eye(len(votes.raters), dtype=bool)
    if not pairs.any():
        return ()
    from scipy.special import ndtri  # lazy: the web application starts without scipy

    needed = float(ndtri(level / int(pairs.sum()))) ** 2  # P(χ²₁ > λ)/2 is the level over the number of pairs
    margin = -2 * math.log(level)
    fitted = table.fit(table.guess(np.ones(len(table.votes))), ())
    while len(fitted.links) < len(votes.raters) // 2:
        null = fitted
        tests = sorted(
            (_test(table, null, link) for link in _suspects(table, null, pairs)), key=lambda test: -test.ratio
        )
        if not tests or tests[0].ratio <= needed:
            break
        best, *others = tests
        near = [test for test in others if test.ratio > max(needed, best.ratio - margin)]
        rivals = [test for test in near if not test.link.pair & best.link.pair]
        if any(_test(table, best.fit, rival.link).ratio <= needed for rival in rivals):
            break
        fitted = best.fit
    return fitted.links


@dataclass(frozen=True, eq=False)
class _Test:
    """A tested link with its statistic Λ (`ratio`) and the fit that includes it."""

    link: Link
    ratio: float
    fit: PulledFit


def _test(table: PulledItems, null: PulledFit, link: Link) -> _Test:
    """Test a link. The likelihood has several maxima, so each hypothesis is also fitted from the other's parameters."""
    others = (table.votes.rater != link.follower).astype(float)
    links = (*null.links, link)
    fits = [table.fit(at, links) for at in (null.parameters, table.guess(others))]
    best = max(fits, key=lambda fit: fit.log_likelihood)
    again = table.fit(best.parameters, null.links)
    return _Test(link, 2 * (best.log_likelihood - max(null.log_likelihood, again.log_likelihood)), best)


def _suspects(table: PulledItems, null: PulledFit, pairs: Bools) -> list[Link]:
    """Pairs to test: those with the largest score d log L/dκ at κ = 0 in standard errors, and those that agree on the
    largest share of their items; none if no score is large."""
    weight = (null.posterior[table.votes.item] / null.chance).sum(axis=1)
    gain = np.zeros(table.choices.shape)
    gain[table.votes.item, table.votes.rater] = weight
    # each shared item adds w - 1 to the score if both made the same choice, otherwise -1
    shared = table.shared
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
    """The top pairs by each of these tables [R, R], follower by leader."""
    links: dict[frozenset[int], Link] = {}
    for order in orders:
        for place in np.argsort(-order, axis=None)[: 2 * _TRIED]:
            follower, leader = (int(code) for code in np.unravel_index(place, order.shape))
            if np.isfinite(order[follower, leader]):
                links.setdefault(frozenset((follower, leader)), Link(follower, leader, 0.5))
    return list(links.values())

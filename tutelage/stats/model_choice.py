"""Selection of a rater model for a table of votes, by its predictions of votes and by what its classes are.

Each candidate is fitted to a part of the votes and predicts the others: with the posterior q of the item's classes, or
of finer states, and the rater's choices θ from the fitted part,

    log P(choice = k) = log Σ_j q_item(j) θ_rater[j, k].

The simplest candidate with a mean within two standard errors of the best is selected (one in Breiman et al. 1984): a
richer model with equal predictions may label items worse, and the best of five is too often ahead of the true model by
one standard error.

A likelier model may have worse labels even with unlimited votes, if its classes are free clusters of items
(docs/explanation/ties.md): where differences are graded, `hierarchical` and `matrix` describe votes best by a class
"equal" of all items with small differences. So they are compared for ordered choices, but not selected, and `ordinal`
comes before `biased`, which takes wide thresholds for a preferred class (`FOR_ORDERED`).

The majority is not a candidate. It is `coin` with a spread of abilities τ = 0, and `coin` estimates τ; with few votes
per rater, held-out votes cannot distinguish the two although the abilities decide ties.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from tutelage.stats.calibration import Calibration, calibration, label_hits
from tutelage.stats.copy_evidence import copying_links
from tutelage.stats.copy_links import Link, fit_without_copies, likely_links, predict
from tutelage.stats.hierarchical import Effects, Hierarchical, fit_hierarchical
from tutelage.stats.ordinal_average import Populations, estimate_populations, fit_ordinal
from tutelage.stats.reliability import ConfusionMatrices, Reliability, describe, fit, gold_codes
from tutelage.stats.vote_codes import Bools, Floats, Ints, Votes

_PARTS = 5
_ENOUGH = 4_000  # number of held-out votes for which one part is precise enough
_CLEARLY = 2.0  # standard errors by which a richer model or a link must improve
_QUICK = 5e-3  # tolerance of fits for comparison
_MANY_VOTES = 1_000
_FEW_RATERS = 30  # with more raters, no pair can dominate the estimated truth
_WORTH = 0.05  # nats per vote
_LINKS_TRIED = 3
_LINK_PARTS = 2


class RaterModelCandidate(Protocol):
    """A rater model that fits itself to votes with golds [I] and weights [N], until no posterior changes by more than
    `tolerance`."""

    def __call__(self, votes: Votes, gold: Ints, weight: Floats, tolerance: float) -> Reliability: ...


def _effects(effects: Effects, votes: Votes, gold: Ints, weight: Floats, tolerance: float) -> Reliability:
    model = Hierarchical(votes, gold, weight, effects)
    return describe(model, fit_hierarchical(model, tolerance=tolerance))


def _matrices(votes: Votes, gold: Ints, weight: Floats, tolerance: float) -> Reliability:
    """The model of Dawid and Skene: one matrix per rater under a fixed prior."""
    model = ConfusionMatrices(votes, gold, weight)
    return describe(model, fit(model, tolerance=tolerance))


def _ordinal(known: Populations | None, votes: Votes, gold: Ints, weight: Floats, tolerance: float) -> Reliability:
    """The ordinal model, for choices in their order; `known` are shared parameters that need no estimation."""
    return fit_ordinal(votes, gold, weight, known)


CANDIDATES: Mapping[str, RaterModelCandidate] = {
    "majority": partial(_effects, Effects()),
    "coin": partial(_effects, Effects(ability=True)),
    "biased": partial(_effects, Effects(ability=True, bias=True)),
    "ordinal": partial(_ordinal, None),
    "hierarchical": partial(_effects, Effects(ability=True, bias=True, pattern=True)),
    "matrix": _matrices,
}
"""Rater models by name, from the simplest to the richest."""

FOR_ORDERED = ("coin", "ordinal", "biased")
"""The candidates that are selected for three and more ordered choices, from the first to be preferred to the last: the
classes of the others are free clusters of items."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The selected model: its `name`; for each candidate but the majority the mean log-likelihood of a held-out vote in
    nats, `predicted`, its difference to the best, `deficit`, and the standard error of that difference, `error`; the
    `fits` of all candidates to all votes; the candidates that were `selectable`; the number of held-out `votes`; the
    `calibration` of the selected model on single votes; the `links` between raters, whose common votes count once; and
    the `evident` links, which only a common source explains (`copying_links`)."""

    name: str
    predicted: Mapping[str, float]
    deficit: Mapping[str, float]
    error: Mapping[str, float]
    fits: Mapping[str, Reliability]
    selectable: tuple[str, ...]
    votes: int
    calibration: Calibration
    links: tuple[Link, ...]
    evident: tuple[Link, ...] = ()

    def differing(self, name: str) -> int:
        """The number of items whose label by the selected model is not a most probable class by this candidate."""
        label = self.fits[self.name].posterior.argmax(axis=1)
        return int((label_hits(self.fits[name].posterior, label) == 0).sum())


def choose_model(votes: Votes, gold: Ints | None = None, *, ordered: bool = False, seed: int = 0) -> Choice:
    """Select the simplest candidate that predicts held-out votes about as well as the best. The ordinal model is one
    for two classes, and for more if the choices are `ordered`. With few raters, also selects links between raters that
    seem to copy, if they improve the prediction by more than two standard errors."""
    trial = _Trial(votes, gold_codes(votes, gold), _held_out_parts(len(votes), seed), ordered)
    choice = trial.compare(())
    if len(votes.raters) > _FEW_RATERS:
        return choice
    copying = {link.pair for link in copying_links(votes, trial.gold)}
    links = replace(trial, parts=trial.parts[:_LINK_PARTS]).links(choice.name, copying)
    if not links:
        return choice
    return replace(trial.compare(links), evident=tuple(link for link in links if link.pair in copying))


def fit_model(
    name: str,
    votes: Votes,
    gold: Ints | None = None,
    links: tuple[Link, ...] = (),
    candidates: Mapping[str, RaterModelCandidate] = CANDIDATES,
) -> Reliability:
    """Fit the candidate of that name; for `ordinal` the choices of the votes are in their order. For `majority`, which
    weights all raters equally, the statistics of raters are those of `coin`. Two classes without golds are labelled so
    that most raters are better than chance."""
    codes = gold_codes(votes, gold)
    fitted = fit_without_copies(votes, codes, links, partial(candidates[name], tolerance=1e-3))
    reliability = fitted.reliability
    if name == "majority":
        described = candidates["coin"](votes, codes, fitted.weight, 1e-3)
        reliability = replace(described, posterior=reliability.posterior)
    return reliability if (codes >= 0).any() else _named_by_most(reliability)


@dataclass(frozen=True, eq=False)
class _Trial:
    """Cross-validation of the candidates."""

    votes: Votes
    gold: Ints
    parts: list[Bools]
    ordered: bool

    @cached_property
    def _candidates(self) -> Mapping[str, RaterModelCandidate]:
        """The candidates by name. What all raters share in the ordinal model, some five numbers, is estimated once from
        many votes: knowing them improves the likelihood of a held-out vote by 5/N."""
        if not self.ordered and len(self.votes.choices) > 2:
            return {name: each for name, each in CANDIDATES.items() if name != "ordinal"}
        if len(self.votes) < _MANY_VOTES:
            return CANDIDATES
        known = estimate_populations(self.votes, self.gold, np.ones(len(self.votes)))
        return {**CANDIDATES, "ordinal": partial(_ordinal, known)}

    def compare(self, links: tuple[Link, ...]) -> Choice:
        compared = [name for name in self._candidates if name != "majority"]
        chance = {name: self._predict(name, links) for name in compared}
        item, choice = self._held_out()
        value = {name: self._log(p) for name, p in chance.items()}
        predicted = {name: float(log.mean()) for name, log in value.items()}
        selectable = FOR_ORDERED if self.ordered and len(self.votes.choices) > 2 else tuple(compared)
        best = value[max(predicted, key=lambda name: predicted[name])]
        deficit = {name: float((best - log).mean()) for name, log in value.items()}
        error = {name: _clustered_error(best - log, item) for name, log in value.items()}
        name = self._simplest({name: value[name] for name in selectable}, item)
        came_true = (choice[:, None] == np.arange(len(self.votes.choices))).astype(float)
        diagram = calibration(chance[name].ravel(), came_true.ravel())
        fits = {each: fit_model(each, self.votes, self.gold, links, self._candidates) for each in self._candidates}
        return Choice(name, predicted, deficit, error, fits, selectable, len(item), diagram, links)

    def _simplest(self, value: Mapping[str, Floats], item: Ints) -> str:
        """The first name whose log-likelihoods of held-out votes are on average within two standard errors of the
        best."""
        best = max(value.values(), key=lambda log: float(log.mean()))
        return next(
            name for name, log in value.items() if (best - log).mean() <= _CLEARLY * _clustered_error(best - log, item)
        )

    def links(self, name: str, suspects: set[frozenset[int]]) -> tuple[Link, ...]:
        """Links between raters that seem to copy, among `suspects` and the pairs with most agreement, added greedily
        until none improves the prediction clearly and by `_WORTH` per vote of the pair: nearly perfect raters predict
        each other slightly better than any model."""
        links: tuple[Link, ...] = ()
        item = self._held_out()[0]
        before = self._log(self._predict(name, links))
        while len(links) < len(self.votes.raters) // 2:
            better = [
                (float(gain.mean()), (*links, link), after)
                for link in self._untried(links, suspects)
                for after in [self._log(self._predict(name, (*links, link)))]
                for gain in [after - before]
                if gain.mean() > _CLEARLY * _clustered_error(gain, item) and self._worth(link, gain) > _WORTH
            ]
            if not better:
                break
            _, links, before = max(better, key=lambda candidate: candidate[0])
        fitted = fit_without_copies(self.votes, self.gold, links, partial(self._candidates[name], tolerance=_QUICK))
        return fitted.links

    def _worth(self, link: Link, gain: Floats) -> float:
        """The total gain, per vote of the two raters."""
        theirs = np.isin(self.votes.rater[self._numbers()], list(link.pair))
        return float(gain.sum()) / max(1, int(theirs.sum()))

    def _untried(self, links: tuple[Link, ...], suspects: set[frozenset[int]]) -> list[Link]:
        linked = {link.pair for link in links}
        likely = {link.pair: link for link in likely_links(self.votes, _LINKS_TRIED + len(links))}
        likely |= {pair: Link(max(pair), min(pair)) for pair in suspects - likely.keys()}
        return [link for pair, link in likely.items() if pair not in linked]

    def _held_out(self) -> tuple[Ints, Ints]:
        """The item and the choice of each held-out vote."""
        numbers = self._numbers()
        return self.votes.item[numbers], self.votes.choice[numbers]

    def _numbers(self) -> Ints:
        return np.concatenate([np.flatnonzero(part) for part in self.parts])

    def _predict(self, name: str, links: tuple[Link, ...]) -> Floats:
        """[held out, K]: the probability of each choice."""
        chances = []
        for part in self.parts:
            others = self.votes.keep(~part)
            fitted = fit_without_copies(others, self.gold, links, partial(self._candidates[name], tolerance=_QUICK))
            chances.append(predict(fitted, others, self.votes.item[part], self.votes.rater[part]))
        return np.clip(np.concatenate(chances), 1e-12, 1.0)

    def _log(self, chance: Floats) -> Floats:
        return np.log(chance[np.arange(len(chance)), self._held_out()[1]])


def _named_by_most(reliability: Reliability) -> Reliability:
    """Swap the labels of two classes if more raters are clearly worse than chance than clearly better: two perfect
    liars and three mediocre raters are as likely as the reverse, since the prior depends on the mean only."""
    if reliability.posterior.shape[1] != 2 or (reliability.high < 0.5).sum() <= (reliability.low > 0.5).sum():
        return reliability
    return replace(
        reliability,
        posterior=reliability.posterior[:, ::-1],
        prevalence=reliability.prevalence[::-1],
        confusion=reliability.confusion[:, ::-1],
        accuracy=1 - reliability.accuracy,
        low=1 - reliability.high,
        high=1 - reliability.low,
    )


def _held_out_parts(votes: int, seed: int) -> list[Bools]:
    """Disjoint random fifths of the votes, as many as needed to hold out enough votes."""
    part = np.random.default_rng(seed).permutation(votes) % _PARTS
    size = max(1, votes // _PARTS)
    return [part == n for n in range(min(_PARTS, -(-_ENOUGH // size)))]


def _clustered_error(difference: Floats, item: Ints) -> float:
    """The standard error of the mean difference, clustered by item."""
    total = np.bincount(item, weights=difference - difference.mean())
    return float(np.sqrt((total**2).sum()) / len(difference))

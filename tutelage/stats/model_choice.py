"""The choice of a rater model for a table of votes, by the likelihood of votes that the model has not seen.

Each candidate is fitted to a part of the votes and predicts the others: with q the posterior of the item and θ the
confusion matrix of the rater, both from the part,

    log P(choice = k) = log Σ_j q_item(j) θ_rater[j, k].

The simplest candidate whose mean lies within two standard errors of the best one's is chosen (Breiman et al. 1984 take
one): a richer model that predicts votes no better may still label items worse, and by chance the best of four is too
often one standard error ahead of the right one.

The majority is no candidate here. It is `coin` with a spread of abilities τ = 0, and `coin` estimates τ; where raters
have few votes each, held-out votes cannot tell the two apart although the ability of raters decides draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from tutelage.stats.calibration import Calibration, calibration
from tutelage.stats.copy_evidence import copying_links
from tutelage.stats.copy_links import Link, fit_without_copies, likely_links, predict
from tutelage.stats.hierarchical import Effects, Hierarchical, fit_hierarchical
from tutelage.stats.reliability import ConfusionMatrices, Reliability, describe, fit, gold_codes
from tutelage.stats.vote_codes import Bools, Floats, Ints, Votes

_PARTS = 5
_ENOUGH = 4_000  # held-out votes, from which on one part is precise enough
_CLEARLY = 2.0  # standard errors by which a richer model or a link must predict held-out votes better
_QUICK = 5e-3  # tolerance of the fits that are only compared
_FEW_RATERS = 30  # among more, no two decide what counts as true
_WORTH = 0.05  # nats
_LINKS_TRIED = 3
_LINK_PARTS = 2


class RaterModelCandidate(Protocol):
    """A rater model: fits itself to votes with golds [I] and weights [N], until no posterior moves by more than
    `tolerance`."""

    def __call__(self, votes: Votes, gold: Ints, weight: Floats, tolerance: float) -> Reliability: ...


@dataclass(frozen=True)
class WithEffects:
    """The hierarchical model with these effects."""

    effects: Effects

    def __call__(self, votes: Votes, gold: Ints, weight: Floats, tolerance: float) -> Reliability:
        model = Hierarchical(votes, gold, weight, self.effects)
        return describe(model, fit_hierarchical(model, tolerance=tolerance))


@dataclass(frozen=True)
class OwnMatrices:
    """The model of Dawid and Skene: matrices that share nothing but a fixed prior."""

    prior: tuple[float, float] = (4.0, 2.0)

    def __call__(self, votes: Votes, gold: Ints, weight: Floats, tolerance: float) -> Reliability:
        classes = np.arange(len(votes.choices))
        model = ConfusionMatrices(votes, gold, weight, self.prior, classes)
        return describe(model, fit(model, tolerance=tolerance))


CANDIDATES: Mapping[str, RaterModelCandidate] = {
    "majority": WithEffects(Effects()),
    "coin": WithEffects(Effects(ability=True)),
    "biased": WithEffects(Effects(ability=True, bias=True)),
    "hierarchical": WithEffects(Effects(ability=True, bias=True, pattern=True)),
    "matrix": OwnMatrices(),
}
"""The rater models by name, from the simplest to the richest."""

COMPARED = ("coin", "biased", "hierarchical", "matrix")
"""Those among which `choose_model` chooses."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The model that was chosen: its `name`; for each of `COMPARED` the mean log-likelihood of a held-out vote in nats,
    `predicted`, and how far it lies below the best one's, `deficit`, with the standard error of that, `error`; the
    number of `votes` held out; how often the chosen model's predictions of single votes came true, `calibration`; the
    `links` between raters whose votes in common count as one; and those of them that are `evident`, since nothing but a
    common source explains their agreement (`copying_links`)."""

    name: str
    predicted: Mapping[str, float]
    deficit: Mapping[str, float]
    error: Mapping[str, float]
    votes: int
    calibration: Calibration
    links: tuple[Link, ...]
    evident: tuple[Link, ...] = ()


def choose_model(votes: Votes, gold: Ints | None = None, *, seed: int = 0) -> Choice:
    """The candidate that predicts votes best which it has not seen, or a simpler one that does it as well; among few
    raters with links between those who seem to have one source, where links predict votes better by more than two
    standard errors."""
    trial = _Trial(votes, gold_codes(votes, gold), _held_out_parts(len(votes), seed))
    choice = trial.compare(())
    if len(votes.raters) > _FEW_RATERS:
        return choice
    copying = {link.pair for link in copying_links(votes, trial.gold)}
    links = replace(trial, parts=trial.parts[:_LINK_PARTS]).links(choice.name, copying)
    if not links:
        return choice
    return replace(trial.compare(links), evident=tuple(link for link in links if link.pair in copying))


def fit_model(name: str, votes: Votes, gold: Ints | None = None, links: tuple[Link, ...] = ()) -> Reliability:
    """The fit of the candidate of that name. With `majority`, where all raters count alike, what is said about the
    raters is the fit of `coin`. Two classes without golds are named so that most raters are better than chance."""
    codes = gold_codes(votes, gold)
    fitted = fit_without_copies(votes, codes, links, partial(CANDIDATES[name], tolerance=1e-3))
    reliability = fitted.reliability
    if name == "majority":
        described = CANDIDATES["coin"](votes, codes, fitted.weight, 1e-3)
        reliability = replace(described, posterior=reliability.posterior)
    return reliability if (codes >= 0).any() else _named_by_most(reliability)


@dataclass(frozen=True, eq=False)
class _Trial:
    """The candidates against votes that they have not seen, part by part."""

    votes: Votes
    gold: Ints
    parts: list[Bools]

    def compare(self, links: tuple[Link, ...]) -> Choice:
        """The candidates with these links."""
        chance = {name: self._predict(name, links) for name in COMPARED}
        item, choice = self._held_out()
        value = {name: self._log(p) for name, p in chance.items()}
        predicted = {name: float(log.mean()) for name, log in value.items()}
        best = value[max(predicted, key=lambda name: predicted[name])]
        deficit = {name: float((best - log).mean()) for name, log in value.items()}
        error = {name: _clustered_error(best - log, item) for name, log in value.items()}
        name = next(name for name in COMPARED if deficit[name] <= _CLEARLY * error[name])
        came_true = (choice[:, None] == np.arange(len(self.votes.choices))).astype(float)
        diagram = calibration(chance[name].ravel(), came_true.ravel())
        return Choice(name, predicted, deficit, error, len(item), diagram, links)

    def links(self, name: str, suspects: set[frozenset[int]]) -> tuple[Link, ...]:
        """The links between raters who seem to copy, of these `suspects` and those who agree most, one after the other,
        until none predicts votes clearly better, and by `_WORTH` for each vote of its two raters: raters who are nearly
        always right are foretold a little better by each other than by any model."""
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
        fitted = fit_without_copies(self.votes, self.gold, links, partial(CANDIDATES[name], tolerance=_QUICK))
        return fitted.links

    def _worth(self, link: Link, gain: Floats) -> float:
        """The gain of all votes, for each vote of the two raters."""
        theirs = np.isin(self.votes.rater[self._numbers()], list(link.pair))
        return float(gain.sum()) / max(1, int(theirs.sum()))

    def _untried(self, links: tuple[Link, ...], suspects: set[frozenset[int]]) -> list[Link]:
        linked = {link.pair for link in links}
        likely = {link.pair: link for link in likely_links(self.votes, _LINKS_TRIED + len(links))}
        likely |= {pair: Link(max(pair), min(pair)) for pair in suspects - likely.keys()}
        return [link for pair, link in likely.items() if pair not in linked]

    def _held_out(self) -> tuple[Ints, Ints]:
        """The item and the choice of each vote that is held out."""
        numbers = self._numbers()
        return self.votes.item[numbers], self.votes.choice[numbers]

    def _numbers(self) -> Ints:
        return np.concatenate([np.flatnonzero(part) for part in self.parts])

    def _predict(self, name: str, links: tuple[Link, ...]) -> Floats:
        """[held out, K]: the probability of each choice."""
        chances = []
        for part in self.parts:
            others = self.votes.keep(~part)
            fitted = fit_without_copies(others, self.gold, links, partial(CANDIDATES[name], tolerance=_QUICK))
            chances.append(predict(fitted, others, self.votes.item[part], self.votes.rater[part]))
        return np.clip(np.concatenate(chances), 1e-12, 1.0)

    def _log(self, chance: Floats) -> Floats:
        return np.log(chance[np.arange(len(chance)), self._held_out()[1]])


def _named_by_most(reliability: Reliability) -> Reliability:
    """The same with the names of two classes exchanged, if more raters are clearly worse than chance than clearly
    better: two perfect liars and three mediocre raters are as likely as the reverse, and the prior sees the mean."""
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
    """Disjoint random fifths of the votes, as many as it takes to hold out enough of them."""
    part = np.random.default_rng(seed).permutation(votes) % _PARTS
    size = max(1, votes // _PARTS)
    return [part == n for n in range(min(_PARTS, -(-_ENOUGH // size)))]


def _clustered_error(difference: Floats, item: Ints) -> float:
    """The standard error of the mean difference, over items."""
    total = np.bincount(item, weights=difference - difference.mean())
    return float(np.sqrt((total**2).sum()) / len(difference))

"""The average of the ordinal rater models of several shapes of differences.

The shape is hardly identified by the votes of a few raters, but it decides how many small differences are ties. The
models of all shapes are averaged with pseudo-BMA+ weights (Yao, Vehtari, Simpson and Gelman 2018): the softmax of the
log probabilities of items given all other items, averaged over a Bayesian bootstrap of the items. Votes are predicted
by the mixture, whose states are those of all shapes.

The labels are those of the mixture, unless they may be worse than simpler ones. If shape s is true, labels L have the
accuracy E_s(L) = mean_i q_s,i(L_i) and the gain G_s(L) = E_s(L) - max E_s(labels of the majority and of the one-coin
model). The shapes may differ in the share of ties by a third of the items, at equal likelihoods, so the weights w are
not trusted beyond a factor. If the mixture's labels lose on the worst quarter of the weights, those labels are taken
that have the best sum of the mean gain and the gain on its worst quarter,

    max_L Σ_s w_s G_s(L) + min { Σ_s u_s G_s(L): 0 ≤ u ≤ 4 w, Σ u = 1 },

which is twice the least mean gain under weights v = (w + u)/2, from .5 to 2.5 times the w: Γ-minimax over a
density-bounded class (Lavine 1991); the minimum is a conditional value at risk (Rockafellar and Uryasev 2000). A shape
is protected in proportion to its weight. Labels and posterior are those of the mixture with the least favourable v.
Fictitious play finds them (Brown 1951): u is the average of those that were worst for the labels so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tutelage.stats.ordinal import (
    SHAPES,
    SHAPES_OF_THREE,
    SHAPES_OF_TWO,
    Ordinal,
    OrdinalFit,
    Population,
    Shape,
    fit_beliefs,
    fit_population,
)
from tutelage.stats.reliability import Reliability, beta_interval, equivalent_votes, majority, one_coin
from tutelage.stats.vote_codes import Floats, Ints, Votes, softmax

_POPULATION_VOTES = 20_000  # enough votes to estimate what all raters and items share
_DRAWS = 300
_PLAYS = 40
_WORST = 1 / 4  # share of the weights on which labels should not lose
_LEAST_SHARE = 0.01  # shapes of less weight are dropped


@dataclass(frozen=True, eq=False)
class Populations:
    """The shapes with their populations, and their weights, which sum to one [S]."""

    shapes: tuple[Shape, ...]
    populations: tuple[Population, ...]
    weights: Floats
    converged: bool = True


def estimate_populations(votes: Votes, gold: Ints, weight: Floats, *, seed: int = 0) -> Populations:
    """Estimate what all raters and items share, from all votes or, if there are many, from a sample of the items."""
    votes, gold, weight = _sample(votes, gold, weight, seed)
    shapes = {2: SHAPES_OF_TWO, 3: SHAPES_OF_THREE}.get(len(votes.choices), SHAPES)
    fits = [fit_population(Ordinal(votes, gold, weight, shape)) for shape in shapes]
    odds = np.array([shape.odds for shape in shapes])
    weights = averaging_weights(np.stack([fit.log_item for fit in fits]), odds, seed)
    kept = np.flatnonzero(weights > _LEAST_SHARE)
    return Populations(
        tuple(shapes[s] for s in kept),
        tuple(fits[s].population for s in kept),
        weights[kept] / weights[kept].sum(),
        all(fits[s].converged for s in kept),
    )


def fit_ordinal(votes: Votes, gold: Ints, weight: Floats, known: Populations | None = None) -> Reliability:
    """The reliability by the average of the ordinal models of all shapes; `known` are their shared parameters, by
    default estimated from the votes."""
    shared = known or estimate_populations(votes, gold, weight)
    models = [Ordinal(votes, gold, weight, shape) for shape in shared.shapes]
    fits = [fit_beliefs(model, at) for model, at in zip(models, shared.populations, strict=True)]
    states = [model.states[0] for model in models]
    share = shared.weights.tolist()
    chance = [model.choice(fit.population.theta) for model, fit in zip(models, fits, strict=True)]
    by_state = [np.tensordot(fit.types, p, (1, 1)) for fit, p in zip(fits, chance, strict=True)]
    prevalence = sum(w * fit.population.prevalence for w, fit in zip(share, fits, strict=True))
    confusion = sum(w * _by_class(p, code) for w, p, code in zip(share, by_state, states, strict=True))
    accuracy, variance = _accuracy(share, fits, chance, states)
    others = sum(w * fit.others for w, fit in zip(share, fits, strict=True))
    posteriors = np.stack([fit.states @ model.one_hot for fit, model in zip(fits, models, strict=True)])
    low, high = beta_interval(accuracy, np.maximum(accuracy * (1 - accuracy) / np.maximum(variance, 1e-9) - 1, 1.0))
    return Reliability(
        _best_posterior(votes, gold, posteriors, shared.weights),
        prevalence,
        accuracy,
        low,
        high,
        equivalent_votes(votes, gold, weight, others, accuracy),
        confusion,
        np.array([float(np.dot(share, [fit.log_item.sum() for fit in fits]))]),
        shared.converged,
        np.concatenate([w * fit.states for w, fit in zip(share, fits, strict=True)], axis=1),
        np.concatenate(by_state, axis=1),
    )


def _best_posterior(votes: Votes, gold: Ints, posteriors: Floats, weights: Floats) -> Floats:
    """The mixture [I, K] of posteriors [S, I, K], with the weights of the shapes or, if its labels may be worse than
    simpler ones, with those of the best sum of the mean gain and that on the worst quarter. Of two classes none is
    between others, and the labels of all shapes are nearly those of the mixture."""
    mixture = np.tensordot(weights, posteriors, 1)
    if len(votes.choices) == 2 or len(weights) == 1:
        return mixture
    items = np.arange(len(mixture))

    def accuracy(posterior: Floats) -> Floats:
        return np.asarray(posteriors[:, items, posterior.argmax(axis=1)].mean(axis=1))

    simple = np.maximum(accuracy(majority(votes)), accuracy(one_coin(votes, gold).posterior))
    gain = accuracy(mixture) - simple
    worst = least_favourable(gain, weights)
    if worst @ gain >= 0:
        return mixture
    best, total = (float((weights + worst) @ gain), mixture), np.zeros(len(weights))
    for number in range(1, _PLAYS + 1):
        total += worst
        posterior = np.tensordot((weights + total / number) / 2, posteriors, 1)
        gain = accuracy(posterior) - simple
        worst = least_favourable(gain, weights)
        best = max(best, (float((weights + worst) @ gain), posterior), key=lambda pair: pair[0])
    return best[1]


def least_favourable(gain: Floats, weights: Floats) -> Floats:
    """The u [S] of least Σ u `gain` with u ≤ `weights`/`_WORST` and Σ u = 1: the weights of the worst quarter."""
    order = np.argsort(gain, kind="stable")
    most = weights[order] / _WORST
    worst = np.empty(len(gain))
    worst[order] = np.clip(1 - (np.cumsum(most) - most), 0, most)
    return worst


def averaging_weights(log_item: Floats, odds: Floats, seed: int = 0) -> Floats:
    """Pseudo-BMA+ weights [S] of models with these log probabilities of items [S, I] and prior odds [S]: the softmax of
    their sums, averaged over a Bayesian bootstrap of the items."""
    items = log_item.shape[1]
    drawn = np.random.default_rng(seed).dirichlet(np.ones(items), _DRAWS) * items
    return np.asarray(softmax((log_item @ drawn.T + np.log(odds)[:, None]).T).mean(axis=0))


def _sample(votes: Votes, gold: Ints, weight: Floats, seed: int) -> tuple[Votes, Ints, Floats]:
    """The votes on a random sample of the items with about `_POPULATION_VOTES` votes, and only their raters."""
    if len(votes) > _POPULATION_VOTES:
        order = np.random.default_rng(seed).permutation(len(votes.items))
        number = int(np.searchsorted(np.cumsum(votes.per_item()[order]), _POPULATION_VOTES)) + 1
        kept = np.isin(votes.item, order[:number])
        votes, weight = votes.keep(kept), weight[kept]
    items, item = np.unique(votes.item, return_inverse=True)
    raters, rater = np.unique(votes.rater, return_inverse=True)
    names = (tuple(votes.items[i] for i in items), tuple(votes.raters[r] for r in raters))
    return replace(votes, item=item, rater=rater, items=names[0], raters=names[1]), gold[items], weight


def _accuracy(
    share: Sequence[float], fits: Sequence[OrdinalFit], chance: Sequence[Floats], states: Sequence[Ints]
) -> tuple[Floats, Floats]:
    """Mean and variance of each rater's probability of a right vote [R], over types and shapes."""
    mean, square = 0.0, 0.0
    for w, fit, p, code in zip(share, fits, chance, states, strict=True):
        right = _by_class(p.transpose(1, 0, 2), code)  # [T, K, K]
        by_type = np.einsum("j,tjj->t", fit.population.prevalence, right)
        mean, square = mean + w * (fit.types @ by_type), square + w * (fit.types @ by_type**2)
    return np.asarray(mean), np.asarray(square - np.square(mean))


def _by_class(by_state: Floats, code: Ints) -> Floats:
    """[R, K, K]: the mean of [R, J, K] over the states of each class."""
    classes = by_state.shape[2]
    pooled = (code == np.arange(classes)[:, None]) / np.bincount(code)[:, None]
    return np.einsum("cj,rjk->rck", pooled, by_state)

"""The hierarchical rater model against planted raters, its own likelihood by enumeration, and its limits."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from offenders import for_each

from tutelage.stats.hierarchical import Deviations, Effects, Hierarchical, Spreads, fit_hierarchical
from tutelage.stats.reliability import describe, fit, majority
from tutelage.stats.vote_codes import Votes

from .planted import coins, draw

ALL = [Effects(*on) for on in itertools.product([False, True], repeat=3)]


def model(votes, effects=ALL[-1], gold=None, weight=None):
    codes = np.full(len(votes.items), -1) if gold is None else gold
    return Hierarchical(votes, codes, np.ones(len(votes)) if weight is None else weight, effects)


def planted_raters(raters, classes, ability, bias, seed):
    """Matrices of raters with b = 1.5 and deviations of these spreads [R, K, K]."""
    generator = np.random.default_rng(seed)
    own = 1.5 + ability * generator.normal(size=(raters, 1, 1))
    logits = own * np.eye(classes) + bias * generator.normal(size=(raters, 1, classes))
    return np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)


def log_posterior(votes, at: Deviations, spreads: Spreads, effects: Effects):
    """log Σ_z P(z, votes) + log prior, item by item and choice by choice."""
    classes = len(votes.choices)
    total = 0.0
    for i in range(len(votes.items)):
        mine = np.flatnonzero(votes.item == i)
        chance = 0.0
        for j in range(classes):
            p = at.prevalence[j]
            for n in mine:
                r = votes.rater[n]
                logits = [
                    (at.base + at.own[r, 0]) * (k == j) + at.pattern[j, k] + at.own[r, 1 + k] for k in range(classes)
                ]
                p *= np.exp(logits[votes.choice[n]]) / np.sum(np.exp(logits))
            chance += p
        total += np.log(chance)
    typical = np.log(0.7 * (classes - 1) / 0.3)
    total -= (at.base - typical) ** 2 / (2 * 1.5**2) + (at.pattern**2).sum() / (2 * spreads.pattern**2)
    total -= (at.own[:, 0] ** 2).sum() / (2 * spreads.ability**2)
    total -= (at.own[:, 1:] ** 2).sum() / (2 * spreads.bias**2)
    return total + (np.log(at.prevalence).sum() if effects.pattern else 0.0)


@for_each(ALL)
def test_the_objective_never_falls_and_ends_at_a_fixed_point(effects):
    votes, truth = draw(planted_raters(8, 3, 0.8, 0.5, 0), [0.5, 0.3, 0.2], 120, 3, seed=1)
    found = fit(model(votes, effects, np.where(np.arange(120) < 10, truth, -1)), tolerance=1e-7, rounds=3000)
    assert found.converged
    assert np.all(np.diff(found.objective) >= -1e-9)


def test_the_end_is_a_maximum_of_the_marginal_posterior():
    votes, _ = draw(planted_raters(4, 3, 0.8, 0.5, 2), [0.5, 0.3, 0.2], 50, 3, seed=3)
    found = fit(model(votes), tolerance=1e-9, rounds=5000)
    at, spreads = found.parameters, Spreads()
    best = log_posterior(votes, at, spreads, ALL[-1])
    assert best == pytest.approx(found.objective[-1], abs=1e-8)
    generator = np.random.default_rng(4)
    for _ in range(30):
        share = at.prevalence * np.exp(0.02 * generator.normal(size=3))
        near = Deviations(
            at.base + 0.02 * generator.normal(),
            at.pattern + 0.02 * generator.normal(size=(3, 3)),
            at.own + 0.02 * generator.normal(size=at.own.shape),
            share / share.sum(),
        )
        assert log_posterior(votes, near, spreads, ALL[-1]) < best


def test_without_effects_the_mode_is_the_majority_and_draws_stay_draws():
    votes, _ = draw(coins([0.7] * 9, 3), [1 / 3] * 3, items=300, votes_per_item=4, seed=5)
    found = fit_hierarchical(model(votes, Effects())).posterior
    leading = found > found.max(axis=1, keepdims=True) - 1e-9
    np.testing.assert_array_equal(leading, majority(votes) > 0)


@pytest.mark.parametrize(("ability", "bias"), [(0.8, 0.5), (0.3, 0.8)])
def test_the_planted_spreads_are_found(ability, bias):
    votes, _ = draw(planted_raters(150, 3, ability, bias, 6), [0.4, 0.3, 0.3], 3000, 5, seed=7)
    found = fit_hierarchical(model(votes, Effects(ability=True, bias=True))).parameters
    assert found.spreads.ability == pytest.approx(ability, rel=0.25)
    assert found.spreads.bias == pytest.approx(bias, rel=0.25)


def test_raters_who_are_alike_are_taken_for_alike():
    """Ten votes each: an accuracy of their own would range from .5 to 1."""
    votes, _ = draw(coins([0.8] * 200), [0.5, 0.5], items=400, votes_per_item=5, seed=8)
    fitted = model(votes, Effects(ability=True))
    found = describe(fitted, fit_hierarchical(fitted))
    assert np.ptp(found.accuracy) < 0.1
    assert found.accuracy.mean() == pytest.approx(0.8, abs=0.02)
    assert np.mean((found.low < 0.8) & (found.high > 0.8)) > 0.98


def test_matrices_of_many_votes_are_recovered():
    """Everybody often takes the second class for the third; two are better than the others, one prefers the first."""
    pattern = np.log([[0.9, 0.05, 0.05], [0.05, 0.6, 0.35], [0.05, 0.05, 0.9]])
    own = np.array([0, 0, 0, 0, 1.5, 1.5, 0])[:, None, None] * np.eye(3)
    own[6, :, 0] = 1.5
    planted = np.exp(pattern + own)
    planted /= planted.sum(axis=2, keepdims=True)
    votes, _ = draw(planted, [0.3, 0.4, 0.3], items=4000, votes_per_item=5, seed=9)
    fitted = model(votes)
    found = describe(fitted, fit_hierarchical(fitted))
    np.testing.assert_allclose(found.confusion, planted, atol=0.06)
    np.testing.assert_allclose(found.prevalence, [0.3, 0.4, 0.3], atol=0.03)


@for_each(ALL[1::2])
def test_other_names_for_the_classes_change_nothing_else(effects):
    votes, _ = draw(planted_raters(6, 3, 0.8, 0.5, 10), [0.5, 0.3, 0.2], 100, 3, seed=11)
    turn = np.array([2, 0, 1])
    turned = Votes(votes.item, votes.rater, turn[votes.choice], votes.items, votes.raters, votes.choices)
    one, other = (fit_hierarchical(model(v, effects), tolerance=1e-6).posterior for v in (votes, turned))
    np.testing.assert_allclose(other[:, turn], one, atol=1e-5)


def test_gold_is_kept_and_overrules_a_majority_of_adversaries():
    votes, truth = draw(coins([0.9, 0.9] + [0.2] * 5), [0.5, 0.5], items=400, votes_per_item=7, seed=10)
    gold = np.where(np.arange(400) < 60, truth, -1)
    found = fit_hierarchical(model(votes, Effects(ability=True), gold)).posterior
    assert np.all(found[np.arange(60), truth[:60]] == 1)
    assert (found.argmax(axis=1) == truth)[60:].mean() > 0.9


def test_whole_weights_are_repeated_votes():
    votes, _ = draw(coins([0.8, 0.6, 0.7], 3), [0.4, 0.3, 0.3], items=60, votes_per_item=2, seed=13)
    again = np.concatenate([np.arange(len(votes)), np.arange(20)])
    doubled = Votes(
        votes.item[again], votes.rater[again], votes.choice[again], votes.items, votes.raters, votes.choices
    )
    weight = np.where(np.arange(len(votes)) < 20, 2.0, 1.0)
    one, other = fit_hierarchical(model(votes, weight=weight)), fit_hierarchical(model(doubled))
    np.testing.assert_allclose(one.posterior, other.posterior, atol=1e-9)


@pytest.mark.parametrize(("spread", "low", "high"), [(0.0, 0.0, 0.4), (0.8, 0.6, 0.9)])
def test_the_spread_of_abilities_is_found_where_items_have_few_votes(spread, low, high):
    """Twenty votes a rater, three an item, two classes: a posterior taken for known classes makes all raters alike."""
    votes, _ = draw(planted_raters(300, 2, spread, 0.0, 4), [0.5, 0.5], 2000, 3, seed=5)
    found = fit_hierarchical(model(votes, Effects(ability=True)))
    assert low <= found.parameters.spreads.ability <= high


def test_the_variance_given_the_votes_is_that_of_the_summed_likelihood():
    """Against second differences of log Σ_z P(z, votes) in the ability and one bias of a rater."""
    votes, _ = draw(planted_raters(3, 3, 0.8, 0.5, 0), [1 / 3] * 3, 60, 3, seed=1)
    effects, spreads = Effects(ability=True, bias=True), Spreads()
    made = model(votes, effects)
    at = fit(made, tolerance=1e-9, rounds=3000).parameters
    counts, q = made.soft_counts(fit(made, at, rounds=1).posterior), fit(made, at, rounds=1).posterior
    found = made._own_variance(at, np.exp(made.log_choice(at)), q, counts)[0]

    def value(step):
        own = at.own.copy()
        own[0] += step
        return log_posterior(votes, replace(at, own=own), spreads, effects)

    h = 0.02 * np.eye(4)
    curvature = -np.array(
        [[(value(a + b) - value(a - b) - value(b - a) + value(-a - b)) / (4 * 0.02**2) for b in h] for a in h]
    )
    np.testing.assert_allclose(found, np.diag(np.linalg.inv(curvature)), rtol=0.02)

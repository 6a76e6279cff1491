"""The model with easy and misleading items: its likelihood by enumeration, ascent, and planted parameters."""

import itertools

import numpy as np
import pytest

from tutelage.stats.copies import Link
from tutelage.stats.item_pulls import Parameters, PulledItems
from tutelage.stats.votes import Votes

from .planted import coins, draw


def table(votes):
    return PulledItems.of(votes, np.full(len(votes.items), -1))


def test_the_probabilities_of_all_votes_add_up_to_one():
    """Over all answers of three raters to one item, a follower among them."""
    names = (("i",), ("x", "y", "z"), ("a", "b", "c"))
    start = PulledItems.of(Votes(np.zeros(3, int), np.arange(3), np.array([0, 1, 2]), *names), np.array([-1]))
    at = start.guess(np.array([1.0, 2.0, 0.5]))
    total = 0.0
    for answers in itertools.product(range(3), repeat=3):
        votes = Votes(np.zeros(3, int), np.arange(3), np.array(answers), *names)
        one = PulledItems.of(votes, np.array([-1]))
        total += np.exp(one.expect(at, (Link(2, 0, 0.3),)).log_likelihood)
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize("links", [(), (Link(4, 3, 0.5),)])
def test_every_round_raises_the_likelihood(links):
    votes, _ = draw(coins([0.9, 0.8, 0.7, 0.8, 0.6], 3), [0.5, 0.3, 0.2], items=200, votes_per_item=4, seed=0)
    items = table(votes)
    found = items.expect(items.guess(np.ones(len(items.votes))), links)
    for _ in range(20):
        before, found = found.log_likelihood, items.expect(*items.maximise(found))
        assert found.log_likelihood > before - 0.05, (
            "but for the specks of a vote that are added to the matrices"
        )


def test_nothing_is_likelier_than_the_fit():
    """Not the parameters that the votes were drawn from, nor the ones to start from."""
    confusion = coins([0.9, 0.8, 0.7, 0.8, 0.85], 3)
    votes, _ = draw(confusion, [0.5, 0.3, 0.2], items=400, votes_per_item=5, seed=1)
    items = table(votes)
    start = items.guess(np.ones(len(items.votes)))
    planted = Parameters(confusion, np.array([0.5, 0.3, 0.2]), np.array([1.0, 0, 0, 0, 0]))
    found = items.fit(start, ()).log_likelihood
    assert found > items.expect(planted, ()).log_likelihood
    assert found > items.expect(start, ()).log_likelihood + 10


def test_a_known_class_leaves_no_other_state():
    votes, truth = draw(coins([0.6] * 4), [0.5, 0.5], items=50, votes_per_item=4, seed=2)
    items = PulledItems.of(votes, truth)
    posterior = items.expect(items.guess(np.ones(len(items.votes))), ()).posterior
    assert np.all(posterior[items.gold[:, None] != items.states.truth] == 0)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)

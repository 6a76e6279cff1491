"""The model with easy and misleading items: its likelihood by enumeration, ascent, and planted parameters."""

import itertools
from itertools import product

import numpy as np
import pytest
from offenders import for_each

from tutelage.stats.copy_evidence import PulledItems, PulledParameters, copying_links
from tutelage.stats.copy_links import Link
from tutelage.stats.vote_codes import Votes

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
        assert found.log_likelihood > before - 0.05, "but for the specks of a vote that are added to the matrices"


def test_nothing_is_likelier_than_the_fit():
    """Not the parameters that the votes were drawn from, nor the ones to start from."""
    confusion = coins([0.9, 0.8, 0.7, 0.8, 0.85], 3)
    votes, _ = draw(confusion, [0.5, 0.3, 0.2], items=400, votes_per_item=5, seed=1)
    items = table(votes)
    start = items.guess(np.ones(len(items.votes)))
    planted = PulledParameters(confusion, np.array([0.5, 0.3, 0.2]), np.array([1.0, 0, 0, 0, 0]))
    found = items.fit(start, ()).log_likelihood
    assert found > items.expect(planted, ()).log_likelihood
    assert found > items.expect(start, ()).log_likelihood + 10


def test_a_known_class_leaves_no_other_state():
    votes, truth = draw(coins([0.6] * 4), [0.5, 0.5], items=50, votes_per_item=4, seed=2)
    items = PulledItems.of(votes, truth)
    posterior = items.expect(items.guess(np.ones(len(items.votes))), ()).posterior
    assert np.all(posterior[items.gold[:, None] != items.states.truth] == 0)
    np.testing.assert_allclose(posterior.sum(axis=1), 1)


ITEMS = 300


def table_copying(choice, classes):
    """Votes of raters who all judged every item: choices [R, I]."""
    rater, item = np.indices(choice.shape)
    names = [tuple(map(str, range(size))) for size in (choice.shape[1], len(choice), classes)]
    return Votes(item.ravel(), rater.ravel(), choice.ravel(), *names)


def vote(generator, truth, accuracy, classes):
    """Right with these probabilities [I], else any other class."""
    wrong = (truth + generator.integers(1, classes, size=len(truth))) % classes
    return np.where(generator.random(len(truth)) < accuracy, truth, wrong)


def honest_raters(kind, classes, seed, raters=5):
    """Choices [R, I] that agree for one of many reasons, none of them a copy."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(classes, size=ITEMS)
    ability = generator.uniform(0.7, 0.95, size=raters)
    accuracy = np.broadcast_to(ability[:, None], (raters, ITEMS))
    answers = np.broadcast_to(truth, (raters, ITEMS))
    if kind == "perfect":
        accuracy = np.ones((raters, ITEMS))
    elif kind == "two experts":
        accuracy = np.where(np.arange(raters)[:, None] < 2, 1.0, 0.8 + np.zeros(ITEMS))
    elif kind == "easy items":
        accuracy = np.where(generator.random(ITEMS) < 0.6, 1.0, 0.65 + np.zeros((raters, 1)))
    elif kind == "misleading items":
        answers = np.where(generator.random(ITEMS) < 0.2, (truth + 1) % classes, truth) + np.zeros((raters, 1), int)
    elif kind == "logits":
        difficulty = generator.normal(0, 1.5, size=ITEMS)
        accuracy = 1 / (1 + np.exp(-generator.normal(1, 0.8, size=(raters, 1)) - difficulty))
    return np.stack([vote(generator, answers[r], accuracy[r], classes) for r in range(raters)])


KINDS = ("perfect", "differing", "two experts", "easy items", "misleading items", "logits")


@for_each(product([2, 3], KINDS))
def test_honest_raters_are_not_accused(classes, kind):
    """Two studies of each kind, at a level of one in a hundred for each of them."""
    for seed in range(2):
        votes = table_copying(honest_raters(kind, classes, seed), classes)
        assert copying_links(votes, np.full(ITEMS, -1)) == ()


@for_each(["differing", "easy items", "misleading items", "two experts"])
def test_a_copier_is_found(kind):
    """Of seven raters the last repeats the one before in four of five votes, and else votes alone."""
    choice = honest_raters(kind, 3, seed=0, raters=7)
    copied = np.random.default_rng(1).random(ITEMS) < 0.8
    choice[6] = np.where(copied, choice[5], choice[6])
    links = copying_links(table_copying(choice, 3), np.full(ITEMS, -1))
    assert [link.pair for link in links] == [{5, 6}]
    assert links[0].share == pytest.approx(0.8, abs=0.12)


@pytest.mark.long
def test_two_pairs_of_copiers_are_found():
    choice = honest_raters("differing", 3, seed=2, raters=7)
    choice[6], choice[1] = choice[5], choice[0]
    links = copying_links(table_copying(choice, 3), np.full(ITEMS, -1))
    assert {link.pair for link in links} == {frozenset((5, 6)), frozenset((0, 1))}


def test_names_of_classes_and_raters_do_not_matter():
    choice = honest_raters("differing", 3, seed=0, raters=7)
    choice[6] = np.where(np.random.default_rng(1).random(ITEMS) < 0.8, choice[5], choice[6])
    renamed = (choice[::-1] + 1) % 3
    links = copying_links(table_copying(renamed, 3), np.full(ITEMS, -1))
    assert [link.pair for link in links] == [{0, 1}]


def test_known_answers_tell_experts_from_copiers():
    """Two of five guess alike. Without known answers they could be experts and the others misled; with some, they are
    not."""
    generator = np.random.default_rng(0)
    truth = generator.integers(2, size=ITEMS)
    choice = np.stack([vote(generator, truth, np.full(ITEMS, 0.8), 2) for _ in range(5)])
    choice[3:] = generator.integers(2, size=ITEMS)
    votes = table_copying(choice, 2)
    assert copying_links(votes, np.full(ITEMS, -1)) == ()
    gold = np.where(np.arange(ITEMS) < 60, truth, -1)
    assert [link.pair for link in copying_links(votes, gold)] == [{3, 4}]


def test_too_few_items_in_common_say_nothing():
    choice = honest_raters("differing", 3, seed=0)
    choice[4] = choice[3]
    few = table_copying(choice[:, :19], 3)
    assert copying_links(few, np.full(19, -1)) == ()

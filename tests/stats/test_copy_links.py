"""Links between raters who copy: planted copies, votes of their own, and predictions by hand."""

import numpy as np
import pytest
from offenders import for_each

from tutelage.stats.copy_links import Link, fit_without_copies, likely_links, predict
from tutelage.stats.reliability import one_coin
from tutelage.stats.vote_codes import Votes

from .planted import coins, draw


def fit(votes, gold, weight):
    return one_coin(votes, gold, weight=weight)


def with_copies(share, seed=0, items=600):
    """Votes of four raters of .8 and a fifth who repeats the fourth in this share of the items, and the truth."""
    votes, truth = draw(coins([0.8] * 5), [0.5, 0.5], items=items, votes_per_item=5, seed=seed)
    choice = np.empty((items, 5), dtype=int)
    choice[votes.item, votes.rater] = votes.choice
    copied = np.random.default_rng(seed).random(items) < share
    choice[:, 4] = np.where(copied, choice[:, 3], choice[:, 4])
    return Votes(
        votes.item, votes.rater, choice[votes.item, votes.rater], votes.items, votes.raters, votes.choices
    ), truth


@for_each([0.0, 0.3, 0.6, 0.9])
def test_the_planted_share_of_copies_is_found(share):
    votes, _ = with_copies(share, items=3000)
    found = fit_without_copies(votes, np.full(3000, -1), (Link(4, 3),), fit)
    assert found.links[0].share == pytest.approx(share, abs=0.12)
    assert found.weight[votes.rater != 4].min() == 1.0


def test_without_links_it_is_the_model_itself():
    votes, _ = with_copies(0.5)
    found = fit_without_copies(votes, np.full(600, -1), (), fit)
    np.testing.assert_array_equal(found.reliability.posterior, one_coin(votes).posterior)


def test_a_vote_that_differs_from_the_leaders_is_the_raters_own():
    votes, _ = with_copies(0.6)
    found = fit_without_copies(votes, np.full(600, -1), (Link(4, 3),), fit)
    choice = np.empty((600, 5), dtype=int)
    choice[votes.item, votes.rater] = votes.choice
    differs = (choice[:, 4] != choice[:, 3])[votes.item]
    assert np.all(found.weight[differs] == 1.0)
    assert found.weight[(votes.rater == 4) & ~differs].max() < 1.0


def test_a_copy_of_everything_is_no_second_vote():
    """The posterior is that of the four others, and the copier's accuracy says nothing."""
    votes, _ = with_copies(1.0)
    four = votes.keep(votes.rater < 4)
    linked = fit_without_copies(votes, np.full(600, -1), (Link(4, 3, 0.99),), fit).reliability
    np.testing.assert_allclose(linked.posterior, one_coin(four).posterior, atol=0.03)
    assert np.abs(one_coin(votes).posterior - one_coin(four).posterior).max() > 0.2


def test_the_copiers_are_tried_first():
    votes, _ = with_copies(0.7)
    first = next(iter(likely_links(votes, 3)))
    assert {first.leader, first.follower} == {3, 4}
    few = votes.keep(votes.item < 15)
    assert list(likely_links(few, 3)) == [], "too few items in common to tell"


def test_a_prediction_by_hand():
    """With share κ what the other said, else what the posterior and the rater's matrix say; without a vote of the other
    the latter alone."""
    votes, _ = with_copies(0.5)
    theirs = votes.keep((votes.rater != 4) & ~((votes.item == 1) & (votes.rater == 3)))
    found = fit_without_copies(theirs, np.full(600, -1), (Link(4, 3, 0.4),), fit)
    share = found.links[0].share
    own = found.reliability.posterior[:2] @ found.reliability.confusion[4]
    said = theirs.choice[(theirs.item == 0) & (theirs.rater == 3)][0]
    expected = own.copy()
    expected[0] = (1 - share) * own[0] + share * np.eye(2)[said]
    np.testing.assert_allclose(predict(found, theirs, np.array([0, 1]), np.array([4, 4])), expected)

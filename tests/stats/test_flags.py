import numpy as np
import pytest

from tutelage.stats.flags import rater_flags
from tutelage.stats.reliability import dawid_skene, one_coin
from tutelage.stats.votes import Votes

from .planted import coins, draw


def kinds(votes, found):
    return [tuple(flag.kind for flag in flags) for flags in rater_flags(votes, found)]


@pytest.mark.parametrize("model", [one_coin, dawid_skene])
def test_the_guesser_and_the_adversary_are_named_and_the_honest_are_not(model):
    votes, _ = draw(
        coins([0.85, 0.8, 0.75, 0.85, 0.5, 0.15]), [0.5, 0.5], items=600, votes_per_item=4, seed=0
    )
    assert kinds(votes, model(votes)) == [(), (), (), (), ("random_like",), ("adversarial",)]


def test_honest_raters_are_rarely_flagged():
    accuracy = np.random.default_rng(1).uniform(0.7, 0.9, size=100)
    votes, _ = draw(coins(accuracy), [0.5, 0.5], items=1500, votes_per_item=4, seed=1)
    assert sum(bool(k) for k in kinds(votes, one_coin(votes))) <= 2


def test_answers_that_ignore_the_item_are_found_even_where_they_are_mostly_right():
    """One always gives the common answer, one guesses by its frequency: right in 90 % and 82 %, and no use."""
    habits = [[[1.0, 0.0]] * 2, [[0.9, 0.1]] * 2]
    honest = coins([0.95] * 5).tolist()
    votes, truth = draw(np.array(honest + habits), [0.9, 0.1], items=1500, votes_per_item=4, seed=2)
    found = dawid_skene(votes)
    assert found.accuracy[5] == pytest.approx((truth == 0).mean(), abs=0.03)
    *of_the_honest, of_the_constant, of_the_guesser = kinds(votes, found)
    assert of_the_honest == [()] * 5
    assert "biased" in of_the_constant
    assert "random_like" in of_the_guesser


def test_a_biased_rater_is_named_with_the_class():
    leaning = [[0.95, 0.05], [0.45, 0.55]]
    votes, _ = draw(
        np.array([*coins([0.85] * 5).tolist(), leaning]), [0.5, 0.5], items=800, votes_per_item=4, seed=3
    )
    flags = rater_flags(votes, dawid_skene(votes))
    assert [flag.kind for flag in flags[5]] == ["biased"]
    assert "'c0'" in flags[5][0].evidence
    assert all(mine == () for mine in flags[:5])


def test_nothing_is_said_about_a_newcomer():
    votes = Votes.of("xxx", "rst", "aab")
    assert kinds(votes, one_coin(votes)) == [("too_few",)] * 3

"""What raters say when they are asked again."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from offenders import for_each
from scipy.stats import binom

from tutelage.base.errors import TutelageError
from tutelage.stats.rater_checks import Repeats, gold_test, rater_flags, self_consistency, side_bias
from tutelage.stats.reliability import dawid_skene, one_coin
from tutelage.stats.vote_codes import Votes

from .planted import coins, draw


def flagged_within(golds, accuracy, runs=2000, **options):
    """The share of raters with this accuracy who are flagged after at most `golds`, and when those were."""
    generator = np.random.default_rng(round(1000 * accuracy))
    tests = [gold_test(generator.random(golds) < accuracy, **options) for _ in range(runs)]
    when = [test.decided_after for test in tests if test.standing == "flagged"]
    return len(when) / runs, float(np.mean(when)) if when else math.nan


def test_a_guessing_rater_is_flagged_within_10_golds_in_95_percent_after_about_5():
    share, _ = flagged_within(10, 0.5, runs=4000)
    assert share == pytest.approx(0.954, abs=0.01)
    _, golds = flagged_within(60, 0.5)
    assert 4 < golds < 5


@for_each([(0.97, 30, 0.011), (0.95, 30, 0.033), (0.85, 10, 0.24)])
def test_how_often_an_honest_rater_is_flagged(accuracy, golds, rate):
    assert flagged_within(golds, accuracy)[0] == pytest.approx(rate, abs=0.025)


def test_it_spares_raters_about_as_well_as_any_test_of_ten_golds_can():
    """Neyman and Pearson: the best test that catches as many guessers counts right answers, at some cut."""
    power, cost = flagged_within(10, 0.5, runs=4000)[0], flagged_within(10, 0.85, runs=4000)[0]
    cut = int(binom.ppf(power, 10, 0.5)) - 1
    mixing = (power - binom.cdf(cut, 10, 0.5)) / binom.pmf(cut + 1, 10, 0.5)
    best = binom.cdf(cut, 10, 0.85) + mixing * binom.pmf(cut + 1, 10, 0.85)
    assert best > 0.2
    assert cost == pytest.approx(best, abs=0.03)


def test_hard_golds_with_the_settings_for_them():
    options = {"good": 0.85, "false_flag": 0.01, "false_clear": 0.05}
    assert flagged_within(60, 0.85, **options)[0] < 0.015
    share, golds = flagged_within(60, 0.5, **options)
    assert share > 0.94
    assert golds == pytest.approx(14, abs=1)


def test_the_evidence_is_the_likelihood_ratio_of_the_answers_until_the_decision():
    answers = [True, False, True]
    found = gold_test(answers, good=0.9, chance=0.5)
    assert found.standing == "learning"
    assert found.evidence == pytest.approx(math.log(0.5**3 / (0.9 * 0.1 * 0.9)))
    assert (found.right, found.answered, found.decided_after) == (2, 3, None)


def test_the_first_decision_stands():
    cleared = gold_test([True] * 8 + [False] * 8)
    assert (cleared.standing, cleared.decided_after) == ("cleared", 7)
    assert gold_test([False, False] + [True] * 20).decided_after == 2


def test_a_test_that_cannot_be_is_refused():
    with pytest.raises(TutelageError, match=r"chance \(0.5\) < good \(0.4\)"):
        gold_test([], good=0.4)
    with pytest.raises(TutelageError, match=r"false_flag 0\.7"):
        gold_test([], false_flag=0.7)


def two_sided(left, votes):
    """The p-value by counting: sides at least as rare as this one, both ways, among all 2^votes that are possible."""
    term, total = 1, 0
    for k in range(min(left, votes - left) + 1):
        total += term
        term = term * (votes - k) // (k + 1)
    return float(min(Fraction(1), Fraction(2 * total, 2**votes)))


@for_each([1, 2, 10, 39, 92, 373, 1000, 20_000])
def test_side_bias_is_the_exact_binomial_test(votes):
    left = np.round(votes * np.array([0.0, 0.3, 0.49, 0.5, 0.65, 1.0])).astype(int)
    expected = [two_sided(int(k), votes) for k in left]
    np.testing.assert_allclose(side_bias(left, np.full(6, votes)), expected, rtol=1e-9, atol=1e-300)


def test_side_bias_stays_exact_for_very_many_votes():
    """100,000 votes: P(X ≤ k) as P(X = k) to 30 digits, times the ratios of the terms below it."""
    votes = 100_000
    left = np.array([48_000, 49_500, 49_900, 50_000])
    terms = [np.cumprod([1.0, *(j / (votes - j + 1) for j in range(k, 0, -1))]) for k in left.tolist()]
    with mpmath.workdps(30):
        first = [float(mpmath.binomial(votes, k) / mpmath.mpf(2) ** votes) for k in left.tolist()]
    expected = [min(1.0, 2 * one * below.sum()) for one, below in zip(first, terms, strict=True)]
    np.testing.assert_allclose(side_bias(left, np.full(4, votes)), expected, rtol=1e-9)


def test_no_votes_have_no_bias():
    assert side_bias(np.array([0]), np.array([0])).tolist() == [1.0]


@for_each([(0.8, 39), (0.7, 92), (0.65, 164), (0.6, 373)])
def test_side_bias_finds_a_bias_in_nine_of_ten_at_the_stated_number_of_votes(bias, votes):
    left = np.arange(votes + 1)
    found = side_bias(left, np.full(votes + 1, votes)) < 0.01
    assert 0.88 < binom.pmf(left, votes, bias)[found].sum() < 0.93


def test_later_choices_are_compared_with_the_first() -> None:
    item = ["x", "y", "x", "x", "y", "x"]
    rater = ["r", "r", "r", "r", "s", "s"]
    choice = ["a", "b", "a", "b", "a", "a"]
    assert self_consistency(item, rater, choice) == {"r": Repeats(1, 2)}


@for_each(product([0.55, 0.7, 0.9], [2, 3, 5]))
def test_the_accuracy_behind_repeats_is_recovered(accuracy: float, classes: int) -> None:
    """Somebody right with probability a, and wrong evenly, is drawn twice about every item."""
    generator = np.random.default_rng(classes)
    size = 60_000
    truth = generator.integers(classes, size=size)

    def say() -> list[str]:
        wrong = (truth + generator.integers(1, classes, size=size)) % classes
        return list(map(str, np.where(generator.random(size) < accuracy, truth, wrong)))

    items = list(map(str, range(size)))
    (found,) = self_consistency(items * 2, ["r"] * 2 * size, say() + say()).values()
    assert found.seen == size
    implied = found.reliability(classes)
    assert implied == pytest.approx(accuracy, abs=0.02 if accuracy > 0.6 else 0.04)


def test_chance_proves_nothing_and_no_repeats_even_less() -> None:
    assert Repeats(5, 10).reliability() == 0.5
    assert Repeats(1, 10).reliability() == 0.5
    assert Repeats(10, 10).reliability() == 1.0
    assert Repeats(0, 0).reliability() is None
    assert Repeats(0, 0).share.value is None
    share = Repeats(8, 10).share
    assert share.value == 0.8
    assert share.low is not None
    assert share.low < 0.8
    assert math.isclose(Repeats(82, 100).reliability() or 0, 0.9)


def kinds(votes, found):
    return [tuple(flag.kind for flag in flags) for flags in rater_flags(votes, found)]


@pytest.mark.parametrize("model", [one_coin, dawid_skene])
def test_the_guesser_and_the_adversary_are_named_and_the_honest_are_not(model):
    votes, _ = draw(coins([0.85, 0.8, 0.75, 0.85, 0.5, 0.15]), [0.5, 0.5], items=600, votes_per_item=4, seed=0)
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
    votes, _ = draw(np.array([*coins([0.85] * 5).tolist(), leaning]), [0.5, 0.5], items=800, votes_per_item=4, seed=3)
    flags = rater_flags(votes, dawid_skene(votes))
    assert [flag.kind for flag in flags[5]] == ["biased"]
    assert "'c0'" in flags[5][0].evidence
    assert all(mine == () for mine in flags[:5])


def test_nothing_is_said_about_a_newcomer():
    votes = Votes.of("xxx", "rst", "aab")
    assert kinds(votes, one_coin(votes)) == [("too_few",)] * 3

"""The rater models against planted truth, the likelihood by enumeration, and each other."""

from itertools import product

import mpmath
import numpy as np
import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.stats.reliability import dawid_skene, majority, one_coin
from tutelage.stats.vote_codes import Votes

from .planted import coins, draw

MODELS = [one_coin, dawid_skene]


def right(posterior, truth):
    return posterior[np.arange(len(truth)), truth].mean()


def hard(posterior, truth):
    return (posterior.argmax(axis=1) == truth).mean()


FOUR_BAD_OF_TWELVE = [0.85] * 8 + [0.5, 0.5, 0.5, 0.15]


@for_each(product(MODELS, [0, 1]))
def test_it_beats_the_majority_by_five_points_with_four_bad_raters_of_twelve(model, seed):
    votes, truth = draw(coins(FOUR_BAD_OF_TWELVE), [0.5, 0.5], items=1000, votes_per_item=3, seed=seed)
    assert hard(model(votes).posterior, truth) >= right(majority(votes), truth) + 0.05


@pytest.mark.parametrize("model", MODELS)
def test_it_recovers_the_planted_accuracies(model):
    planted = [0.9, 0.75, 0.6, 0.5, 0.15, 0.8]
    votes, _ = draw(coins(planted), [0.5, 0.5], items=3000, votes_per_item=5, seed=2)
    np.testing.assert_allclose(model(votes).accuracy, planted, atol=0.04)


def test_full_matrices_are_recovered_where_one_coin_cannot_see_them():
    """Raters who miss one class: half of them the first, half of them the second."""
    blind_to_0 = [[0.4, 0.6, 0.0], [0.02, 0.9, 0.08], [0.02, 0.08, 0.9]]
    blind_to_2 = [[0.9, 0.08, 0.02], [0.08, 0.9, 0.02], [0.0, 0.6, 0.4]]
    planted = np.array([blind_to_0] * 4 + [blind_to_2] * 4)
    votes, truth = draw(planted, [0.5, 0.2, 0.3], items=3000, votes_per_item=5, seed=3)
    found = dawid_skene(votes)
    np.testing.assert_allclose(found.confusion, planted, atol=0.06)
    np.testing.assert_allclose(found.prevalence, [0.5, 0.2, 0.3], atol=0.03)
    assert hard(found.posterior, truth) > hard(one_coin(votes).posterior, truth) + 0.02


@for_each(product(MODELS, [False, True], [False, True]))
def test_the_objective_never_falls_and_ends_at_a_fixed_point(model, gold, weighted):
    votes, truth = draw(coins([0.9, 0.6, 0.55, 0.4, 0.7], 3), [0.6, 0.3, 0.1], items=200, votes_per_item=3, seed=4)
    known = np.where(np.arange(200) < 15, truth, -1) if gold else None
    weight = np.random.default_rng(0).uniform(0.2, 2, size=len(votes)) if weighted else None
    found = model(votes, known, weight=weight)
    assert found.converged
    assert np.all(np.diff(found.objective) >= -1e-9)
    assert found.objective[-1] - found.objective[-2] < 1e-3


def test_the_one_coin_objective_and_posterior_by_enumeration():
    """log Σ_z P(z) P(votes | z, a) + log Beta kernel, summed over every assignment of classes to four items."""
    votes, _ = draw(coins([0.8, 0.7, 0.3]), [0.5, 0.5], items=4, votes_per_item=2, seed=6)
    found = one_coin(votes)
    accuracy = found.accuracy
    total, first_is_1 = 0.0, 0.0
    for classes in product((0, 1), repeat=4):
        p = 0.5**4
        for i, r, c in zip(votes.item, votes.rater, votes.choice, strict=True):
            p *= accuracy[r] if classes[i] == c else 1 - accuracy[r]
        total += p
        first_is_1 += p * classes[0]
    prior = np.sum(4 * np.log(accuracy) + 2 * np.log(1 - accuracy))
    assert found.objective[-1] == pytest.approx(np.log(total) + prior, abs=1e-12)
    assert found.posterior[0, 1] == pytest.approx(first_is_1 / total, abs=1e-12)


def test_no_nearby_accuracies_have_a_higher_objective():
    """The end is a maximum of the marginal posterior, computed here item by item."""
    votes, _ = draw(coins([0.9, 0.8, 0.7, 0.6]), [0.5, 0.5], items=60, votes_per_item=3, seed=7)
    found = one_coin(votes)

    def objective(accuracy):
        value = np.sum(4 * np.log(accuracy) + 2 * np.log(1 - accuracy))
        for i in range(60):
            mine = votes.item == i
            a, c = accuracy[votes.rater[mine]], votes.choice[mine]
            value += np.log(0.5 * np.prod(np.where(c == 1, a, 1 - a)) + 0.5 * np.prod(np.where(c == 0, a, 1 - a)))
        return value

    best = objective(found.accuracy)
    assert best == pytest.approx(found.objective[-1], abs=1e-9)
    for direction in np.random.default_rng(0).normal(size=(20, 4)):
        assert objective(np.clip(found.accuracy + 0.01 * direction, 0.02, 0.98)) < best


def test_a_single_vote_is_trusted_as_a_newcomers():
    votes = Votes.of(["x"], ["r"], ["a"], ("a", "b"))
    found = one_coin(votes)
    assert found.posterior[0, 0] == pytest.approx(2 / 3)
    assert found.evidence[0] == pytest.approx(0.0, abs=1e-12)
    assert found.low[0] < 0.3


def test_working_alone_proves_nothing():
    """A hundred votes on items that nobody else judged leave the prior's interval as it was."""
    votes = Votes.of([f"i{n}" for n in range(100)], ["r"] * 100, ["a", "b"] * 50)
    found = one_coin(votes)
    newcomer = one_coin(Votes.of(["x"], ["r"], ["a"], ("a", "b")))
    assert found.accuracy[0] == pytest.approx(2 / 3, abs=1e-3)
    assert (found.low[0], found.high[0]) == pytest.approx((newcomer.low[0], newcomer.high[0]), abs=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_items_that_nobody_else_judged_are_no_evidence_however_common_their_class(model):
    alone = Votes.of([f"i{n}" for n in range(40)], ["r"] * 40, ["a"] * 36 + ["b"] * 4)
    assert model(alone).evidence[0] == 0.0
    with_gold = np.array([0, 0] + [-1] * 38)
    assert model(alone, with_gold).evidence[0] == pytest.approx(2.0)


def test_with_gold_on_every_item_it_is_the_beta_posterior():
    """Known truth: accuracy (right + 4)/(n + 6), evidence n, and the quantiles of Beta(right + 4, wrong + 2)."""
    votes, truth = draw(coins([0.8, 0.4]), [0.5, 0.5], items=50, votes_per_item=2, seed=8)
    found = one_coin(votes, truth)
    for r in range(2):
        hits = (votes.choice == truth[votes.item])[votes.rater == r].sum()
        assert found.accuracy[r] == pytest.approx((hits + 4) / 56)
        assert found.evidence[r] == pytest.approx(50)
        for bound, share in ((found.low[r], 0.025), (found.high[r], 0.975)):
            below = mpmath.betainc(int(hits) + 4, 50 - int(hits) + 2, 0, float(bound), regularized=True)
            assert float(below) == pytest.approx(share, abs=1e-12)


@for_each(product([1, 30, 2000], [0.5, 0.95, 0.99]))
def test_the_interval_cuts_off_equal_tails_of_the_beta_distribution(votes, level):
    """A rater who is right in 90 % of golds, by the incomplete beta function to 30 digits."""
    names = [f"i{n}" for n in range(votes)]
    choices = ["b" if n % 10 == 9 else "a" for n in range(votes)]
    found = one_coin(Votes.of(names, ["r"] * votes, choices, ("a", "b")), np.zeros(votes), level=level)
    a, b = choices.count("a") + 4, choices.count("b") + 2
    with mpmath.workdps(30):
        below = [float(mpmath.betainc(a, b, 0, float(x[0]), regularized=True)) for x in (found.low, found.high)]
    assert below == pytest.approx([(1 - level) / 2, (1 + level) / 2], abs=1e-9)


def test_intervals_cover_the_accuracy_that_was_planted():
    """300 raters of 20 votes each, three votes per item: nobody's truth is known."""
    planted = np.random.default_rng(9).beta(4, 2, size=300)
    votes, _ = draw(coins(planted), [0.5, 0.5], items=2000, votes_per_item=3, seed=9)
    found = one_coin(votes)
    assert ((found.low < planted) & (planted < found.high)).mean() > 0.9
    assert np.mean(found.evidence) < 0.7 * len(votes) / 300


def test_gold_overrules_a_majority_of_adversaries():
    """Five of seven raters are wrong four times out of five: without gold the lie is the truth."""
    votes, truth = draw(coins([0.9, 0.9] + [0.2] * 5), [0.5, 0.5], items=400, votes_per_item=7, seed=10)
    gold = np.where(np.arange(400) < 30, truth, -1)
    assert hard(one_coin(votes).posterior[30:], truth[30:]) < 0.2
    assert hard(one_coin(votes, gold).posterior[30:], truth[30:]) > 0.9
    assert right(one_coin(votes, gold).posterior[:30], truth[:30]) == 1.0


@for_each(range(8))
def test_classes_never_trade_places(seed):
    """Rare classes, few votes, mediocre raters: the labels still mean what they say."""
    votes, truth = draw(coins([0.6] * 10, 3), [0.7, 0.2, 0.1], items=150, votes_per_item=4, seed=seed)
    for model in MODELS:
        found = model(votes)
        assert hard(found.posterior, truth) > 0.5
        assert np.all(np.diagonal(found.confusion, axis1=1, axis2=2).mean(axis=0) > 1 / 3)


def test_swapping_the_sides_swaps_the_posterior():
    votes, _ = draw(coins([0.8, 0.6, 0.7], 3), [0.3, 0.3, 0.4], items=80, votes_per_item=2, seed=11)
    swapped = Votes(votes.item, votes.rater, 2 - votes.choice, votes.items, votes.raters, votes.choices)
    for fit in MODELS:
        np.testing.assert_allclose(fit(swapped).posterior, fit(votes).posterior[:, ::-1], atol=1e-9)


def test_swapping_one_item_swaps_only_its_posterior():
    """Which response is called a is decided per item, so one-coin must not care."""
    votes, _ = draw(coins([0.8, 0.6, 0.7]), [0.5, 0.5], items=40, votes_per_item=2, seed=12)
    swap = np.arange(40) % 3 == 0
    turned = np.where(swap[votes.item], 1 - votes.choice, votes.choice)
    other = one_coin(Votes(votes.item, votes.rater, turned, votes.items, votes.raters, votes.choices))
    expected = one_coin(votes).posterior
    expected = np.where(swap[:, None], expected[:, ::-1], expected)
    np.testing.assert_allclose(other.posterior, expected, atol=1e-9)


def test_whole_weights_are_repeated_votes():
    votes, _ = draw(coins([0.8, 0.6, 0.7]), [0.5, 0.5], items=30, votes_per_item=2, seed=13)
    again = np.concatenate([np.arange(len(votes)), np.arange(10)])
    doubled = Votes(
        votes.item[again], votes.rater[again], votes.choice[again], votes.items, votes.raters, votes.choices
    )
    weight = np.where(np.arange(len(votes)) < 10, 2.0, 1.0)
    for model in MODELS:
        np.testing.assert_allclose(model(votes, weight=weight).posterior, model(doubled).posterior, atol=1e-9)


def test_the_majority_shares_a_draw():
    votes = Votes.of(["x", "x", "y"], ["r", "s", "r"], ["a", "b", "b"])
    assert majority(votes).tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_nonsense_is_refused():
    votes = Votes.of(["x", "y"], ["r", "r"], ["a", "b"])
    with pytest.raises(TutelageError, match="at least two"):
        one_coin(Votes.of(["x"], ["r"], ["a"]))
    with pytest.raises(TutelageError, match="each of the 2 items"):
        dawid_skene(votes, np.array([0]))
    with pytest.raises(TutelageError, match="below 2"):
        dawid_skene(votes, np.array([0, 2]))


def test_weights_on_lonely_votes_make_nobody_infallible() -> None:
    """Nine items in ten have one vote, strong votes weigh double: the raters' accuracy still comes from the rest."""
    rng = np.random.default_rng(5)
    truth = rng.integers(2, size=8000)
    accuracy = np.array([0.82, 0.82, 0.82, 0.82, 0.5, 0.2])
    item = np.concatenate([np.arange(8000), np.arange(800)])
    first = rng.integers(6, size=8000)
    rater = np.concatenate([first, (first[:800] + rng.integers(1, 6, size=800)) % 6])
    right = rng.random(len(item)) < accuracy[rater]
    choice = np.where(right, truth[item], 1 - truth[item])
    votes = Votes.of([str(i) for i in item], [str(r) for r in rater], ["ab"[c] for c in choice])
    found = one_coin(votes, weight=rng.choice([0.5, 1.0, 1.5], size=len(item)))
    assert found.accuracy == pytest.approx(accuracy[[int(name) for name in votes.raters]], abs=0.1)

import numpy as np
import pytest

from tutelage.base.errors import TutelageError
from tutelage.stats.reliability import one_coin
from tutelage.stats.strength import strength_scale
from tutelage.stats.votes import Votes


def strong_and_weak_votes(accuracy, items, seed):
    """Two votes per item; a vote of strength s is right with probability accuracy[s], independently."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(2, size=(items, 1))
    strength = generator.integers(len(accuracy), size=(items, 2))
    wrong = generator.random((items, 2)) >= np.asarray(accuracy)[strength]
    item, rater = np.indices((items, 2))
    names = tuple(map(str, range(items)))
    votes = Votes(item.ravel(), rater.ravel(), (truth ^ wrong).ravel(), names, ("r", "s"), ("a", "b"))
    return votes, strength.ravel(), truth.ravel()


def test_it_recovers_how_often_votes_of_each_strength_are_right():
    planted = [0.55, 0.7, 0.8, 0.95]
    votes, strength, _ = strong_and_weak_votes(planted, 40_000, seed=0)
    scale = strength_scale(votes, strength)
    np.testing.assert_allclose(scale.accuracy, planted, atol=0.02)
    average = np.mean(planted)
    agreement = [a * average + (1 - a) * (1 - average) for a in planted]
    np.testing.assert_allclose(scale.agreement, agreement, atol=0.012)
    assert scale.pairs.sum() == 80_000


def test_a_scale_that_means_nothing_is_flat():
    votes, strength, _ = strong_and_weak_votes([0.8] * 4, 20_000, seed=1)
    scale = strength_scale(votes, strength)
    assert np.ptp(scale.accuracy) < 0.03
    np.testing.assert_allclose(scale.weights(np.arange(4)), 1.0, atol=0.12)


def test_an_inverted_scale_is_pooled_to_the_average():
    votes, strength, _ = strong_and_weak_votes([0.9, 0.8, 0.7, 0.6], 20_000, seed=2)
    scale = strength_scale(votes, strength)
    np.testing.assert_allclose(scale.agreement, scale.overall, atol=1e-9)


def test_the_scale_never_falls_and_rare_strengths_stay_near_the_average():
    votes, strength, _ = strong_and_weak_votes([0.6, 0.7, 0.8, 0.9], 300, seed=3)
    strength = np.where(strength == 3, 2, strength)
    strength[0] = 3
    scale = strength_scale(votes, strength)
    assert np.all(np.diff(scale.agreement) >= 0)
    assert scale.pairs[3] == 1
    assert abs(scale.agreement[3] - scale.overall) < max(1 / 21, scale.agreement[2] - scale.overall + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_pooling_is_the_largest_of_the_smallest_means(seed):
    """The least-squares fit that never falls, in closed form (Barlow et al. 1972):

    fit_s = max over l ≤ s of min over u ≥ s of the mean share of l … u
    """
    planted = np.random.default_rng(seed).uniform(0.5, 0.95, size=6)
    votes, strength, _ = strong_and_weak_votes(planted, 500, seed)
    found = strength_scale(votes, strength, levels=6, pseudo=20.0)
    agree = (votes.choice.reshape(-1, 2) == votes.choice.reshape(-1, 2)[:, ::-1]).ravel()
    mass = np.array([(strength == s).sum() + 20.0 for s in range(6)])
    total = np.array([agree[strength == s].sum() + 20.0 * agree.mean() for s in range(6)])
    mean = {
        (low, high): total[low : high + 1].sum() / mass[low : high + 1].sum()
        for high in range(6)
        for low in range(high + 1)
    }
    fit = [max(min(mean[low, high] for high in range(s, 6)) for low in range(s + 1)) for s in range(6)]
    assert any(np.diff(fit) == 0), "something has to be pooled"
    np.testing.assert_allclose(found.agreement, fit, atol=1e-12)


def test_weighting_votes_by_their_strength_finds_the_truth_more_often():
    votes, strength, truth = strong_and_weak_votes([0.55, 0.65, 0.8, 0.95], 5000, seed=4)
    scale = strength_scale(votes, strength)
    plain = one_coin(votes).posterior.argmax(axis=1)
    weighted = one_coin(votes, weight=scale.weights(strength)).posterior.argmax(axis=1)
    assert (weighted == truth).mean() > (plain == truth).mean() + 0.05


def test_agreeing_shares_by_hand():
    """Item x: a a b. Each a agrees with one of two others, the b with none."""
    votes = Votes.of(["x"] * 3 + ["y"] * 2, ["r", "s", "t", "r", "s"], ["a", "a", "b", "b", "b"])
    scale = strength_scale(votes, np.array([1, 1, 0, 2, 2]), levels=3, pseudo=0.0)
    assert scale.agreement.tolist() == [0.0, 0.5, 1.0]
    assert scale.pairs.tolist() == [2, 4, 2]
    assert scale.overall == pytest.approx(3 / 5)


def test_what_cannot_be_calibrated_is_refused():
    even = Votes.of("xxyy", "rsrs", "abab")
    with pytest.raises(TutelageError, match="no better than chance"):
        strength_scale(even, np.zeros(4, dtype=int))
    with pytest.raises(TutelageError, match="two raters"):
        strength_scale(Votes.of("xy", "rs", "ab"), np.zeros(2, dtype=int))
    with pytest.raises(TutelageError, match="outside 0 to 3"):
        strength_scale(even, np.array([0, 1, 2, 4]))
    with pytest.raises(TutelageError, match="two choices"):
        strength_scale(Votes.of("xxx", "rst", "abc"), np.zeros(3, dtype=int))

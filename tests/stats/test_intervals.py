import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each
from scipy.stats import binomtest, ttest_1samp

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import Mean, cluster_weights, mean_interval, ratio_interval, wilson
from tutelage.stats.paired import win_rate


@for_each(
    [
        (*counts, level)
        for counts, level in product([(0, 5), (3, 7), (50, 100), (100, 100), (812, 1600)], [0.9, 0.95, 0.99])
    ]
)
def test_wilson_is_scipys(successes, trials, level):
    found = wilson(successes, trials, level)
    other = binomtest(successes, trials).proportion_ci(level, method="wilson")
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=1e-12)


@for_each([(100, 0.096), (400, 0.049), (1600, 0.0245)])
def test_the_width_of_an_even_win_rate(trials, half_width):
    found = wilson(trials / 2, trials)
    assert (found.high - found.low) / 2 == pytest.approx(half_width, abs=0.001)


def test_nothing_to_estimate_from():
    assert wilson(0, 0).value is None
    assert ratio_interval(np.array([]), np.array([]), np.array([], dtype=int)).value is None
    alone = ratio_interval(np.array([1.0, 0.0]), np.ones(2), np.array([7, 7]))
    assert (alone.value, alone.low, alone.high) == (0.5, None, None)


def test_the_bootstrap_is_seeded():
    generator = np.random.default_rng(0)
    rows = (generator.random(50), np.ones(50), np.arange(50))
    assert ratio_interval(*rows, seed=1) == ratio_interval(*rows, seed=1)
    assert ratio_interval(*rows, seed=1) != ratio_interval(*rows, seed=2)


def test_the_bootstrap_has_the_clustered_standard_error():
    """For a mean with equal clusters the standard error is known: that of the mean of the cluster means."""
    generator = np.random.default_rng(1)
    means = generator.normal(size=400)
    values = (means[:, None] + 0.3 * generator.normal(size=(400, 5))).ravel()
    found = ratio_interval(values, np.ones(2000), np.repeat(np.arange(400), 5), draws=4000)
    known = 1.96 * values.reshape(400, 5).mean(axis=1).std() / np.sqrt(400)
    assert found.high - found.low == pytest.approx(2 * known, rel=0.05)
    assert found.value == pytest.approx(values.mean())


def test_the_bootstrap_is_that_of_drawing_clusters_one_by_one():
    """The multinomial over distinct rows against the plain form, on a ratio with unequal clusters."""
    generator = np.random.default_rng(2)
    cluster = generator.integers(60, size=300)
    top, bottom = generator.integers(3, size=300).astype(float), np.full(300, 2.0)
    by_cluster = [(top[cluster == c].sum(), bottom[cluster == c].sum()) for c in range(60)]
    sums = np.array([np.sum([by_cluster[i] for i in generator.integers(60, size=60)], axis=0) for _ in range(2000)])
    plain = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    found = ratio_interval(top, bottom, cluster, draws=5000)
    assert (found.low, found.high) == pytest.approx(plain, abs=0.006)


def test_the_interval_covers_the_truth_in_95_percent_of_studies():
    """Win rate of .6 with prompts of very different difficulty, three comparisons each."""
    generator = np.random.default_rng(3)
    covered = 0
    prompt = np.repeat(np.arange(120), 3)
    for study in range(300):
        p = generator.beta(1.2, 0.8, size=120)
        outcome = (generator.random(360) < p[prompt]).astype(float)
        found = win_rate(outcome, prompt, draws=300, seed=study)
        covered += found.low < 0.6 < found.high
    assert 0.91 < covered / 300 < 0.98


def test_a_win_rate_counts_a_tie_as_half():
    found = win_rate(np.array([1.0, 1.0, 0.5, 0.0]), np.array([1, 2, 3, 4]))
    assert found.value == 0.625
    assert (found.wins, found.ties, found.losses, found.prompts) == (2, 1, 1, 4)


def test_a_clean_sweep_keeps_an_interval():
    """Resampling eight wins gives only wins; eight prompts still prove little."""
    found = win_rate(np.ones(16), np.repeat(np.arange(8), 2))
    assert found.value == 1.0
    assert found.low == pytest.approx(binomtest(8, 8).proportion_ci(0.95, method="wilson").low)


def test_other_outcomes_are_refused():
    with pytest.raises(TutelageError, match=r"outcome 0\.7"):
        win_rate(np.array([0.7]), np.array([0]))


def test_cluster_weights_draw_whole_clusters():
    cluster = np.array([5, 5, 9, 1, 9, 9])
    drawn = list(cluster_weights(cluster, draws=400, seed=0))
    for weight in drawn:
        assert weight[0] == weight[1]
        assert weight[2] == weight[4] == weight[5]
        assert weight[[0, 2, 3]].sum() == 3
    assert np.mean(drawn) == pytest.approx(1.0, abs=0.05)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30), st.randoms())
def test_a_mean_is_that_of_the_t_test_in_any_order(values: list[float], dice: random.Random) -> None:
    mean = mean_interval(values)
    again = mean_interval(dice.sample(values, len(values)))
    assert again == mean
    assert mean.value is not None
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low <= mean.value <= mean.high
    if np.ptp(values) > 1e-6:
        expected = ttest_1samp(values, 0.0)
        assert mean.p == pytest.approx(expected.pvalue, abs=1e-9)
        assert (mean.low, mean.high) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-6, abs=1e-9)


def test_a_mean_without_spread_or_values() -> None:
    assert mean_interval([]) == Mean(None, None, None, None, 0)
    assert mean_interval([2.0]) == Mean(2.0, None, None, None, 1)
    assert mean_interval([0.0, 0.0]) == Mean(0.0, 0.0, 0.0, 1.0, 2)
    assert mean_interval([2.0, 2.0]) == Mean(2.0, 2.0, 2.0, 0.0, 2)

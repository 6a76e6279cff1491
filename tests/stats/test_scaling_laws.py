"""Best-of-n and the curves of over-optimisation against enumeration, closed forms and made-up curves."""

from itertools import combinations
from math import comb, exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.base.errors import TutelageError
from tutelage.rollout.inference.best_of_n import best_of_n_kl
from tutelage.stats.scaling_laws import ScalingLaw, best_of_n, fit_law


def by_enumeration(proxy: np.ndarray, value: np.ndarray, n: int) -> float:
    """The mean over all subsets of n; ties within a subset are decided by lot."""
    total = 0.0
    for subset in combinations(range(len(proxy)), n):
        best = max(proxy[i] for i in subset)
        total += np.mean([value[i] for i in subset if proxy[i] == best])
    return total / comb(len(proxy), n)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-5, 5)), min_size=1, max_size=7), st.integers(1, 7))
def test_best_of_n_is_the_mean_over_all_subsets_ties_included(samples: list[tuple[int, float]], n: int) -> None:
    n = min(n, len(samples))
    proxy, value = (np.array(column, float) for column in zip(*samples, strict=True))
    assert best_of_n(proxy[None], value[None], n)[0] == pytest.approx(by_enumeration(proxy, value, n), abs=1e-9)


def test_best_of_one_is_the_mean_and_best_of_all_the_favourite() -> None:
    rng = np.random.default_rng(0)
    proxy, value = rng.normal(size=(2, 5, 600))
    assert np.allclose(best_of_n(proxy, value, 1), value.mean(1))
    assert np.allclose(best_of_n(proxy, value, 600), value[np.arange(5), proxy.argmax(1)])


def test_best_of_n_of_uniform_proxies_is_n_over_n_plus_one() -> None:
    """E[max of n uniforms] = n/(n+1); the estimator's spread over prompts tells how near it must be."""
    proxy = np.random.default_rng(1).uniform(size=(400, 64))
    for n in (2, 8, 32):
        found = best_of_n(proxy, proxy, n)
        assert abs(found.mean() - n / (n + 1)) < 4 * found.std() / 20


def test_it_does_not_depend_on_the_order_of_the_samples_nor_on_a_monotone_change_of_the_proxy() -> None:
    rng = np.random.default_rng(2)
    proxy, value = rng.normal(size=(2, 3, 50))
    mixed = rng.permutation(50)
    expected = best_of_n(proxy, value, 7)
    assert np.allclose(best_of_n(proxy[:, mixed], value[:, mixed], 7), expected)
    assert np.allclose(best_of_n(np.exp(proxy), value, 7), expected)


@pytest.mark.parametrize("n", [0, 5])
def test_more_than_there_are_is_refused(n: int) -> None:
    with pytest.raises(TutelageError, match=f"best of {n} .*from 4"):
        best_of_n(np.zeros((1, 4)), np.zeros((1, 4)), n)


def test_the_kl_of_best_of_n_is_that_of_the_maximum_of_uniforms() -> None:
    """The best of n has density n u^(n-1) in the rank u of the proxy; its KL is the integral of that times its log."""
    u = (np.arange(400_000) + 0.5) / 400_000
    for n in (1, 2, 4, 64, 256):
        density = n * u ** (n - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            integral = np.nan_to_num(density * np.log(density)).mean()
        assert best_of_n_kl(n) == pytest.approx(integral, abs=1e-3)
    assert [round(best_of_n_kl(n), 2) for n in (4, 16, 64, 256)] == [0.64, 1.84, 3.17, 4.55]


@pytest.mark.parametrize(
    ("form", "curve"), [("best_of_n", lambda d: d * (1.3 - 0.2 * d)), ("rl", lambda d: d * (1.3 - 0.2 * log(d)))]
)
def test_a_curve_of_the_form_is_found_again(form, curve) -> None:
    d = [0.0, 0.3, 0.8, 1.5, 2.2, 3.1]
    found = fit_law(form, d, [0.7, *map(curve, d[1:])])  # at d = 0 anything may stand: it is left out
    assert found is not None
    assert (found.alpha, found.beta, found.r2) == pytest.approx((1.3, 0.2, 1.0))
    assert found(1.7) == pytest.approx(curve(1.7))
    assert found.peak is not None
    assert all(found(found.peak) >= found(found.peak + step) for step in (-0.1, -1e-3, 1e-3, 0.1))


def test_peaks_are_those_of_the_closed_forms() -> None:
    assert ScalingLaw("best_of_n", 1.0, 0.25, 1.0).peak == 2.0
    assert ScalingLaw("rl", 1.0, 0.5, 1.0).peak == pytest.approx(exp(1.0))
    for straight in (
        ScalingLaw("best_of_n", 1.0, 0.0, 1.0),
        ScalingLaw("rl", 1.0, -0.1, 1.0),
        ScalingLaw("best_of_n", -1.0, 0.1, 1.0),
    ):
        assert straight.peak is None
    assert ScalingLaw("rl", 1.0, 1e-4, 1.0).peak is None, "beyond all numbers is never"


def test_too_few_points_make_no_curve() -> None:
    assert fit_law("rl", [0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 1.0, 1.0]) is None

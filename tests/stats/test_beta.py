import numpy as np
import pytest
from scipy.stats import beta as scipy_beta

from tutelage.stats.beta import beta_cdf, beta_quantile

SHAPES = [(0.5, 0.5), (1, 1), (4, 2), (2, 40), (300, 7), (5000, 4000), (60000, 90000)]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_cumulative_probability_is_scipys(a, b):
    mean, deviation = a / (a + b), np.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
    x = np.concatenate([np.linspace(0, 1, 21), np.clip(mean + deviation * np.linspace(-6, 6, 25), 0, 1)])
    np.testing.assert_allclose(beta_cdf(x, a, b), scipy_beta.cdf(x, a, b), rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("p", [0.005, 0.025, 0.5, 0.975])
def test_the_quantile_is_scipys_and_inverts_the_cumulative_probability(p):
    a, b = np.array(SHAPES, dtype=float).T
    x = beta_quantile(p, a, b)
    np.testing.assert_allclose(x, scipy_beta.ppf(p, a, b), atol=1e-10)
    np.testing.assert_allclose(beta_cdf(x, a, b), p, atol=1e-7)


def test_the_ends_of_the_range():
    assert beta_cdf([-1.0, 0.0, 1.0, 2.0], 3.0, 2.0).tolist() == [0.0, 0.0, 1.0, 1.0]

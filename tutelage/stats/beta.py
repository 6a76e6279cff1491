"""The Beta distribution's cumulative probability and quantile, for credible intervals and exact binomial
tests.

    I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) · 1 / (1 + d_1 / (1 + d_2 / (1 + …)))
    d_{2m} = m (b - m) x / ((a + 2m - 1)(a + 2m)),   d_{2m+1} = -(a + m)(a + b + m) x / ((a + 2m)(a + 2m + 1))

The continued fraction converges fast for x < (a + 1)/(a + b + 2); elsewhere I_x(a, b) = 1 - I_{1-x}(b, a).
Source: DLMF 8.17.22 with the evaluation of Lentz (1976) as modified by Thompson and Barnett (1986).
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from tutelage.stats.votes import Floats

_TINY = 1e-300
_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def beta_cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """P(X ≤ x) for X ~ Beta(a, b), elementwise with broadcasting; a, b > 0; x is cut to [0, 1]."""
    x, a, b = np.broadcast_arrays(
        np.clip(np.asarray(x, dtype=float), 0.0, 1.0), np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    )
    swap = x > (a + 1) / (a + b + 2)
    x, a, b = np.where(swap, 1 - x, x), np.where(swap, b, a), np.where(swap, a, b)
    with np.errstate(divide="ignore"):
        log_front = (
            a * np.log(x) + b * np.log1p(-x) + _log_gamma(a + b) - _log_gamma(a) - _log_gamma(b) - np.log(a)
        )
    tail = np.exp(log_front) / _continued_fraction(x, a, b)
    return np.where(swap, 1 - tail, tail)


def _continued_fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    value = np.ones_like(x)
    c, d = np.ones_like(x), np.zeros_like(x)
    for step in range(1, 10_000):
        m = step // 2
        if step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 + term * d
        d = 1 / np.where(np.abs(d) < _TINY, _TINY, d)
        c = 1 + term / c
        c = np.where(np.abs(c) < _TINY, _TINY, c)
        value = value * c * d
        if np.all(np.abs(c * d - 1) < 1e-14):
            break
    return value


def beta_quantile(p: float, a: ArrayLike, b: ArrayLike) -> Floats:
    """The x with P(X ≤ x) = p for X ~ Beta(a, b), elementwise, by bisection to within 1e-12."""
    a, b = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    low, high = np.zeros_like(a), np.ones_like(a)
    for _ in range(40):
        middle = (low + high) / 2
        below = beta_cdf(middle, a, b) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2

"""Intervals for shares and ratios (Wilson's for display, the cluster bootstrap for reported results) and means."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from tutelage.stats.vote_codes import Floats, sum_by

_CELLS = 2_000_000  # resampling counts in memory at once


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval. All None without data; bounds None with a single cluster."""

    value: float | None
    low: float | None
    high: float | None


def share_text(interval: Interval) -> str:
    """A share with its interval in percent, for messages: 71% (64% to 78%)."""
    if interval.value is None:
        return "an unknown share"
    bounds = "" if interval.low is None else f" ({interval.low:.0%} to {interval.high:.0%})"
    return f"{interval.value:.0%}{bounds}"


def points_text(interval: Interval) -> str:
    """A difference of shares with its interval in percentage points, for messages: +12 points (+3 to +21)."""
    if interval.value is None:
        return "an unknown number of points"
    bounds = "" if interval.low is None else f" ({100 * interval.low:+.0f} to {100 * (interval.high or 0):+.0f})"
    return f"{100 * interval.value:+.0f} points{bounds}"


@dataclass(frozen=True)
class Mean(Interval):
    """A mean of `n` values with its interval, and the two-sided p-value of a mean of 0. Interval and p are None for a
    single value, all but `n` without values."""

    p: float | None
    n: int


def mean_interval(values: Sequence[float], level: float = 0.95) -> Mean:
    """The mean of independent values with Student's interval and test: x̄ ± t s / √n, t with n − 1 degrees of freedom.

    For the differences of two models on the same prompts, this is the paired t-test. Without any spread the interval is
    the mean itself, and p is 1 for a mean of 0, else 0. The order of the values does not matter.
    """
    n = len(values)
    if n < 2:
        return Mean(float(values[0]) if n else None, None, None, None, n)
    mean = math.fsum(values) / n
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    if error <= 1e-12 * abs(mean):
        return Mean(mean, mean, mean, float(mean == 0), n)
    from scipy.stats import t

    half = float(t.ppf((1 + level) / 2, n - 1)) * error
    return Mean(mean, mean - half, mean + half, float(2 * t.sf(abs(mean) / error, n - 1)), n)


def normal_quantile(level: float) -> float:
    """The two-sided normal quantile: z with P(|Z| ≤ z) = level, 1.96 for .95."""
    return NormalDist().inv_cdf((1 + level) / 2)


def wilson(successes: float, trials: float, level: float = 0.95) -> Interval:
    """Wilson's score interval for a share (Wilson 1927), with p = successes/trials:

    (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    `successes` may be fractional (a tie as half a win).
    """
    if trials <= 0:
        return Interval(None, None, None)
    z, p = normal_quantile(level), successes / trials
    centre = p + z * z / (2 * trials)
    half = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials**2))
    scale = 1 + z * z / trials
    return Interval(p, max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def ratio_interval(
    numerator: Floats, denominator: Floats, cluster: ArrayLike, *, draws: int = 1000, seed: int = 0, level: float = 0.95
) -> Interval:
    """The ratio Σ numerator / Σ denominator with a percentile interval from resampling whole clusters (Field and
    Welsh 2007).

    All arrays are [N]; rows with equal `cluster` (a number or a text) are drawn together, because answers to one prompt
    are not independent. A share of exactly 0 or 1 has no spread to resample: its interval is Wilson's over clusters.
    """
    if len(numerator) == 0 or denominator.sum() == 0:
        return Interval(None, None, None)
    value = float(numerator.sum() / denominator.sum())
    code = np.unique(cluster, return_inverse=True)[1]
    size = int(code.max()) + 1
    rows = np.stack([sum_by(code, column, size) for column in (numerator, denominator)], axis=1)
    rows = rows[rows[:, 1] > 0]
    if len(rows) < 2:
        return Interval(value, None, None)
    if value in (0.0, 1.0):
        return wilson(value * len(rows), len(rows), level)
    sums = _resampled_sums(rows, draws, seed)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))


def _resampled_sums(rows: Floats, draws: int, seed: int) -> Floats:
    """[draws, D]: column sums over C clusters drawn with replacement from `rows` [C, D].

    Clusters with equal rows are exchangeable, so the counts of *distinct* rows are multinomial: the same
    distribution at a cost independent of the number of clusters.
    """
    rows = rows[np.lexsort(rows.T)]
    first = np.concatenate([[True], np.any(rows[1:] != rows[:-1], axis=1)])
    distinct = rows[first]
    share = np.diff(np.append(np.flatnonzero(first), len(rows))) / len(rows)
    generator = np.random.default_rng(seed)
    size = max(1, _CELLS // len(distinct))
    parts = [
        generator.multinomial(len(rows), share, size=min(size, draws - start)) @ distinct
        for start in range(0, draws, size)
    ]
    return np.concatenate(parts)


def cluster_weights(cluster: ArrayLike, *, draws: int, seed: int) -> Iterator[Floats]:
    """Bootstrap weights for statistics that must be refitted: yields `draws` arrays [N], the multiplicity of each row's
    cluster in one resample of whole clusters."""
    code = np.unique(cluster, return_inverse=True)[1]
    clusters = int(code.max()) + 1 if len(code) else 0
    generator = np.random.default_rng(seed)
    for _ in range(draws):
        yield np.bincount(generator.integers(clusters, size=clusters), minlength=clusters)[code].astype(float)

"""Series from data: running averages, histograms, scatter plots with regression line."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tutelage.report.figures.charts import Series
from tutelage.report.figures.scales import round_step

Z95 = NormalDist().inv_cdf(0.975)
"""Half-width of a 95 % interval in standard errors."""


def smoothed(values: Sequence[float], window: int) -> tuple[float, ...]:
    """Running average by local linear regression over `window` points (at the ends, the first or last `window` points).

    Away from the ends this is the plain mean; at the ends it neither lags behind a trend, as the mean would, nor
    follows the noise of the last value. Non-finite values are excluded from the fits and stay unchanged.
    """
    value, index = np.asarray(values, dtype=np.float64), np.arange(len(values), dtype=np.int64)
    finite = np.isfinite(value)
    if not finite.any():
        return tuple(values)
    centre = value[finite].mean()
    low = np.clip(index - window // 2, 0, max(len(value) - window, 0))
    high = np.minimum(low + window, len(value))

    def over(terms: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        total = np.concatenate([[0.0], np.cumsum(np.where(finite, terms, 0.0))])
        return total[high] - total[low]

    x, y = index - (len(value) - 1) / 2, np.where(finite, value - centre, 0.0)
    count, mean = np.maximum(over(np.ones(len(value))), 1.0), over(x)
    spread = count * over(x * x) - mean**2
    slope = np.divide(count * over(x * y) - mean * over(y), spread, out=np.zeros(len(value)), where=spread > 0)
    line = centre + over(y) / count + slope * (x - mean / count)
    return tuple(np.where(finite, line, value).tolist())


def averaged(
    x: Sequence[float], y: Sequence[float], error: Sequence[float], label: str, colour: int, *, window: int
) -> Series:
    """A running average with the 95 % band from the standard errors of its points. All inputs are [T]."""
    line, variance = smoothed(y, window), smoothed([e * e for e in error], window)
    half = [Z95 * math.sqrt(max(v, 0.0) / window) for v in variance]
    low, high = (tuple(a + sign * h for a, h in zip(line, half, strict=True)) for sign in (-1, 1))
    return Series(tuple(x), line, label, colour=colour, low=low, high=high)


def bin_width(values: Sequence[float], bins: int = 24) -> float:
    """A round bin width that gives at most about `bins` bins; an integer for integer values, so that all bins cover
    equally many of them."""
    finite = [v for v in values if math.isfinite(v)]
    span = max(finite, default=0.0) - min(finite, default=0.0)
    width = round_step(span, bins) if span > 0 else 1.0
    return float(math.ceil(width)) if all(v.is_integer() for v in finite) else width


def histogram(values: Sequence[float], width: float, label: str = "", *, colour: int = 0) -> tuple[Series, ...]:
    """Histogram with bin edges at the multiples of `width`, so no bin crosses zero. Ignores non-finite values; no
    series without values."""
    columns = Counter(math.floor(v / width) for v in values if math.isfinite(v))
    if not columns:
        return ()
    filled = range(min(columns), max(columns) + 1)
    x = tuple((column + 0.5) * width for column in filled)
    y = tuple(float(columns[column]) for column in filled)
    return (Series(x, y, label, mark="bars", colour=colour, width=width),)


def fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float] | None:
    """Least squares y = a + b x and the correlation: (a, b, r). None with fewer than three finite points, or if x or y
    is constant."""
    pairs = [(u, v) for u, v in zip(x, y, strict=True) if math.isfinite(u) and math.isfinite(v)]
    if len(pairs) < 3:
        return None
    mean_x, mean_y = (math.fsum(column) / len(pairs) for column in zip(*pairs, strict=True))
    xx = math.fsum((u - mean_x) ** 2 for u, _ in pairs)
    yy = math.fsum((v - mean_y) ** 2 for _, v in pairs)
    xy = math.fsum((u - mean_x) * (v - mean_y) for u, v in pairs)
    if xx == 0 or yy == 0:
        return None
    slope = xy / xx
    return mean_y - slope * mean_x, slope, xy / math.sqrt(xx * yy)


def scatter(
    x: Sequence[float], y: Sequence[float], label: str = "", *, notes: Sequence[str] = ()
) -> tuple[Series, ...]:
    """Points, and their regression line if there is one."""
    points = Series(tuple(x), tuple(y), label, mark="points", style="faint", notes=tuple(notes))
    line = fit(x, y)
    if line is None:
        return (points,)
    ends = (min(filter(math.isfinite, x)), max(filter(math.isfinite, x)))
    return points, Series(ends, tuple(line[0] + line[1] * end for end in ends), colour=1, style="dashed")

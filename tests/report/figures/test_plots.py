"""Series from data: averages, histograms and fits against what they are by definition, or by numpy."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.report.figures.plots import averaged, bin_width, fit, histogram, scatter, smoothed

from .reading import NAN

tame = st.floats(-1e6, 1e6)


@given(st.lists(tame, min_size=1, max_size=60))
def test_a_histogram_counts_everything_once(values: list[float]) -> None:
    width = bin_width(values)
    (series,) = histogram(values, width)
    assert sum(series.y) == len(values)
    assert len(series.x) <= 27
    for x, y in zip(series.x, series.y, strict=True):
        assert y == sum(math.floor(v / width) == round(x / width - 0.5) for v in values)


def test_whole_numbers_get_columns_of_equally_many() -> None:
    assert bin_width([float(n) for n in range(61)]) == 3
    assert bin_width([1.0, 2.0, 2.0]) == 1
    assert bin_width([0.0, 6.1]) == pytest.approx(0.5)
    assert histogram([NAN], 1.0) == ()


@given(st.integers(1, 40), st.integers(1, 25), tame, st.floats(-10, 10))
def test_the_running_average_of_a_line_is_the_line(n: int, window: int, start: float, slope: float) -> None:
    line = [start + slope * i for i in range(n)]
    assert smoothed(line, window) == pytest.approx(tuple(line), abs=1e-6 * (1 + abs(start)))


def test_the_running_average_is_the_mean_in_the_middle_and_a_fitted_line_at_the_end() -> None:
    values = [float(v) for v in np.random.default_rng(0).normal(size=30)]
    found = smoothed(values, 7)
    for i in range(3, 27):
        assert found[i] == pytest.approx(np.mean(values[i - 3 : i + 4]))
    slope, start = np.polyfit(range(23, 30), values[23:], 1)
    assert found[29] == pytest.approx(start + 29 * slope)


def test_the_running_average_steps_over_gaps() -> None:
    found = smoothed([1.0, 2.0, NAN, 4.0, 5.0], 3)
    assert math.isnan(found[2])
    assert [found[i] for i in (0, 1, 3, 4)] == pytest.approx([1, 2, 4, 5])
    assert all(math.isnan(v) for v in smoothed([NAN, NAN], 3))


def test_a_fit_agrees_with_numpy() -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=40)
    y = 2 * x + random.normal(size=40)
    found = fit([*x, NAN], [*y, 1.0])
    assert found is not None
    slope, start = np.polyfit(x, y, 1)
    assert found == pytest.approx((start, slope, np.corrcoef(x, y)[0, 1]))
    assert fit([1, 2], [1, 2]) is None
    assert fit([1, 1, 1], [1, 2, 3]) is None


def test_the_line_through_a_scatter_is_the_fit() -> None:
    points, line = scatter([0, 1, 2, NAN], [1, 3, 5, 0])
    assert points.mark == "points"
    assert line.x == (0, 2)
    assert line.y == pytest.approx((1, 5))
    assert len(scatter([1.0], [1.0])) == 1


def test_a_running_average_carries_the_error_of_its_window() -> None:
    series = averaged(range(9), [2.0] * 9, [0.3] * 9, "flat", 0, window=3)
    assert series.y == pytest.approx([2.0] * 9)
    half = NormalDist().inv_cdf(0.975) * 0.3 / 3**0.5
    assert series.low == pytest.approx([2 - half] * 9)
    assert series.high == pytest.approx([2 + half] * 9)

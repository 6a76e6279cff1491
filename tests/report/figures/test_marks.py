"""Thinned lines keep their outline."""

import numpy as np
import pytest

from tutelage.report.figures.marks import STROKES, runs, thin


@pytest.mark.parametrize("size", [501, 777, 5000])
def test_thinning_keeps_ends_and_extremes(size: int) -> None:
    values = [float(v) for v in np.random.default_rng(size).standard_cauchy(size)]
    kept = thin([(float(i), v) for i, v in enumerate(values)])
    assert len(kept) <= STROKES + 4
    assert kept[0] == (0.0, values[0])
    assert kept[-1] == (float(len(values) - 1), values[-1])
    assert min(v for _, v in kept) == min(values)
    assert max(v for _, v in kept) == max(values)
    assert kept == sorted(kept)


def test_runs_are_the_stretches_without_a_gap() -> None:
    assert list(runs([])) == []
    assert list(runs([3])) == [[3]]
    assert list(runs([0, 1, 3, 4, 5, 9])) == [[0, 1], [3, 4, 5], [9]]

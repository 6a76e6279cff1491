"""Hover texts hold every value of every line, and their columns tile the plot."""

from itertools import pairwise

import pytest

from tutelage.report.figures import Axis, Chart, Series
from tutelage.report.figures.layout import frame

from .reading import NAN, PIXEL, drawn, titles, with_class


def test_hovering_tells_every_value_of_every_line() -> None:
    chart = Chart(
        "c", (Series((1, 2, 3), (0.25, 0.5, NAN), "a"), Series((1, 3), (7.0, 8.0), "b")), Axis("step")
    )
    assert titles(drawn(chart)) == ["step 1\na 0.25\nb 7", "step 2\na 0.5", "step 3\nb 8"]


def test_hover_columns_tile_the_plot() -> None:
    chart = Chart("c", (Series(tuple(range(1000)), tuple(range(1000)), "a"),))
    columns = with_class(drawn(chart), "slice")
    at = frame(chart)
    edges = [(float(c.get("x", "")), float(c.get("width", ""))) for c in columns]
    assert len(columns) <= 100
    assert edges[0][0] == pytest.approx(at.x.start)
    assert sum(width for _, width in edges) == pytest.approx(at.x.end - at.x.start, abs=PIXEL * len(edges))
    assert all(a + width == pytest.approx(b, abs=2 * PIXEL) for (a, width), (b, _) in pairwise(edges))

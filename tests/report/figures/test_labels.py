"""Names stand where their lines end, none on another, none outside."""

from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tutelage.report.figures import Axis, Chart, Names, Series, draw
from tutelage.report.figures.labels import LINE


def chart(ends: list[float], names: Names = "ends") -> Chart:
    series = tuple(Series((0.0, 1.0), (0.0, end), f"line {i}", colour=i % 6) for i, end in enumerate(ends))
    return Chart("Test", series, Axis("x"), Axis("y"), height=300, names=names)


def named(drawing: str) -> list[tuple[float, float, str]]:
    root = ElementTree.fromstring(drawing)
    found = [e for e in root.iter() if e.tag.endswith("text") and "end" in e.get("class", "")]
    return [(float(e.get("x", "")), float(e.get("y", "")), e.text or "") for e in found]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12))
@example([0.0] * 7 + [8.0, -3.0, -5.0, -5.0])
def test_every_line_is_named_once_and_no_two_names_meet(ends: list[float]) -> None:
    placed = named(draw(chart(ends)))
    assert sorted(name for *_, name in placed) == sorted(f"line {i}" for i in range(len(ends)))
    heights = sorted(y for _, y, _ in placed)
    assert all(b - a >= LINE - 0.11 for a, b in pairwise(heights))
    assert all(0 < y < 300 for y in heights)


def test_names_keep_the_order_of_their_lines_and_stay_at_them_where_there_is_room() -> None:
    placed = {name: y for _, y, name in named(draw(chart([1.0, 9.0, 5.0])))}
    assert placed["line 1"] < placed["line 2"] < placed["line 0"], "up is small"
    near = {name: y for _, y, name in named(draw(chart([1.0, 1.01, 9.0])))}
    assert abs(near["line 0"] - near["line 1"]) == pytest.approx(LINE, abs=0.2)


def test_scattered_names_do_not_meet_while_there_is_room() -> None:
    points = [(0.2, 0.5), (0.21, 0.5), (0.5, 0.9), (0.52, 0.88), (0.9, 0.1)]
    series = tuple(Series((x,), (y,), f"point {i}", mark="points", colour=i) for i, (x, y) in enumerate(points))
    placed = named(draw(Chart("Test", series, Axis("x", low=0.0, high=1.0), Axis("y"), names="points")))
    boxes = [(x, y, 6.2 * len(name)) for x, y, name in placed]
    for (x, y, width), (u, v, other) in combinations(boxes, 2):
        assert x >= u + other or u >= x + width or abs(y - v) >= LINE - 0.11
    assert all(x >= 0 and x + width <= 440 for x, _, width in boxes)

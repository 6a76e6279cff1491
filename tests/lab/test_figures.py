"""Names stand where their lines end, none on another, none outside; and the files stand alone."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tutelage.lab.figures import LINE, averaged, draw_named, standalone
from tutelage.report.charts import Axis, Chart, Series


def chart(ends: list[float], height: float = 300.0) -> Chart:
    series = tuple(Series((0.0, 1.0), (0.0, end), f"line {i}", colour=i % 6) for i, end in enumerate(ends))
    return Chart("Test", series, Axis("x"), Axis("y"), height=height)


def names(drawing: str) -> list[tuple[float, float, str]]:
    root = ElementTree.fromstring(drawing)
    found = [e for e in root.iter() if e.tag.endswith("text") and "end" in e.get("class", "")]
    return [(float(e.get("x", "")), float(e.get("y", "")), e.text or "") for e in found]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12))
@example([0.0] * 7 + [8.0, -3.0, -5.0, -5.0])
def test_every_line_is_named_once_and_no_two_names_meet(ends: list[float]) -> None:
    placed = names(draw_named(chart(ends)))
    assert sorted(name for *_, name in placed) == sorted(f"line {i}" for i in range(len(ends)))
    heights = sorted(y for _, y, _ in placed)
    assert all(b - a >= LINE - 0.11 for a, b in pairwise(heights))
    assert all(0 < y < 300 for y in heights)


def test_names_keep_the_order_of_their_lines_and_stay_at_them_where_there_is_room() -> None:
    placed = {name: y for _, y, name in names(draw_named(chart([1.0, 9.0, 5.0])))}
    assert placed["line 1"] < placed["line 2"] < placed["line 0"], "up is small"
    near = {name: y for _, y, name in names(draw_named(chart([1.0, 1.01, 9.0])))}
    assert abs(near["line 0"] - near["line 1"]) == pytest.approx(LINE, abs=0.2)


def test_scattered_names_do_not_meet_while_there_is_room() -> None:
    points = [(0.2, 0.5), (0.21, 0.5), (0.5, 0.9), (0.52, 0.88), (0.9, 0.1)]
    series = tuple(
        Series((x,), (y,), f"point {i}", mark="points", colour=i) for i, (x, y) in enumerate(points)
    )
    placed = names(draw_named(Chart("Test", series, Axis("x", low=0.0, high=1.0), Axis("y")), beside=False))
    boxes = [(x, y, 6.2 * len(name)) for x, y, name in placed]
    for (x, y, width), (u, v, other) in combinations(boxes, 2):
        assert x >= u + other or u >= x + width or abs(y - v) >= LINE - 0.11
    assert all(x >= 0 and x + width <= 440 for x, _, width in boxes)


def test_a_running_average_carries_the_error_of_its_window() -> None:
    series = averaged(range(9), [2.0] * 9, [0.3] * 9, "flat", 0, window=3)
    assert series.y == pytest.approx([2.0] * 9)
    half = 1.96 * 0.3 / 3**0.5
    assert series.low == pytest.approx([2 - half] * 9)
    assert series.high == pytest.approx([2 + half] * 9)


def test_a_file_is_well_formed_has_its_own_colours_for_light_and_dark_and_nothing_that_needs_a_pointer() -> (
    None
):
    written = standalone(draw_named(chart([1.0, 2.0])))
    root = ElementTree.fromstring(written)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("height")) == ("440", "300")
    assert "prefers-color-scheme: dark" in written
    assert "--c0" in written
    assert 'class="slice"' not in written
    assert not re.findall(r"<title>", written)
    assert {name for *_, name in names(written)} == {"line 0", "line 1"}

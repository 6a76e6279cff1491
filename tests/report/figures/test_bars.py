"""Bars and intervals by geometry."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.report.figures import Axis, BarChart, Rule, ValueBar, column_strip, draw, interval_strip, parts_strip
from tutelage.report.figures.bars import bar_scale

from .reading import NAN, PIXEL, pixels, with_class


def test_lengths_of_bars_are_in_proportion() -> None:
    chart = BarChart("time", (ValueBar("a", 10.0, "10 s"), ValueBar("b", 40.0, "40 s")), Axis(low=0.0))
    short, long = (float(b.get("width", "")) for b in with_class(ET.fromstring(draw(chart)), "bar"))
    assert long == pytest.approx(4 * short, abs=0.3)


@given(st.floats(0, 1), st.floats(0, 0.3))
def test_estimates_lie_inside_their_interval(value: float, half: float) -> None:
    bar = ValueBar("a", value, "x", max(0.0, value - half), min(1.0, value + half))
    chart = BarChart("t", (bar,), Axis(low=0.0, high=1.0), (Rule(0.5, "coin"),), "dot")
    for root, at in (
        (ET.fromstring(draw(chart)), bar_scale(chart)),
        (ET.fromstring(interval_strip(bar, 0.0, 1.0, rule=0.5)), None),
    ):
        (disc,) = with_class(root, "point")
        ((left, _), (right, _)) = pixels(with_class(root, "whisker")[0])
        assert left - PIXEL <= float(disc.get("cx", "")) <= right + PIXEL
        if at:
            assert at.invert(float(disc.get("cx", ""))) == pytest.approx(value, abs=0.001)


def sizes(drawing: str, class_: str, side: str) -> list[float]:
    return [float(rect.get(side, "")) for rect in with_class(ET.fromstring(drawing), class_)]


def test_an_estimate_outside_its_line_is_drawn_at_the_end() -> None:
    root = ET.fromstring(interval_strip(ValueBar("a", 7.0, "7", -1.0, 9.0), 0.0, 1.0, rule=3.0))
    (base,), (whisker,), (rule,) = (with_class(root, name) for name in ("grid", "whisker", "rule"))
    start, end = (x for x, _ in pixels(base))
    assert [x for x, _ in pixels(whisker)] == [start, end]
    assert [x for x, _ in pixels(rule)] == [end, end]
    assert float(with_class(root, "point")[0].get("cx", "")) == end
    assert root.get("aria-label") == "a: 7"


def test_an_unknown_estimate_is_a_bare_line() -> None:
    root = ET.fromstring(interval_strip(ValueBar("a", NAN), 0.0, 1.0))
    assert with_class(root, "point") == with_class(root, "whisker") == with_class(root, "rule") == []
    assert len(with_class(root, "grid")) == 1


def test_columns_are_as_high_as_their_counts_and_the_last_one_stands_out() -> None:
    drawing = column_strip([0, 5, 10], "days")
    (_, half), (whole,) = sizes(drawing, "c5", "height"), sizes(drawing, "c0", "height")
    assert whole == 2 * half == 36
    assert sizes(column_strip([], "none"), "bar", "height") == []
    assert sizes(column_strip([0, 0], "none"), "bar", "height") == [1, 1]


def test_the_parts_of_a_bar_are_its_shares() -> None:
    drawing = parts_strip([("a", 1), ("tie", 0), ("b", 3)], "votes")
    assert sizes(drawing, "a", "width") == [250]
    assert sizes(drawing, "tie", "width") == []
    assert sizes(drawing, "b", "x") == [250]
    assert sizes(drawing, "b", "width") == [750]
    assert ET.fromstring(drawing).get("viewBox") == "0 0 1000 8"

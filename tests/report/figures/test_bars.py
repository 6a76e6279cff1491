"""Bars and intervals by geometry."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.report.figures import Axis, BarChart, Rule, ValueBar, draw, interval_strip
from tutelage.report.figures.bars import bar_scale

from .reading import PIXEL, pixels, with_class


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

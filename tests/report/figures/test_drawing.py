"""Thinned lines keep their outline."""

import math
from collections.abc import Iterator
from itertools import combinations, pairwise
from xml.etree import ElementTree
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.report.figures import Axis, BarChart, Chart, Names, Rule, Series, ValueBar, draw
from tutelage.report.figures.drawing import LINE, STROKES, runs, thin
from tutelage.report.figures.plots import bin_width, histogram
from tutelage.report.figures.scales import frame

from .reading import NAN, PIXEL, drawn, pixels, strokes, titles, with_class


@for_each([501, 777, 5000])
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


def test_hovering_tells_every_value_of_every_line() -> None:
    chart = Chart("c", (Series((1, 2, 3), (0.25, 0.5, NAN), "a"), Series((1, 3), (7.0, 8.0), "b")), Axis("step"))
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


wild = st.floats(allow_nan=True, allow_infinity=True)


def test_a_line_read_back_is_its_data() -> None:
    x, y = (0.0, 1.0, 2.5, 7.0), (3.0, -1.0, 4.0, 4.5)
    chart = Chart("c", (Series(x, y, "line"),))
    at, (line,) = frame(chart), strokes(chart)
    for (px, py), a, b in zip(line, x, y, strict=True):
        assert at.x.invert(px) == pytest.approx(a, abs=0.01)
        assert at.y.invert(py) == pytest.approx(b, abs=0.01)


def test_more_is_higher_and_later_is_further_right() -> None:
    chart = Chart("c", (Series(tuple(range(50)), tuple(i**1.5 for i in range(50)), "rising"),))
    (line,) = strokes(chart)
    assert all(a[0] < b[0] and a[1] > b[1] - PIXEL for a, b in pairwise(line))
    assert line[0][1] > line[-1][1]


@given(st.lists(st.tuples(wild, wild), min_size=1, max_size=30), st.booleans(), st.booleans())
def test_everything_drawn_is_inside_the_plot(points: list[tuple[float, float]], log: bool, dots: bool) -> None:
    x, y = (tuple(column) for column in zip(*points, strict=True))
    chart = Chart("c", (Series(x, y, "s", mark="points" if dots else "line"),), x=Axis(log=log), y=Axis(log=log))
    at, root = frame(chart), drawn(chart)
    places = [place for path in with_class(root, "line") for place in pixels(path)]
    places += [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in with_class(root, "point")]
    for px, py in places:
        assert at.x.start - PIXEL <= px <= at.x.end + PIXEL
        assert at.y.end - PIXEL <= py <= at.y.start + PIXEL
    drawable = [p for p in points if at.x.shows(p[0]) and at.y.shows(p[1])]
    assert bool(places) == bool(drawable)
    if dots:
        assert len(places) == len(drawable)


def test_a_gap_breaks_the_line() -> None:
    y = (1.0, 2.0, NAN, 3.0, 4.0, math.inf, 5.0)
    chart = Chart("c", (Series(tuple(range(7)), y, "s"),))
    assert [len(line) for line in strokes(chart)] == [2, 2]
    assert len(with_class(drawn(chart), "point")) == 1, "the lone last point is a dot"


def test_what_is_not_positive_breaks_a_line_on_a_log_axis() -> None:
    chart = Chart("c", (Series((1, 2, 3, 4, 5), (10.0, 1.0, 0.0, 100.0, 10.0), "s"),), y=Axis(log=True))
    assert [len(line) for line in strokes(chart)] == [2, 2]
    (falling, _) = strokes(chart)
    (_, high), (_, low) = falling
    at = frame(chart)
    assert low - high == pytest.approx((at.y.start - at.y.end) / 2, abs=2 * PIXEL), "one of two decades"


def test_nothing_to_draw_is_said() -> None:
    for series in ((), (Series((1.0,), (NAN,), "s"),), (Series((), (), "s"),)):
        assert "nothing to draw yet" in draw(Chart("c", series))


def test_a_band_lies_around_its_line() -> None:
    x, y = tuple(map(float, range(20))), tuple(math.sin(i) for i in range(20))
    chart = Chart("c", (Series(x, y, "s", low=tuple(v - 1 for v in y), high=tuple(v + 2 for v in y)),))
    (band,) = with_class(drawn(chart), "band")
    outline, (line,), at = pixels(band), strokes(chart), frame(chart)
    assert len(outline) == 40
    for (px, py), (tx, top), (bx, bottom) in zip(line, outline[:20], outline[:19:-1], strict=True):
        assert px == tx == bx
        assert at.y.invert(top) - at.y.invert(py) == pytest.approx(2, abs=0.05)
        assert at.y.invert(py) - at.y.invert(bottom) == pytest.approx(1, abs=0.05)


def test_rules_stand_where_they_say_and_widen_the_axis() -> None:
    chart = Chart("c", (Series((0.0, 1.0), (0.2, 0.3), "s"),), rules=(Rule(0.9, "ceiling"), Rule(0.5, axis="x")))
    at, root = frame(chart), drawn(chart)
    level, upright = (pixels(path) for path in with_class(root, "rule") if path.tag == "path")
    assert [at.y.invert(y) for _, y in level] == pytest.approx([0.9, 0.9], abs=0.01)
    assert [at.x.invert(x) for x, _ in upright] == pytest.approx([0.5, 0.5], abs=0.01)
    assert [t.text for t in with_class(root, "rule") if t.tag == "text"] == ["ceiling"]


def test_a_legend_only_where_there_is_something_to_tell_apart() -> None:
    one, two = Series((0.0, 1.0), (0.0, 1.0), "one"), Series((0.0, 1.0), (1.0, 0.0), "two", colour=1)
    aid = Series((0.0, 1.0), (0.5, 0.5))
    assert with_class(drawn(Chart("c", (one, aid))), "key") == []
    assert [t.text for t in with_class(drawn(Chart("c", (one, two, aid))), "key")] == ["one", "two"]


def test_many_names_wrap_instead_of_leaving_the_drawing() -> None:
    runs = tuple(Series((0.0, 1.0), (float(i), 0.0), f"run number {i}", colour=i % 6) for i in range(9))
    chart = Chart("c", runs)
    keys = with_class(drawn(chart), "key")
    assert len(keys) == 9
    assert len({key.get("y") for key in keys}) > 1
    assert all(float(key.get("x", "")) + 6 * len(key.text or "") < chart.width for key in keys)
    assert max(float(key.get("y", "")) for key in keys) < frame(chart).y.end


def test_a_name_wider_than_the_drawing_keeps_both_ends() -> None:
    names = ["experiments/" * 20 + f"seed-{seed}" for seed in range(2)]
    chart = Chart("c", tuple(Series((0.0, 1.0), (0.0, 1.0), name) for name in names))
    keys = with_class(drawn(chart), "key")
    for key, name in zip(keys, names, strict=True):
        start, end = (key.text or "").split("…")
        assert len(start) == len(end) > 10
        assert name.startswith(start)
        assert name.endswith(end)
        assert float(key.get("x", "")) + 7 * len(key.text or "") < chart.width
    assert len({key.text for key in keys}) == 2


def test_hostile_words_stay_words() -> None:
    evil = "</text><script>alert(1)</script>\"' & \x00"
    series = (Series((0, 1), (0, 1), evil), Series((0,), (0,), evil + "2", mark="points", notes=(evil,)))
    root = drawn(Chart(evil, series, Axis(evil), Axis(evil), (Rule(0.5, evil),)))
    assert {element.tag for element in root.iter()} <= {"svg", "path", "text", "title", "g", "circle", "rect"}
    assert root.get("aria-label") == evil.replace("\x00", "�")
    bars = ET.fromstring(draw(BarChart(evil, (ValueBar(evil, 1.0, evil),))))
    assert {element.tag for element in bars.iter()} <= {"svg", "path", "text", "title", "g", "rect"}


def test_series_of_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 x but 1 y"):
        Series((0.0, 1.0), (1.0,), "s")
    with pytest.raises(ValueError, match="1 notes"):
        Series((0.0, 1.0), (1.0, 2.0), "s", notes=("x",))


def columns(chart: Chart) -> Iterator[tuple[float, float, float]]:
    """Left and right edge and height of every bar, in data."""
    at = frame(chart)
    for bar in with_class(drawn(chart), "bar"):
        x, y, width, height = (float(bar.get(key, "nan")) for key in ("x", "y", "width", "height"))
        if bar.tag == "rect" and y >= at.y.end - PIXEL:
            yield at.x.invert(x - 0.5), at.x.invert(x + width + 0.5), at.y.invert(y) - at.y.invert(y + height)


@for_each([(Axis("x", percent=True), 1.0), (Axis("x"), 2_000.0), (Axis("x"), 1_250_000.0)])
def test_the_last_tick_label_is_inside_the_drawing(axis: Axis, end: float) -> None:
    """A letter of 11 pixels is 7 wide in the widest usual font, a point or comma 3.5 and a per cent sign 10.5."""
    drawing = draw(Chart("Test", (Series((0.0, end), (0.0, 1.0)),), axis, Axis("y")))
    texts = [e for e in ElementTree.fromstring(drawing).iter() if e.get("text-anchor") == "middle"]
    at, label = max((float(e.get("x", "")), e.text or "") for e in texts)
    assert at + sum({"%": 10.5, ",": 3.5, ".": 3.5}.get(letter, 7.0) for letter in label) / 2 <= 440


def test_bars_are_as_high_as_their_counts_and_none_crosses_zero() -> None:
    values = [-0.7, -0.1, 0.0, 0.1, 0.15, 0.9, 1.4, NAN]
    width = bin_width(values, bins=10)
    chart = Chart("c", histogram(values, width))
    found = list(columns(chart))
    assert sum(height for *_, height in found) == pytest.approx(7, abs=0.1)
    assert all(left > -0.02 or right < 0.02 for left, right, _ in found)
    for left, right, height in found:
        first, last = round(left / width) * width, round(right / width) * width
        assert last - first == pytest.approx(width)
        assert height == pytest.approx(sum(first <= v < last for v in values), abs=0.05)


def test_several_runs_share_one_chart() -> None:
    runs = {"kl 0.05": (0.1, 0.5, 0.9), "kl 0": (0.1, 0.8, 0.2)}
    chart = Chart("gold", tuple(Series((0, 1, 2), y, name, colour=i) for i, (name, y) in enumerate(runs.items())))
    at, lines = frame(chart), strokes(chart)
    assert [[round(at.y.invert(y), 2) for _, y in line] for line in lines] == [list(y) for y in runs.values()]


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

"""Charts by geometry: what is drawn, read back through the inverse of the scales, is the data."""

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.report.bars import Bar, Bars, bar_scale, draw_bars, strip
from tutelage.report.charts import Axis, Chart, Rule, Series, frame
from tutelage.report.drawing import draw
from tutelage.report.marks import STROKES, thin
from tutelage.report.page import environment
from tutelage.report.plots import Bin, bin_width, fit, histogram, reliability, scatter, smoothed

NAN = math.nan
PIXEL = 0.051  # places are written to a tenth of a pixel
wild = st.floats(allow_nan=True, allow_infinity=True)
tame = st.floats(-1e6, 1e6)


def drawn(chart: Chart) -> ET.Element:
    return ET.fromstring(draw(chart))


def with_class(root: ET.Element, *names: str) -> list[ET.Element]:
    return [element for element in root.iter() if set(names) <= set(element.get("class", "").split())]


def pixels(path: ET.Element) -> list[tuple[float, float]]:
    numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def strokes(chart: Chart) -> list[list[tuple[float, float]]]:
    """The lines in the plot: without the swatches of the legend, which lie above it."""
    at = frame(chart)
    lines = [pixels(path) for path in with_class(drawn(chart), "line")]
    return [line for line in lines if all(y >= at.y.end - PIXEL for _, y in line)]


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
def test_everything_drawn_is_inside_the_plot(
    points: list[tuple[float, float]], log: bool, dots: bool
) -> None:
    x, y = (tuple(column) for column in zip(*points, strict=True))
    chart = Chart(
        "c", (Series(x, y, "s", mark="points" if dots else "line"),), x=Axis(log=log), y=Axis(log=log)
    )
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
    chart = Chart(
        "c", (Series((0.0, 1.0), (0.2, 0.3), "s"),), rules=(Rule(0.9, "ceiling"), Rule(0.5, axis="x"))
    )
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


def titles(root: ET.Element) -> list[str]:
    return [title.text or "" for title in root.iter("title")]


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


def test_hostile_words_stay_words() -> None:
    evil = "</text><script>alert(1)</script>\"' & \x00"
    series = (Series((0, 1), (0, 1), evil), Series((0,), (0,), evil + "2", mark="points", notes=(evil,)))
    root = drawn(Chart(evil, series, Axis(evil), Axis(evil), (Rule(0.5, evil),)))
    assert {element.tag for element in root.iter()} <= {"svg", "path", "text", "title", "g", "circle", "rect"}
    assert root.get("aria-label") == evil.replace("\x00", "�")
    bars = ET.fromstring(draw_bars(Bars(evil, (Bar(evil, 1.0, evil),))))
    assert {element.tag for element in bars.iter()} <= {"svg", "path", "text", "title", "g", "rect"}


def test_series_of_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 x but 1 y"):
        Series((0.0, 1.0), (1.0,), "s")
    with pytest.raises(ValueError, match="1 notes"):
        Series((0.0, 1.0), (1.0, 2.0), "s", notes=("x",))


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


def columns(chart: Chart) -> Iterator[tuple[float, float, float]]:
    """Left and right edge and height of every bar, in data."""
    at = frame(chart)
    for bar in with_class(drawn(chart), "bar"):
        x, y, width, height = (float(bar.get(key, "nan")) for key in ("x", "y", "width", "height"))
        if bar.tag == "rect" and y >= at.y.end - PIXEL:
            yield at.x.invert(x - 0.5), at.x.invert(x + width + 0.5), at.y.invert(y) - at.y.invert(y + height)


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


def test_an_honest_forecaster_lies_on_the_diagonal() -> None:
    bins = [Bin(k / 10, (k + 1) / 10, k / 10 + 0.05, k / 10 + 0.05, 10 * (k + 1)) for k in range(10)]
    chart = reliability(bins)
    at, root = frame(chart), drawn(chart)
    ((x0, y0), (x1, y1)) = pixels(with_class(root, "dashed")[0])
    discs = [
        (float(c.get("cx", "")), float(c.get("cy", "")), float(c.get("r", "")))
        for c in with_class(root, "point", "c0")
    ]
    assert len(discs) == 10
    for x, y, _ in discs:
        assert (y - y0) / (y1 - y0) == pytest.approx((x - x0) / (x1 - x0), abs=0.002)
    area = [r**2 for *_, r in discs]
    assert area[9] / area[4] == pytest.approx(2, rel=0.05), "area, not radius, says how many"
    for whisker, b in zip(with_class(root, "whisker"), bins, strict=True):
        low, high = (at.y.invert(y) for _, y in pixels(whisker))
        assert low < b.observed < high


def test_lengths_of_bars_are_in_proportion() -> None:
    chart = Bars("time", (Bar("a", 10.0, "10 s"), Bar("b", 40.0, "40 s")), Axis(low=0.0))
    short, long = (float(b.get("width", "")) for b in with_class(ET.fromstring(draw_bars(chart)), "bar"))
    assert long == pytest.approx(4 * short, abs=0.3)


@given(st.floats(0, 1), st.floats(0, 0.3))
def test_estimates_lie_inside_their_interval(value: float, half: float) -> None:
    bar = Bar("a", value, "x", max(0.0, value - half), min(1.0, value + half))
    chart = Bars("t", (bar,), Axis(low=0.0, high=1.0), (Rule(0.5, "coin"),), "dot")
    for root, at in (
        (ET.fromstring(draw_bars(chart)), bar_scale(chart)),
        (ET.fromstring(strip(bar, chart.axis, 0.5)), None),
    ):
        (disc,) = with_class(root, "point")
        ((left, _), (right, _)) = pixels(with_class(root, "whisker")[0])
        assert left - PIXEL <= float(disc.get("cx", "")) <= right + PIXEL
        if at:
            assert at.invert(float(disc.get("cx", ""))) == pytest.approx(value, abs=0.001)


def test_several_runs_share_one_chart() -> None:
    runs = {"kl 0.05": (0.1, 0.5, 0.9), "kl 0": (0.1, 0.8, 0.2)}
    chart = Chart(
        "gold", tuple(Series((0, 1, 2), y, name, colour=i) for i, (name, y) in enumerate(runs.items()))
    )
    at, lines = frame(chart), strokes(chart)
    assert [[round(at.y.invert(y), 2) for _, y in line] for line in lines] == [list(y) for y in runs.values()]


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_colours_can_be_told_from_their_ground_in_every_scheme() -> None:
    template = environment().get_template("palette.css").render()
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in template.split(":root")[1:]]
    assert len(schemes) == 3
    for scheme in schemes:
        for ground in ("paper", "panel", "notice"):
            for ink in ("ink", "muted", "good", "bad"):
                assert contrast(scheme[ink], scheme[ground]) >= 4.5, (ink, ground, scheme)
        for series in (f"c{i}" for i in range(6)):
            assert contrast(scheme[series], scheme["panel"]) >= 3, (series, scheme)

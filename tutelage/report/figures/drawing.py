"""Rendering of charts over two axes, from back to front: legend, axes, marks, reference lines, names and hover
texts."""

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from types import MappingProxyType

from tutelage.base.number_text import tick_labels
from tutelage.report.figures import svg
from tutelage.report.figures.charts import Chart, Mark, Rule, Series
from tutelage.report.figures.scales import (
    LEFT,
    LETTER,
    NAME_LETTER,
    ROW,
    Frame,
    frame,
    legend_rows,
    legend_text,
    legend_width,
)

LINE, GAP = 13.0, 7.0
"""Height of a name, and its distance from its point, in pixels."""


@dataclass(frozen=True)
class End:
    """The last drawable point of a series, in pixels, and the label of the series."""

    x: float
    y: float
    label: str
    colour: int

    @property
    def width(self) -> float:
        """The width of the label."""
        return NAME_LETTER * len(self.label)


@dataclass(frozen=True)
class Box:
    """The position of a name: left end, baseline, width."""

    x: float
    y: float
    width: float

    def meets(self, other: "Box") -> bool:
        """Whether two names overlap."""
        beside = self.x >= other.x + other.width or other.x >= self.x + self.width
        return not beside and abs(self.y - other.y) < LINE


def labels(chart: Chart, at: Frame) -> str:
    """The names of all labelled series in their colours; empty for a chart with a legend."""
    if chart.names == "legend":
        return ""
    ends = [
        End(*at.place(series, indices[-1]), series.label, series.colour)
        for series in chart.series
        if series.label and (indices := at.drawable(series))
    ]
    boxes = column(ends, at) if chart.names == "ends" else scattered(ends, at, chart.width)
    return "".join(_label(box, end) for box, end in zip(boxes, ends, strict=True))


def _label(box: Box, end: End) -> str:
    """A name, with a leader line if it is away from its point."""
    words = svg.text(box.x, box.y, end.label, f"end c{end.colour}")
    if abs(box.y - 4 - end.y) < LINE and abs(box.x - end.x) < 2 * GAP:
        return words
    edge = min(max(end.x, box.x), box.x + box.width)
    leader = [(end.x, end.y), (edge - (3 if edge == box.x else 0), box.y - 4)]
    return svg.path(leader, f"leader c{end.colour}") + words


def column(ends: Sequence[End], at: Frame) -> list[Box]:
    """Names to the right of the plot at the heights of their lines' ends, at least one line apart."""
    order = sorted(range(len(ends)), key=lambda i: ends[i].y)
    heights = _spread([ends[i].y for i in order], at.y.end, at.y.start)
    boxes = [(i, Box(at.x.end + GAP, y + 4, ends[i].width)) for i, y in zip(order, heights, strict=True)]
    return [box for _, box in sorted(boxes, key=lambda numbered: numbered[0])]


def _spread(heights: Sequence[float], top: float, foot: float) -> list[float]:
    """The heights nearest to these (least squares) that keep their order, stay a line apart and, as long as
    there is room, inside the plot. A height less the lines above it may only rise with the order, so that this is
    isotonic regression between bounds: pooled neighbours, cut at the bounds (Barlow et al. 1972).
    """
    blocks: list[tuple[float, int]] = []
    for rank, y in enumerate(heights):
        mean, size = y - rank * LINE, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (other * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    last = max(top, foot - (len(heights) - 1) * LINE)
    eased = [min(max(mean, top), last) for mean, size in blocks for _ in range(size)]
    return [y + rank * LINE for rank, y in enumerate(eased)]


def scattered(ends: Sequence[End], at: Frame, width: float) -> list[Box]:
    """Names near their points: for each, the first candidate position that is free of names and points."""
    points = [Box(end.x - 4, end.y + 4, 8.0) for end in ends]
    boxes: list[Box] = []
    for index, end in enumerate(ends):
        inside = [box for box in _around(end) if box.x >= at.x.start and box.x + box.width <= width]
        others = [*points[:index], *points[index + 1 :], *boxes]
        free = (box for box in inside if not any(box.meets(other) for other in others))
        boxes.append(next(free, inside[0] if inside else Box(end.x + GAP, end.y + 4, end.width)))
    return boxes


def _around(end: End) -> Iterator[Box]:
    """Candidate positions right, left, above and below the point, then the same further away."""
    x, y, width = end.x, end.y, end.width
    for reach in (0.0, 14.0, 28.0, 44.0):
        yield Box(x + GAP + reach, y + 4, width)
        yield Box(x - GAP - reach - width, y + 4, width)
        for side in (-1, 1):
            for shift in (-width / 2, GAP, -width - GAP):
                yield Box(x + shift, y + 4 + side * (LINE + 1 + reach), width)


STROKES = 500
"""Maximum number of vertices of a line, enough for the size of a chart."""
RADIUS, LARGEST = 3.0, 9.0


def runs(indices: list[int]) -> Iterator[list[int]]:
    """Consecutive runs of the indices."""
    cuts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(indices)) if b != a + 1), len(indices)]
    yield from (indices[start:end] for start, end in pairwise(cuts) if end > start)


def thin(points: svg.Points) -> svg.Points:
    """Decimate points to about `STROKES` without changing the outline: keeps the first, the last, and the extremes of
    each stretch."""
    if len(points) <= STROKES:
        return points
    size = ceil(2 * len(points) / STROKES)
    vertices = {0, len(points) - 1}
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        vertices |= {min(stretch, key=lambda i: points[i][1]), max(stretch, key=lambda i: points[i][1])}
    return [points[index] for index in sorted(vertices)]


def line(series: Series, chart: Chart, at: Frame) -> str:
    """A line over its band; isolated points and the last point are dots."""
    parts = []
    for run in runs(at.drawable(series)):
        points = [at.place(series, index) for index in run]
        parts.append(band(series, run, at))
        if len(points) > 1:
            parts.append(svg.path(thin(points), f"line {series.style} c{series.colour}"))
        if len(points) == 1 or (series.style == "plain" and run[-1] == len(series.x) - 1):
            parts.append(disc(points[-1], 2.4, f"c{series.colour}"))
    return "".join(parts)


def disc(place: tuple[float, float], radius: float, class_: str) -> str:
    """A filled circle at a position."""
    return svg.tag("circle", cx=place[0], cy=place[1], r=radius, class_=f"point {class_}")


def band(series: Series, run: list[int], at: Frame) -> str:
    """The area between low and high over a run of points."""
    edges = [(at.x(series.x[i]), *ends) for i in run if (ends := interval(series, i, at))]
    outline = thin([(x, high) for x, _, high in edges]) + thin([(x, low) for x, low, _ in edges])[::-1]
    return svg.path(outline, f"band c{series.colour}", closed=True) if edges else ""


def interval(series: Series, index: int, at: Frame) -> tuple[float, float] | None:
    """The pixel positions of a point's interval; None if an end cannot be drawn."""
    if not (series.low and series.high):
        return None
    low, high = series.low[index], series.high[index]
    return (at.y(low), at.y(high)) if at.y.shows(low) and at.y.shows(high) else None


def points(series: Series, chart: Chart, at: Frame) -> str:
    """Discs, each with its whisker and its hover text."""
    parts = []
    for index in at.drawable(series):
        x, y = at.place(series, index)
        radius = LARGEST * sqrt(max(series.size[index], 0.0)) if series.size else RADIUS
        ends = interval(series, index, at)
        whisker = svg.path([(x, end) for end in ends], f"whisker c{series.colour}") if ends else ""
        point = disc((x, y), max(radius, 2.0), f"{series.style} c{series.colour}")
        parts.append(svg.tag("g", svg.tooltip(note(series, index, chart)), whisker, point))
    return "".join(parts)


def bars(series: Series, chart: Chart, at: Frame) -> str:
    """Columns from zero, with small gaps between them."""
    half = series.width / 2
    parts = []
    for index in at.drawable(series):
        left, right = at.x(series.x[index] - half) + 0.5, at.x(series.x[index] + half) - 0.5
        top, foot = sorted((at.y(series.y[index]), at.y(0.0)))
        column = {"x": left, "y": top, "width": max(right - left, 0.5), "height": foot - top}
        hover = svg.tooltip(note(series, index, chart))
        parts.append(svg.tag("rect", hover, class_=f"bar c{series.colour}", **column))
    return "".join(parts)


def note(series: Series, index: int, chart: Chart) -> str:
    """The hover text of a point."""
    if series.notes:
        return series.notes[index]
    x, y = chart.x.written(series.x[index]), chart.y.written(series.y[index])
    return f"{chart.x.label or 'x'} {x}: {y}" + (f" {series.label}" if series.label else "")


MARKS: MappingProxyType[Mark, Callable[[Series, Chart, Frame], str]] = MappingProxyType(
    {"line": line, "points": points, "bars": bars}
)


def swatch(series: Series, x: float, y: float) -> str:
    """The legend swatch of a series, 16 pixels wide, to the left of text with baseline y."""
    if series.mark == "line":
        return svg.path([(x, y - 4), (x + 16, y - 4)], f"line {series.style} c{series.colour}")
    if series.mark == "points":
        return disc((x + 10, y - 4), 4, f"{series.style} c{series.colour}")
    return svg.tag("rect", x=x + 5, y=y - 9, width=10, height=10, class_=f"bar c{series.colour}")


SLICES = 80
"""Maximum number of hover columns of a chart."""


def slices(chart: Chart, at: Frame) -> str:
    """Hover columns, one per x position with values, invisible until the pointer shows the values of all lines
    there."""
    lines = [series for series in chart.series if series.mark == "line" and series.label]
    stops = sorted({at.x(series.x[index]) for series in lines for index in at.drawable(series)})
    if len(stops) > SLICES:
        stops = [stops[round(k * (len(stops) - 1) / (SLICES - 1))] for k in range(SLICES)]
    edges = [at.x.start, *((a + b) / 2 for a, b in pairwise(stops)), at.x.end]
    near = [nearest(series, at, stops, edges[1:-1]) for series in lines]
    parts = []
    for k, (left, right) in enumerate(pairwise(edges) if stops else ()):
        place = f"{chart.x.label or 'x'} {chart.x.written(at.x.invert(stops[k]))}"
        present = [(s, indices[k]) for s, indices in zip(lines, near, strict=True) if k in indices]
        values = [f"{s.label} {chart.y.written(s.y[index])}" for s, index in present]
        column = {"x": left, "y": at.y.end, "width": max(right - left, 0.1), "height": at.y.start - at.y.end}
        parts.append(svg.tag("rect", svg.tooltip(place, *values), class_="slice", **column))
    return "".join(parts)


def nearest(series: Series, at: Frame, stops: list[float], cuts: list[float]) -> dict[int, int]:
    """For each column with a point of a line, the index of the point nearest to the column's stop. There is one cut
    between neighbouring columns."""
    apart: dict[int, tuple[float, int]] = {}
    for index in at.drawable(series):
        pixel = at.x(series.x[index])
        column = bisect(cuts, pixel)
        candidate = (abs(pixel - stops[column]), index)
        apart[column] = min(apart.get(column, candidate), candidate)
    return {column: index for column, (_, index) in apart.items()}


def draw_chart(chart: Chart) -> svg.Svg:
    """Render a chart. Undrawable points (non-finite, or not positive on a logarithmic axis) interrupt the line."""
    at = frame(chart)
    if not any(at.drawable(series) for series in chart.series):
        words = svg.text(chart.width / 2, chart.height / 2, "nothing to draw yet", "name", "middle")
        return svg.document(chart.width, chart.height, chart.title, words)
    return svg.document(
        chart.width,
        chart.height,
        chart.title,
        legend(chart),
        axes(chart, at),
        *(MARKS[series.mark](series, chart, at) for series in chart.series),
        *(upright_rule(r, at) if r.axis == "x" else level_rule(r, chart, at) for r in chart.rules),
        labels(chart, at),
        slices(chart, at),
    )


def legend(chart: Chart) -> str:
    """Rows of swatches and labels above the plot."""
    parts = []
    for row, entries in enumerate(legend_rows(chart)):
        x, y = LEFT, 14.0 + ROW * row
        for series in entries:
            parts += [swatch(series, x, y), svg.text(x + 22, y, legend_text(series, chart), "key")]
            x += legend_width(series, chart)
    return "".join(parts)


def axes(chart: Chart, at: Frame) -> str:
    """Grid lines, tick labels and axis labels."""
    ticks = at.y.ticks(5)
    parts = []
    for tick, label in zip(ticks, tick_labels(ticks, percent=chart.y.percent, log=chart.y.log), strict=True):
        y = at.y(tick)
        parts.append(svg.path([(at.x.start, y), (at.x.end, y)], "grid"))
        parts.append(svg.text(at.x.start - 8, y + 4, label, "tick", "end"))
    ticks = tuple(tick for tick in at.x.ticks(6) if tick.is_integer() or not chart.x.whole)
    for tick, label in zip(ticks, tick_labels(ticks, percent=chart.x.percent, log=chart.x.log), strict=True):
        parts.append(svg.text(at.x(tick), at.y.start + 17, label, "tick", "middle"))
    if chart.x.label:
        parts.append(svg.text(at.x.end, at.y.start + 34, chart.x.label, "name", "end"))
    if chart.y.label:
        parts.append(svg.text(LEFT, at.y.end - 8, chart.y.label, "name"))
    return "".join(parts)


def upright_rule(rule: Rule, at: Frame) -> str:
    """A vertical line, with its label near the upper end, on the side with more room."""
    x = at.x(rule.at)
    shift, anchor = (-5, "end") if x > (at.x.start + at.x.end) / 2 else (5, "start")
    words = svg.text(x + shift, at.y.end + 11, rule.label, "rule", anchor) if rule.label else ""
    return svg.path([(x, at.y.start), (x, at.y.end)], "rule") + words


def level_rule(rule: Rule, chart: Chart, at: Frame) -> str:
    """A horizontal line, with its label above it (below, near the top), at the end with fewer points."""
    y = at.y(rule.at)
    line = svg.path([(at.x.start, y), (at.x.end, y)], "rule")
    if not rule.label:
        return line
    foot = y + (14 if y < at.y.end + 16 else -5)
    width = LETTER * len(rule.label)
    at_left = crowd(chart, at, at.x.start, at.x.start + width, foot)
    at_right = crowd(chart, at, at.x.end - width, at.x.end, foot)
    x, anchor = (at.x.start, "start") if at_left < at_right else (at.x.end, "end")
    return line + svg.text(x, foot, rule.label, "rule", anchor)


def crowd(chart: Chart, at: Frame, left: float, right: float, foot: float) -> int:
    """The number of points behind a line of text with baseline `foot` between left and right."""
    pixels = [at.place(series, index) for series in chart.series for index in at.drawable(series)]
    return sum(left <= x <= right and foot - 14 <= y <= foot + 4 for x, y in pixels)

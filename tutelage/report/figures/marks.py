"""The marks that series become: lines with bands, points with whiskers, bars."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import ceil, sqrt
from types import MappingProxyType

from tutelage.report.figures import svg
from tutelage.report.figures.charts import Chart, Mark, Series
from tutelage.report.figures.layout import Frame

STROKES = 500
"""The most vertices of a line; more of them cannot be seen at the size of a chart."""
RADIUS, LARGEST = 3.0, 9.0


def runs(indices: list[int]) -> Iterator[list[int]]:
    """The indices in stretches without a gap."""
    cuts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(indices)) if b != a + 1), len(indices)]
    yield from (indices[start:end] for start, end in pairwise(cuts) if end > start)


def thin(points: svg.Points, limit: int = STROKES) -> svg.Points:
    """At most about `limit` of the points with the same outline: first, last, and each stretch's extremes."""
    if len(points) <= limit:
        return points
    size = ceil(2 * len(points) / limit)
    kept = {0, len(points) - 1}
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        kept |= {min(stretch, key=lambda i: points[i][1]), max(stretch, key=lambda i: points[i][1])}
    return [points[index] for index in sorted(kept)]


def line(series: Series, chart: Chart, at: Frame) -> str:
    """Strokes through the points over their band; a point without neighbours is a dot, and so is the last one."""
    drawn = []
    for run in runs(at.drawable(series)):
        points = [at.place(series, index) for index in run]
        drawn.append(band(series, run, at))
        if len(points) > 1:
            drawn.append(svg.path(thin(points), f"line {series.style} c{series.colour}"))
        if len(points) == 1 or (series.style == "plain" and run[-1] == len(series.x) - 1):
            drawn.append(disc(points[-1], 2.4, f"c{series.colour}"))
    return "".join(drawn)


def disc(place: tuple[float, float], radius: float, class_: str) -> str:
    """A filled circle around a place."""
    return svg.tag("circle", cx=place[0], cy=place[1], r=radius, class_=f"point {class_}")


def band(series: Series, run: list[int], at: Frame) -> str:
    """The area between low and high over a run of points."""
    edges = [(at.x(series.x[i]), *ends) for i in run if (ends := interval(series, i, at))]
    outline = thin([(x, high) for x, _, high in edges]) + thin([(x, low) for x, low, _ in edges])[::-1]
    return svg.path(outline, f"band c{series.colour}", closed=True) if edges else ""


def interval(series: Series, index: int, at: Frame) -> tuple[float, float] | None:
    """The pixels of both ends of a point's interval; None when one of them cannot be drawn."""
    if not (series.low and series.high):
        return None
    low, high = series.low[index], series.high[index]
    return (at.y(low), at.y(high)) if at.y.shows(low) and at.y.shows(high) else None


def points(series: Series, chart: Chart, at: Frame) -> str:
    """Discs, each with its whisker and its hover text."""
    drawn = []
    for index in at.drawable(series):
        x, y = at.place(series, index)
        radius = LARGEST * sqrt(max(series.size[index], 0.0)) if series.size else RADIUS
        ends = interval(series, index, at)
        whisker = svg.path([(x, end) for end in ends], f"whisker c{series.colour}") if ends else ""
        point = disc((x, y), max(radius, 2.0), f"{series.style} c{series.colour}")
        drawn.append(svg.tag("g", svg.tooltip(note(series, index, chart)), whisker, point))
    return "".join(drawn)


def bars(series: Series, chart: Chart, at: Frame) -> str:
    """Columns from zero, with a hair of space between them."""
    half = series.width / 2
    drawn = []
    for index in at.drawable(series):
        left, right = at.x(series.x[index] - half) + 0.5, at.x(series.x[index] + half) - 0.5
        top, foot = sorted((at.y(series.y[index]), at.y(0.0)))
        column = {"x": left, "y": top, "width": max(right - left, 0.5), "height": foot - top}
        hover = svg.tooltip(note(series, index, chart))
        drawn.append(svg.tag("rect", hover, class_=f"bar c{series.colour}", **column))
    return "".join(drawn)


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
    """The sample of a series in the legend, 16 pixels wide, left of the text whose baseline is y."""
    if series.mark == "line":
        return svg.path([(x, y - 4), (x + 16, y - 4)], f"line {series.style} c{series.colour}")
    if series.mark == "points":
        return disc((x + 10, y - 4), 4, f"{series.style} c{series.colour}")
    return svg.tag("rect", x=x + 5, y=y - 9, width=10, height=10, class_=f"bar c{series.colour}")

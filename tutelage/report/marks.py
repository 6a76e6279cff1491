"""The marks that data become: lines with bands, points with whiskers, bars; and what they tell on hover."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from types import MappingProxyType

from tutelage.report import svg
from tutelage.report.charts import Chart, Frame, Mark, Series

STROKES = 500  # more vertices than this cannot be seen at the size of a chart
SLICES = 80
RADIUS, LARGEST = 3.0, 9.0

Pixels = list[tuple[float, float]]


def drawable(series: Series, at: Frame) -> list[int]:
    """The indices of the points that have a place on the drawing."""
    return [
        i for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)) if at.x.shows(x) and at.y.shows(y)
    ]


def runs(series: Series, at: Frame) -> Iterator[list[int]]:
    """The drawable indices, cut wherever a point in between cannot be drawn."""
    run: list[int] = []
    for index in drawable(series, at):
        if run and index != run[-1] + 1:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def thin(points: Pixels, limit: int = STROKES) -> Pixels:
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
    for run in runs(series, at):
        points = [(at.x(series.x[i]), at.y(series.y[i])) for i in run]
        drawn += [band(series, run, at)] if series.low and series.high else []
        if len(points) > 1:
            path = svg.polyline(thin(points))
            drawn.append(svg.tag("path", d=path, class_=f"line {series.style} c{series.colour}"))
        if len(points) == 1 or (series.style == "plain" and run[-1] == len(series.x) - 1):
            x, y = points[-1]
            drawn.append(svg.tag("circle", cx=x, cy=y, r=2.4, class_=f"point c{series.colour}"))
    return "".join(drawn)


def band(series: Series, run: list[int], at: Frame) -> str:
    """The area between low and high over a run of points."""
    edges = [
        (at.x(series.x[i]), at.y(series.low[i]), at.y(series.high[i]))
        for i in run
        if has_interval(series, i, at)
    ]
    outline = thin([(x, high) for x, _, high in edges]) + thin([(x, low) for x, low, _ in edges])[::-1]
    return (
        svg.tag("path", d=svg.polyline(outline, closed=True), class_=f"band c{series.colour}")
        if edges
        else ""
    )


def has_interval(series: Series, index: int, at: Frame) -> bool:
    """Whether both ends of a point's interval can be drawn."""
    return (
        bool(series.low and series.high) and at.y.shows(series.low[index]) and at.y.shows(series.high[index])
    )


def points(series: Series, chart: Chart, at: Frame) -> str:
    """Discs, each with its whisker and its hover text."""
    drawn = []
    for index in drawable(series, at):
        x, y = at.x(series.x[index]), at.y(series.y[index])
        radius = LARGEST * sqrt(max(series.size[index], 0.0)) if series.size else RADIUS
        whisker = ""
        if has_interval(series, index, at):
            ends = [(x, at.y(series.low[index])), (x, at.y(series.high[index]))]
            whisker = svg.tag("path", d=svg.polyline(ends), class_=f"whisker c{series.colour}")
        disc = svg.tag(
            "circle", cx=x, cy=y, r=max(radius, 2.0), class_=f"point {series.style} c{series.colour}"
        )
        drawn.append(svg.tag("g", svg.title([note(series, index, chart)]), whisker, disc))
    return "".join(drawn)


def bars(series: Series, chart: Chart, at: Frame) -> str:
    """Columns from zero, with a hair of space between them."""
    half = series.width / 2
    drawn = []
    for index in drawable(series, at):
        left, right = at.x(series.x[index] - half) + 0.5, at.x(series.x[index] + half) - 0.5
        top, foot = sorted((at.y(series.y[index]), at.y(0.0)))
        column = {"x": left, "y": top, "width": max(right - left, 0.5), "height": foot - top}
        told = svg.title([note(series, index, chart)])
        drawn.append(svg.tag("rect", told, class_=f"bar c{series.colour}", **column))
    return "".join(drawn)


def note(series: Series, index: int, chart: Chart) -> str:
    """What a point says on hover."""
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
        stroke = svg.polyline([(x, y - 4), (x + 16, y - 4)])
        return svg.tag("path", d=stroke, class_=f"line {series.style} c{series.colour}")
    if series.mark == "points":
        return svg.tag("circle", cx=x + 10, cy=y - 4, r=4, class_=f"point {series.style} c{series.colour}")
    return svg.tag("rect", x=x + 5, y=y - 9, width=10, height=10, class_=f"bar c{series.colour}")


def slices(chart: Chart, at: Frame) -> str:
    """Columns over the plot, one per place where lines have values: invisible until the pointer is on one, which then
    tells all the values there."""
    lines = [placed(series, at) for series in chart.series if series.mark == "line" and series.label]
    stops = sorted({point for line in lines for point in line.pixels})
    if len(stops) > SLICES:
        stops = [stops[round(k * (len(stops) - 1) / (SLICES - 1))] for k in range(SLICES)]
    edges = [at.x.start, *((a + b) / 2 for a, b in pairwise(stops)), at.x.end]
    drawn = []
    for stop, left, right in zip(stops, edges, edges[1:], strict=False):
        found = [
            (line.series, index) for line in lines if (index := line.nearest(stop, left, right)) is not None
        ]
        told = [f"{chart.x.label or 'x'} {chart.x.written(at.x.invert(stop))}"]
        told += [f"{series.label} {chart.y.written(series.y[index])}" for series, index in found]
        column = {"x": left, "y": at.y.end, "width": max(right - left, 0.1), "height": at.y.start - at.y.end}
        drawn.append(svg.tag("rect", svg.title(told), class_="slice", **column))
    return "".join(drawn)


@dataclass(frozen=True)
class Placed:
    """A series with the horizontal pixels of its drawable points, from left to right, and their indices."""

    series: Series
    pixels: tuple[float, ...]
    indices: tuple[int, ...]

    def nearest(self, pixel: float, left: float, right: float) -> int | None:
        """The index of the point nearest to a pixel, of those between left and right."""
        after = bisect_left(self.pixels, pixel)
        near = [
            k for k in (after - 1, after) if 0 <= k < len(self.pixels) and left <= self.pixels[k] <= right
        ]
        return self.indices[min(near, key=lambda k: abs(self.pixels[k] - pixel))] if near else None


def placed(series: Series, at: Frame) -> Placed:
    """Where the points of a series are."""
    places = sorted((at.x(series.x[index]), index) for index in drawable(series, at))
    return Placed(series, tuple(pixel for pixel, _ in places), tuple(index for _, index in places))

"""Hover texts of lines without a script: invisible columns over the plot, each with the values at its place."""

from bisect import bisect
from itertools import pairwise

from tutelage.report.figures import svg
from tutelage.report.figures.charts import Chart, Series
from tutelage.report.figures.layout import Frame

SLICES = 80
"""The most columns of a chart."""


def slices(chart: Chart, at: Frame) -> str:
    """One column per place where lines have values: invisible until the pointer is on one, which then shows the values
    of all lines there."""
    lines = [series for series in chart.series if series.mark == "line" and series.label]
    stops = sorted({at.x(series.x[index]) for series in lines for index in at.drawable(series)})
    if len(stops) > SLICES:
        stops = [stops[round(k * (len(stops) - 1) / (SLICES - 1))] for k in range(SLICES)]
    edges = [at.x.start, *((a + b) / 2 for a, b in pairwise(stops)), at.x.end]
    near = [nearest(series, at, stops, edges[1:-1]) for series in lines]
    drawn = []
    for k, (left, right) in enumerate(pairwise(edges) if stops else ()):
        place = f"{chart.x.label or 'x'} {chart.x.written(at.x.invert(stops[k]))}"
        shown = [(s, found[k]) for s, found in zip(lines, near, strict=True) if k in found]
        values = [f"{s.label} {chart.y.written(s.y[index])}" for s, index in shown]
        column = {"x": left, "y": at.y.end, "width": max(right - left, 0.1), "height": at.y.start - at.y.end}
        drawn.append(svg.tag("rect", svg.tooltip(place, *values), class_="slice", **column))
    return "".join(drawn)


def nearest(series: Series, at: Frame, stops: list[float], cuts: list[float]) -> dict[int, int]:
    """For each column that holds a point of a line, the index of the point nearest to the column's stop. The cuts
    between neighbouring columns are one fewer than the stops."""
    apart: dict[int, tuple[float, int]] = {}
    for index in at.drawable(series):
        pixel = at.x(series.x[index])
        column = bisect(cuts, pixel)
        candidate = (abs(pixel - stops[column]), index)
        apart[column] = min(apart.get(column, candidate), candidate)
    return {column: index for column, (_, index) in apart.items()}

"""The layout of a chart: its scales, and the room that its legend and its names take."""

from collections.abc import Iterator
from dataclasses import dataclass

from tutelage.report.figures.charts import Chart, Series
from tutelage.report.figures.scales import Scale, domain, rounded

LEFT, RIGHT, ROW = 50.0, 14.0, 18.0
LETTER = 7.6
"""An upper estimate of a letter's width in the legend, in pixels: fonts cannot be measured here."""
NAME_LETTER = 6.2
"""The width of a letter in a name beside a line, in pixels."""


@dataclass(frozen=True)
class Frame:
    """The two scales of a chart, which place its data on the drawing."""

    x: Scale
    y: Scale

    def place(self, series: Series, index: int) -> tuple[float, float]:
        """The pixels of a point of a series."""
        return self.x(series.x[index]), self.y(series.y[index])

    def drawable(self, series: Series) -> list[int]:
        """The indices of the points of a series that have a place on the drawing."""
        places = enumerate(zip(series.x, series.y, strict=True))
        return [index for index, (x, y) in places if self.x.shows(x) and self.y.shows(y)]


def frame(chart: Chart) -> Frame:
    """The scales of a chart, with every point, band, whisker and rule inside."""
    xs = [v for s in chart.series for v in _across(s)] + [rule.at for rule in chart.rules if rule.axis == "x"]
    ys = [v for s in chart.series for v in _upright(s)] + [
        rule.at for rule in chart.rules if rule.axis == "y"
    ]
    x_low, x_high = domain(xs, log=chart.x.log, low=chart.x.low, high=chart.x.high)
    y_low, y_high = domain(ys, log=chart.y.log, low=chart.y.low, high=chart.y.high)
    if not chart.y.log:
        y_low, y_high = rounded(y_low, y_high)
    names = [NAME_LETTER * len(series.label) for series in chart.series] if chart.names == "ends" else []
    right = chart.width - RIGHT - max(names, default=0.0)
    top = 12.0 + ROW * (len(legend_rows(chart)) + bool(chart.y.label))
    bottom = chart.height - (40.0 if chart.x.label else 24.0)
    return Frame(
        x=Scale(x_low, x_high, LEFT, right, chart.x.log), y=Scale(y_low, y_high, bottom, top, chart.y.log)
    )


def _across(series: Series) -> Iterator[float]:
    """The values that a series needs on the horizontal axis."""
    half = series.width / 2 if series.mark == "bars" else 0.0
    for x in series.x:
        yield from (x - half, x + half)


def _upright(series: Series) -> Iterator[float]:
    """The values that a series needs on the vertical axis; bars stand on zero."""
    yield from series.y
    yield from series.low
    yield from series.high
    if series.mark == "bars":
        yield 0.0


def legend_rows(chart: Chart) -> list[list[Series]]:
    """The labelled series in as many rows as the legend needs; a single one needs no legend."""
    labelled = [series for series in chart.series if series.label]
    rows: list[list[Series]] = []
    room = 0.0
    for series in labelled if len(labelled) > 1 and chart.names == "legend" else ():
        need = legend_width(series)
        if room < need:
            rows.append([])
            room = chart.width - LEFT - RIGHT
        rows[-1].append(series)
        room -= need
    return rows


def legend_width(series: Series) -> float:
    """The width of one entry of the legend, with its swatch and a gap, in pixels."""
    return 36.0 + LETTER * len(series.label)

"""Charts as frozen values, and where their data lie; `drawing.draw(Chart(...))` makes an SVG string of one.

Nothing here knows what is being plotted. Colours are numbers into the palette of `charts.css` (`.c0`, `.c1`, …), so a
drawing follows the light or dark scheme of the page around it. Several runs in one chart are several series:

    draw(Chart("gold", tuple(Series(steps, gold, name, colour=i) for i, (name, steps, gold) in enumerate(runs))))
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tutelage.report.scales import Scale, domain, number, rounded

Mark: TypeAlias = Literal["line", "points", "bars"]
LEFT, RIGHT, ROW = 50.0, 14.0, 18.0
LETTER = 7.6  # an upper estimate of a letter's width at the size of the legend: fonts cannot be measured here


@dataclass(frozen=True)
class Series:
    """Points of equal kind. `low` and `high`, one per point, are a band around a line or whiskers on points; `size`
    (shares of the largest) sets the area of points; bars are `width` wide in data; `notes` are shown on hover instead
    of the coordinates. A series without a label is an aid to the eye: neither in the legend nor in the hover text."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    label: str = ""
    mark: Mark = "line"
    colour: int = 0
    style: Literal["plain", "faint", "dashed"] = "plain"
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    size: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    width: float = 1.0

    def __post_init__(self) -> None:
        for name in ("y", "low", "high", "size", "notes"):
            values = getattr(self, name)
            if len(values) != len(self.x) and (values or name == "y"):
                raise ValueError(f"series {self.label!r} has {len(self.x)} x but {len(values)} {name}")


@dataclass(frozen=True)
class Axis:
    """How one direction is measured. `low` and `high` are values the axis must reach; it may reach further. A `whole`
    axis counts: it has no ticks between whole numbers."""

    label: str = ""
    log: bool = False
    percent: bool = False
    whole: bool = False
    low: float | None = None
    high: float | None = None

    def written(self, value: float) -> str:
        """A value as this axis would put it."""
        return f"{number(value * 100)}%" if self.percent else number(value)


LINEAR = Axis()


@dataclass(frozen=True)
class Rule:
    """A reference line at a value of one axis."""

    at: float
    label: str = ""
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Chart:
    """Series over two axes. `title` names the drawing for those who cannot see it."""

    title: str
    series: tuple[Series, ...]
    x: Axis = LINEAR
    y: Axis = LINEAR
    rules: tuple[Rule, ...] = ()
    width: float = 440.0
    height: float = 250.0


@dataclass(frozen=True)
class Frame:
    """Where a chart's data lie on its drawing."""

    x: Scale
    y: Scale


def frame(chart: Chart) -> Frame:
    """The scales of a chart: every point, band, whisker and rule is inside."""
    xs = [v for s in chart.series for v in across(s)] + [rule.at for rule in chart.rules if rule.axis == "x"]
    ys = [v for s in chart.series for v in upright(s)] + [rule.at for rule in chart.rules if rule.axis == "y"]
    x_low, x_high = domain(xs, log=chart.x.log, low=chart.x.low, high=chart.x.high)
    y_low, y_high = domain(ys, log=chart.y.log, low=chart.y.low, high=chart.y.high)
    if not chart.y.log:
        y_low, y_high = rounded(y_low, y_high)
    top = 12.0 + ROW * (len(legend_rows(chart)) + bool(chart.y.label))
    bottom = chart.height - (40.0 if chart.x.label else 24.0)
    return Frame(
        x=Scale(x_low, x_high, LEFT, chart.width - RIGHT, chart.x.log),
        y=Scale(y_low, y_high, bottom, top, chart.y.log),
    )


def across(series: Series) -> Iterator[float]:
    """All that a series needs of the horizontal axis."""
    half = series.width / 2 if series.mark == "bars" else 0.0
    for x in series.x:
        yield from (x - half, x + half)


def upright(series: Series) -> Iterator[float]:
    """All that a series needs of the vertical axis: bars stand on zero."""
    yield from series.y
    yield from series.low
    yield from series.high
    if series.mark == "bars":
        yield 0.0


def legend_rows(chart: Chart) -> list[list[Series]]:
    """The labelled series, in as many rows as they need; a single one needs no legend."""
    labelled = [series for series in chart.series if series.label]
    rows: list[list[Series]] = []
    room = 0.0
    for series in labelled if len(labelled) > 1 else ():
        need = legend_width(series)
        if room < need:
            rows.append([])
            room = chart.width - LEFT - RIGHT
        rows[-1].append(series)
        room -= need
    return rows


def legend_width(series: Series) -> float:
    """The room of one entry, its swatch and a gap included."""
    return 36.0 + LETTER * len(series.label)

"""Scales and layout of charts."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tutelage.report.figures.charts import Chart, Series

LARGEST = 1e100
"""Largest absolute value to draw, and inverse of the smallest on a logarithmic axis, to avoid overflow."""


def drawable(value: float, log: bool) -> bool:
    """Whether a value can be placed on an axis: finite, and positive on a logarithmic one."""
    return abs(value) <= LARGEST and (not log or value >= 1 / LARGEST)


@dataclass(frozen=True)
class Scale:
    """Monotone map from the data interval [low, high] to the pixels [start, end]; end may be less than start.

    Linear: start + (end - start) (v - low) / (high - low); logarithmic: the same with logarithms, for low > 0.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def clipped(self, value: float) -> float:
        """The pixel of a value, clipped to the scale."""
        return self(min(max(value, self.low), self.high))

    def invert(self, pixel: float) -> float:
        """The value at a pixel: scale.invert(scale(v)) == v."""
        share = (pixel - self.start) / (self.end - self.start)
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + (self.high - self.low) * share

    def shows(self, value: float) -> bool:
        """Whether the value can be drawn."""
        return drawable(value, self.log)

    def ticks(self, count: int = 5) -> tuple[float, ...]:
        """About `count` round values inside [low, high], in order."""
        ticks = log_ticks(self.low, self.high, count) if self.log else ()
        return ticks if len(ticks) >= 2 else linear_ticks(self.low, self.high, count)


def round_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that gives at most `count` steps."""
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(unit * power for unit in (1, 2, 2.5, 5, 10) if unit * power >= rough * (1 - 1e-9))


def linear_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Multiples of a round step inside [low, high]."""
    step = round_step(high - low, count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(index * step for index in range(first, last + 1))


def log_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Powers of ten inside [low, high]; every second, third … of them if there are many, 1-2-5 if there are few."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    stride = max(1, math.ceil((last - first) / count))
    units = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = (unit * 10.0**power for power in range(first, last + 1, stride) for unit in units)
    return tuple(tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9))


def domain(
    values: Iterable[float], *, log: bool = False, low: float | None = None, high: float | None = None
) -> tuple[float, float]:
    """An interval that holds every drawable value and the requested bounds, never empty: a single value gets a margin;
    without values (0, 1), or (1, 10) on a logarithmic axis."""
    wished = [end for end in (low, high) if end is not None]
    finite = [v for v in [*values, *wished] if drawable(v, log)]
    if not finite:
        return (1.0, 10.0) if log else (0.0, 1.0)
    least, most = min(finite), max(finite)
    if most - least > max(1e-9 * max(abs(least), abs(most)), 1 / LARGEST):
        return least, most
    if log:
        return least / 2, most * 2
    room = abs(least) / 2 or 1.0
    return least - room, most + room


def rounded(low: float, high: float, count: int = 5) -> tuple[float, float]:
    """Widen the interval slightly: each end to the next tick if that is near, otherwise by a twentieth, so that a value
    just below zero does not add a whole empty step."""
    step, room = round_step(high - low, count), (high - low) / 20
    below, above = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return (below if low - below <= step / 2 else low - room, above if above - high <= step / 2 else high + room)


LEFT, RIGHT, ROW = 50.0, 18.0, 18.0
"""Margins in pixels, the right one for half of the last tick label, and the height of a line of text."""
SWATCH = 36.0
"""Width of the swatch and the gap of a legend entry, in pixels."""
LETTER = 7.6
"""Upper estimate of the letter width in the legend, in pixels."""
NAME_LETTER = 6.2
"""Letter width of the names next to lines, in pixels."""


@dataclass(frozen=True)
class Frame:
    """The two scales of a chart, which map its data to pixels."""

    x: Scale
    y: Scale

    def place(self, series: Series, index: int) -> tuple[float, float]:
        """The pixel position of a point of a series."""
        return self.x(series.x[index]), self.y(series.y[index])

    def drawable(self, series: Series) -> list[int]:
        """The indices of a series' drawable points."""
        places = enumerate(zip(series.x, series.y, strict=True))
        return [index for index, (x, y) in places if self.x.shows(x) and self.y.shows(y)]


def frame(chart: Chart) -> Frame:
    """The scales of a chart, covering every point, band, whisker and rule."""
    xs = [v for s in chart.series for v in _across(s)] + [rule.at for rule in chart.rules if rule.axis == "x"]
    ys = [v for s in chart.series for v in _upright(s)] + [rule.at for rule in chart.rules if rule.axis == "y"]
    x_low, x_high = domain(xs, log=chart.x.log, low=chart.x.low, high=chart.x.high)
    y_low, y_high = domain(ys, log=chart.y.log, low=chart.y.low, high=chart.y.high)
    if not chart.y.log:
        y_low, y_high = rounded(y_low, y_high)
    names = [NAME_LETTER * len(series.label) for series in chart.series] if chart.names == "ends" else []
    right = chart.width - RIGHT - max(names, default=0.0)
    top = 12.0 + ROW * (len(legend_rows(chart)) + bool(chart.y.label))
    bottom = chart.height - (40.0 if chart.x.label else 24.0)
    return Frame(x=Scale(x_low, x_high, LEFT, right, chart.x.log), y=Scale(y_low, y_high, bottom, top, chart.y.log))


def _across(series: Series) -> Iterator[float]:
    """The values of a series on the horizontal axis."""
    half = series.width / 2 if series.mark == "bars" else 0.0
    for x in series.x:
        yield from (x - half, x + half)


def _upright(series: Series) -> Iterator[float]:
    """The values of a series on the vertical axis; bars include zero."""
    yield from series.y
    yield from series.low
    yield from series.high
    if series.mark == "bars":
        yield 0.0


def legend_rows(chart: Chart) -> list[list[Series]]:
    """The labelled series in the rows of the legend; none for a single series."""
    labelled = [series for series in chart.series if series.label]
    rows: list[list[Series]] = []
    room = 0.0
    for series in labelled if len(labelled) > 1 and chart.names == "legend" else ():
        need = legend_width(series, chart)
        if room < need:
            rows.append([])
            room = chart.width - LEFT - RIGHT
        rows[-1].append(series)
        room -= need
    return rows


def legend_width(series: Series, chart: Chart) -> float:
    """The width of a legend entry with its swatch and gap, in pixels."""
    return SWATCH + LETTER * len(legend_text(series, chart))


def legend_text(series: Series, chart: Chart) -> str:
    """The label of a series, without its middle if it is wider than the plot: the ends of paths differ."""
    most = int((chart.width - LEFT - RIGHT - SWATCH) / LETTER)
    half = (most - 1) // 2
    return series.label if len(series.label) <= most else f"{series.label[:half]}…{series.label[-half:]}"

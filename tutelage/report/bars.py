"""Horizontal bars and intervals, for things with names: stages and their times, raters and their reliability."""

from dataclasses import dataclass
from typing import Literal

from tutelage.report import svg
from tutelage.report.charts import LINEAR, RIGHT, Axis, Rule
from tutelage.report.scales import Scale, domain, tick_labels

ROW, NAMES, FOOT = 26.0, 118.0, 28.0
LONGEST = 17


@dataclass(frozen=True)
class Bar:
    """One named value, perhaps with an interval; `written` stands beside it."""

    name: str
    value: float
    written: str = ""
    low: float | None = None
    high: float | None = None
    colour: int = 0


@dataclass(frozen=True)
class Bars:
    """Named values under each other. A *bar* starts at the axis' beginning and is right for amounts; a *dot* with its
    whisker is right for estimates, whose axis need not start at zero."""

    title: str
    bars: tuple[Bar, ...]
    axis: Axis = LINEAR
    rules: tuple[Rule, ...] = ()
    mark: Literal["bar", "dot"] = "bar"
    width: float = 440.0


def bar_scale(chart: Bars) -> Scale:
    """The horizontal scale: all values, intervals and rules are inside, and room is left for what is written."""
    ends = [end for bar in chart.bars for end in (bar.value, bar.low, bar.high) if end is not None]
    low, high = domain([*ends, *(rule.at for rule in chart.rules)], low=chart.axis.low, high=chart.axis.high)
    room = 7.0 * max((len(bar.written) for bar in chart.bars), default=0)
    return Scale(low, high, NAMES, chart.width - RIGHT - room)


def draw_bars(chart: Bars) -> str:
    """The chart as one `<svg>` element, to be coloured by `charts.css`."""
    at = bar_scale(chart)
    foot = ROW * len(chart.bars) + 8.0
    has_axis = chart.mark == "dot"
    rows = [row(bar, chart, at, ROW * index + ROW / 2 + 4.0) for index, bar in enumerate(chart.bars)]
    height = foot + (FOOT if has_axis else 0.0)
    scaffold = axis(chart, at, foot) if has_axis else ""
    return svg.document(chart.width, height, chart.title, scaffold, *rows)


def row(bar: Bar, chart: Bars, at: Scale, y: float) -> str:
    """A name, its mark and what is written beside it."""
    name = bar.name if len(bar.name) <= LONGEST else bar.name[: LONGEST - 1] + "…"
    told = svg.title([f"{bar.name}: {bar.written or chart.axis.written(bar.value)}"])
    drawn = [told, svg.text(0, y + 4, name, "key")]
    beside = at.end + 8
    if at.shows(bar.value):
        x = at(bar.value)
        if chart.mark == "bar":
            size = {"x": at.start, "y": y - 7, "width": max(x - at.start, 1.0), "height": 14.0}
            drawn.append(svg.tag("rect", class_=f"bar c{bar.colour}", **size))
            beside = x + 8
        else:
            drawn += [whisker(bar, at, y), svg.tag("circle", cx=x, cy=y, r=4, class_=f"point c{bar.colour}")]
    return svg.tag("g", *drawn, svg.text(beside, y + 4, bar.written, "value"))


def whisker(bar: Bar, at: Scale, y: float) -> str:
    """The interval of an estimate."""
    if bar.low is None or bar.high is None or not (at.shows(bar.low) and at.shows(bar.high)):
        return ""
    return svg.tag(
        "path", d=svg.polyline([(at(bar.low), y), (at(bar.high), y)]), class_=f"whisker c{bar.colour}"
    )


def axis(chart: Bars, at: Scale, foot: float) -> str:
    """Upright grid lines with their values below, and the reference lines."""
    drawn = []
    ticks = at.ticks(4)
    for tick, label in zip(ticks, tick_labels(ticks, percent=chart.axis.percent), strict=True):
        drawn.append(svg.tag("path", d=svg.polyline([(at(tick), 4.0), (at(tick), foot)]), class_="grid"))
        drawn.append(svg.text(at(tick), foot + 17, label, "tick", "middle"))
    for rule in chart.rules:
        x = at(rule.at)
        drawn.append(
            svg.tag("path", svg.title([rule.label]), d=svg.polyline([(x, 4.0), (x, foot)]), class_="rule")
        )
    return "".join(drawn)


def strip(bar: Bar, axis: Axis, rule: float | None = None, width: float = 200.0) -> str:
    """One estimate with its interval on a bare line, small enough for a cell of a table."""
    ends = [end for end in (bar.value, bar.low, bar.high, rule) if end is not None]
    low, high = domain(ends, low=axis.low, high=axis.high)
    at = Scale(low, high, 6.0, width - 6.0)
    base = svg.tag("path", d=svg.polyline([(at.start, 8.0), (at.end, 8.0)]), class_="grid")
    upright = [(at(rule), 1.0), (at(rule), 15.0)] if rule is not None else []
    reference = svg.tag("path", d=svg.polyline(upright), class_="rule") if upright else ""
    disc = (
        svg.tag("circle", cx=at(bar.value), cy=8, r=3, class_=f"point c{bar.colour}")
        if at.shows(bar.value)
        else ""
    )
    told = svg.title([f"{bar.name}: {bar.written or axis.written(bar.value)}"])
    label = f"{bar.name} {bar.written}"
    return svg.document(
        width, 16, label, told, base, reference, whisker(bar, at, 8.0), disc, class_="chart strip"
    )

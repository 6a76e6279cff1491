"""Drawings of bar charts: named values below each other, as bars or as dots with their intervals."""

from tutelage.report.figures import svg
from tutelage.report.figures.charts import BarChart, ValueBar
from tutelage.report.figures.layout import RIGHT
from tutelage.report.figures.marks import disc
from tutelage.report.figures.number_text import tick_labels
from tutelage.report.figures.scales import Scale, domain

ROW, NAMES, FOOT = 26.0, 118.0, 28.0
LETTER = 7.0
"""The width of a letter of what is written beside a mark, in pixels."""
LONGEST = 17
"""The most letters of a name that are shown."""


def draw_bars(chart: BarChart) -> svg.Svg:
    """The drawing of a bar chart."""
    at = bar_scale(chart)
    foot = ROW * len(chart.bars) + 8.0
    has_axis = chart.mark == "dot"
    rows = [row(bar, chart, at, ROW * index + ROW / 2 + 4.0) for index, bar in enumerate(chart.bars)]
    height = foot + (FOOT if has_axis else 0.0)
    return svg.document(chart.width, height, chart.title, axis(chart, at, foot) if has_axis else "", *rows)


def bar_scale(chart: BarChart) -> Scale:
    """The horizontal scale of a bar chart: all values, intervals and rules are inside, and what is written beside the
    marks has room."""
    ends = [end for bar in chart.bars for end in (bar.value, bar.low, bar.high) if end is not None]
    low, high = domain([*ends, *(rule.at for rule in chart.rules)], low=chart.axis.low, high=chart.axis.high)
    room = LETTER * max((len(bar.written) for bar in chart.bars), default=0)
    return Scale(low, high, NAMES, chart.width - RIGHT - room)


def row(bar: ValueBar, chart: BarChart, at: Scale, y: float) -> str:
    """A name, its mark and what is written beside it."""
    name = bar.name if len(bar.name) <= LONGEST else bar.name[: LONGEST - 1] + "…"
    drawn = [svg.tooltip(f"{bar.name}: {bar.written or chart.axis.written(bar.value)}")]
    drawn.append(svg.text(0, y + 4, name, "key"))
    beside = at.end + 8
    if chart.mark == "dot":
        drawn.append(estimate(bar, at, y, 4.0))
    elif at.shows(bar.value):
        beside = at(bar.value) + 8
        size = {"x": at.start, "y": y - 7, "width": max(at(bar.value) - at.start, 1.0), "height": 14.0}
        drawn.append(svg.tag("rect", class_=f"bar c{bar.colour}", **size))
    return svg.tag("g", *drawn, svg.text(beside, y + 4, bar.written, "value"))


def estimate(bar: ValueBar, at: Scale, y: float, radius: float) -> str:
    """A disc at a value over a whisker for its interval. What lies outside the scale is drawn at its ends."""
    whisker = ""
    if bar.low is not None and bar.high is not None and at.shows(bar.low) and at.shows(bar.high):
        whisker = svg.path([(at.clipped(bar.low), y), (at.clipped(bar.high), y)], f"whisker c{bar.colour}")
    return whisker + (
        disc((at.clipped(bar.value), y), radius, f"c{bar.colour}") if at.shows(bar.value) else ""
    )


def axis(chart: BarChart, at: Scale, foot: float) -> str:
    """Upright grid lines with their values below, and the reference lines."""
    drawn = []
    ticks = at.ticks(4)
    for tick, label in zip(ticks, tick_labels(ticks, percent=chart.axis.percent), strict=True):
        drawn.append(svg.path([(at(tick), 4.0), (at(tick), foot)], "grid"))
        drawn.append(svg.text(at(tick), foot + 17, label, "tick", "middle"))
    for rule in chart.rules:
        drawn.append(svg.path([(at(rule.at), 4.0), (at(rule.at), foot)], "rule", svg.tooltip(rule.label)))
    return "".join(drawn)

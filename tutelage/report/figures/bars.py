"""Bar charts, and small strips for a line of text or a table cell."""

from collections.abc import Callable, Sequence

from tutelage.base.number_text import tick_labels
from tutelage.report.figures import svg
from tutelage.report.figures.charts import BarChart, Rule, ValueBar
from tutelage.report.figures.drawing import disc
from tutelage.report.figures.scales import RIGHT, Scale, domain

ROW, NAMES, FOOT = 26.0, 118.0, 28.0
LETTER = 7.0
"""Letter width of the labels next to marks, in pixels."""
LONGEST = 17
"""Maximum number of letters of a name."""


def draw_bars(chart: BarChart) -> svg.Svg:
    """Render a bar chart."""
    at = bar_scale(chart)
    foot = ROW * len(chart.bars) + 8.0
    has_axis = chart.mark == "dot"
    rows = [row(bar, chart, at, ROW * index + ROW / 2 + 4.0) for index, bar in enumerate(chart.bars)]
    height = foot + (FOOT if has_axis else 0.0)
    return svg.document(chart.width, height, chart.title, axis(chart, at, foot) if has_axis else "", *rows)


def bar_scale(chart: BarChart) -> Scale:
    """The horizontal scale of a bar chart, with room for all values, intervals, rules and labels."""
    ends = [end for bar in chart.bars for end in (bar.value, bar.low, bar.high) if end is not None]
    low, high = domain([*ends, *(rule.at for rule in chart.rules)], low=chart.axis.low, high=chart.axis.high)
    room = LETTER * max((len(bar.written) for bar in chart.bars), default=0)
    return Scale(low, high, NAMES, chart.width - RIGHT - room)


def row(bar: ValueBar, chart: BarChart, at: Scale, y: float) -> str:
    """A row with the name, its mark and its label."""
    name = bar.name if len(bar.name) <= LONGEST else bar.name[: LONGEST - 1] + "…"
    parts = [svg.tooltip(f"{bar.name}: {bar.written or chart.axis.written(bar.value)}")]
    parts.append(svg.text(0, y + 4, name, "key"))
    beside = at.end + 8
    if chart.mark == "dot":
        parts.append(estimate(bar, at, y, 4.0))
    elif at.shows(bar.value):
        beside = at(bar.value) + 8
        size = {"x": at.start, "y": y - 7, "width": max(at(bar.value) - at.start, 1.0), "height": 14.0}
        parts.append(svg.tag("rect", class_=f"bar c{bar.colour}", **size))
    return svg.tag("g", *parts, svg.text(beside, y + 4, bar.written, "value"))


def estimate(bar: ValueBar, at: Scale, y: float, radius: float) -> str:
    """A disc at the value over a whisker for the interval, clipped to the scale."""
    whisker = ""
    if bar.low is not None and bar.high is not None and at.shows(bar.low) and at.shows(bar.high):
        whisker = svg.path([(at.clipped(bar.low), y), (at.clipped(bar.high), y)], f"whisker c{bar.colour}")
    return whisker + (disc((at.clipped(bar.value), y), radius, f"c{bar.colour}") if at.shows(bar.value) else "")


def axis(chart: BarChart, at: Scale, foot: float) -> str:
    """Vertical grid lines with tick labels, and the reference lines."""
    parts = []
    ticks = at.ticks(4)
    for tick, label in zip(ticks, tick_labels(ticks, percent=chart.axis.percent), strict=True):
        parts.append(svg.path([(at(tick), 4.0), (at(tick), foot)], "grid"))
        parts.append(svg.text(at(tick), foot + 17, label, "tick", "middle"))
    for rule in chart.rules:
        parts.append(svg.path([(at(rule.at), 4.0), (at(rule.at), foot)], "rule", svg.tooltip(rule.label)))
    return "".join(parts)


PAD = 6.0
"""Horizontal padding of a strip for half a disc, in pixels."""


def interval_strip(
    bar: ValueBar, low: float, high: float, *, rule: float | None = None, width: float = 200.0
) -> svg.Svg:
    """An estimate with its interval on a plain line from low to high, with an optional reference line."""
    at = Scale(low, high, PAD, width - PAD)
    label = f"{bar.name}: {bar.written}" if bar.written else bar.name
    parts = [svg.tooltip(label), svg.path([(at.start, 8.0), (at.end, 8.0)], "grid")]
    if rule is not None:
        parts.append(svg.path([(at.clipped(rule), 1.0), (at.clipped(rule), 15.0)], "rule"))
    return svg.document(width, 16, label, *parts, estimate(bar, at, 8.0, 4.0), class_="chart strip")


def interval_scale(
    bar: ValueBar,
    low: float,
    high: float,
    rules: Sequence[Rule],
    written: Callable[[float], str],
    *,
    width: float,
    narrow: bool = False,
) -> svg.Svg:
    """An estimate with its interval on an axis with ticks and labelled reference lines. The labels are side by side, or
    stacked if `narrow`. `written` formats the ticks."""
    at, step = Scale(low, high, 0.0, width), 15.0 if narrow else 0.0
    y = 44.0 + step * (len(rules) - 1)
    parts = [svg.tooltip(bar.name), svg.path([(0.0, y), (width, y)], "grid")]
    for tick in at.ticks(5):
        anchor = "start" if at(tick) <= 0 else "end" if at(tick) >= width else "middle"
        parts.append(svg.text(at(tick), y + 18, written(tick), "tick", anchor))
    for index, rule in enumerate(rules):
        x, top = at(rule.at), 13.0 + step * index
        parts.append(svg.path([(x, top + 7), (x, y + 6)], "rule"))
        parts.append(svg.text(x, top, rule.label, "name", "middle"))
    parts.append(estimate(bar, at, y, 7.0))
    return svg.document(width, y + 24, bar.name, *parts, class_=f"chart scale{' narrow' if narrow else ''}")


def column_strip(counts: Sequence[float], label: str) -> svg.Svg:
    """Counts as columns, the last one highlighted."""
    most = max([*counts, 1])
    parts = [svg.tooltip(label)]
    for index, count in enumerate(counts):
        height = max(1.0, 36 * count / most)
        colour = 0 if index == len(counts) - 1 else 5
        column = {"x": 10.0 * index, "y": 38 - height, "width": 7.0, "height": height}
        parts.append(svg.tag("rect", class_=f"bar c{colour}", **column))
    return svg.document(10 * max(1, len(counts)) - 3, 38, label, *parts, class_="chart columns")


def parts_strip(counts: Sequence[tuple[str, float]], label: str) -> svg.Svg:
    """One stacked bar, from pairs (class, count) left to right."""
    total = sum(count for _, count in counts) or 1
    parts, start = [svg.tooltip(label)], 0.0
    for class_, count in counts:
        width = 1000 * count / total
        if count:
            parts.append(svg.tag("rect", class_=class_, x=start, y=0, width=width, height=8))
        start += width
    return svg.document(1000, 8, label, *parts, class_="chart parts", preserveAspectRatio="none")

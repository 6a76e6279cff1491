"""Drawings of charts over two axes: legend, axes, marks, reference lines, names and hover texts, from the back."""

from tutelage.report.figures import svg
from tutelage.report.figures.charts import Chart, Rule
from tutelage.report.figures.hover import slices
from tutelage.report.figures.labels import labels
from tutelage.report.figures.layout import LEFT, LETTER, ROW, Frame, frame, legend_rows, legend_width
from tutelage.report.figures.marks import MARKS, swatch
from tutelage.report.figures.number_text import tick_labels


def draw_chart(chart: Chart) -> svg.Svg:
    """The drawing of a chart. A point that cannot be drawn (not finite, or not positive on a logarithmic axis)
    interrupts its line."""
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
        *(rule_line(rule, chart, at) for rule in chart.rules),
        labels(chart, at),
        slices(chart, at),
    )


def legend(chart: Chart) -> str:
    """Rows of swatches and labels above the plot."""
    drawn = []
    for row, entries in enumerate(legend_rows(chart)):
        x, y = LEFT, 14.0 + ROW * row
        for series in entries:
            drawn += [swatch(series, x, y), svg.text(x + 22, y, series.label, "key")]
            x += legend_width(series)
    return "".join(drawn)


def axes(chart: Chart, at: Frame) -> str:
    """Grid lines with their values at the left, the values of the horizontal axis below, the labels of both."""
    ticks = at.y.ticks(5)
    drawn = []
    for tick, label in zip(ticks, tick_labels(ticks, percent=chart.y.percent, log=chart.y.log), strict=True):
        y = at.y(tick)
        drawn.append(svg.path([(at.x.start, y), (at.x.end, y)], "grid"))
        drawn.append(svg.text(at.x.start - 8, y + 4, label, "tick", "end"))
    ticks = tuple(tick for tick in at.x.ticks(6) if tick.is_integer() or not chart.x.whole)
    for tick, label in zip(ticks, tick_labels(ticks, percent=chart.x.percent, log=chart.x.log), strict=True):
        drawn.append(svg.text(at.x(tick), at.y.start + 17, label, "tick", "middle"))
    if chart.x.label:
        drawn.append(svg.text(at.x.end, at.y.start + 34, chart.x.label, "name", "end"))
    if chart.y.label:
        drawn.append(svg.text(LEFT, at.y.end - 8, chart.y.label, "name"))
    return "".join(drawn)


def rule_line(rule: Rule, chart: Chart, at: Frame) -> str:
    """A reference line, with its label where it hides least."""
    return upright_rule(rule, at) if rule.axis == "x" else level_rule(rule, chart, at)


def upright_rule(rule: Rule, at: Frame) -> str:
    """A line from bottom to top, with its label beside the upper end, on the side with more room."""
    x = at.x(rule.at)
    shift, anchor = (-5, "end") if x > (at.x.start + at.x.end) / 2 else (5, "start")
    words = svg.text(x + shift, at.y.end + 11, rule.label, "rule", anchor) if rule.label else ""
    return svg.path([(x, at.y.start), (x, at.y.end)], "rule") + words


def level_rule(rule: Rule, chart: Chart, at: Frame) -> str:
    """A line from left to right, with its label above it unless it is near the top, at the end with fewer points."""
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
    """The number of points behind a line of text that stands at `foot` between left and right."""
    pixels = [at.place(series, index) for series in chart.series for index in at.drawable(series)]
    return sum(left <= x <= right and foot - 14 <= y <= foot + 4 for x, y in pixels)

"""From a run and a panel to a figure: the drawing, where it began and ended, and what was noticed."""

from dataclasses import dataclass, replace

from tutelage.report.charts import Axis, Chart, Rule, Series
from tutelage.report.drawing import draw
from tutelage.report.folders import Run
from tutelage.report.json_values import number
from tutelage.report.panels import Curve, Panel
from tutelage.report.watch import broken, closing, column, finite, smooth

AVERAGED = 12  # a curve of fewer points is shown as it is


@dataclass(frozen=True)
class Figure:
    """A chart on the page. `drawing` is SVG; `span` the first and the last value; `finding` what asks for a look."""

    title: str
    drawing: str
    unit: str = ""
    span: str = ""
    see: str = ""
    alarm: str = ""
    finding: str = ""


def figure(panel: Panel, run: Run) -> Figure | None:
    """The panel filled with the run's curves, or nothing when the run has logged none of them more than once."""
    series = tuple(s for curve in panel.curves for s in series_of(curve, run))
    if all(len(one.x) < 2 for one in series):
        return None
    chart = Chart(
        panel.title, series, x=Axis("step", whole=True), y=panel.y, rules=panel.rules + rules_of(panel, run)
    )
    findings = [panel.watch(run), *(broken(run, curve.metric) for curve in panel.curves)]
    return Figure(
        title=panel.title,
        drawing=draw(chart),
        unit=panel.unit,
        span=span(panel, run),
        see=panel.see,
        alarm=panel.alarm,
        finding=" ".join(filter(None, findings)),
    )


def series_of(curve: Curve, run: Run) -> tuple[Series, ...]:
    """A curve as it is, or pale under its running average; with its spread as a band."""
    steps, values = column(run, curve.metric)
    if not steps:
        return ()
    plain = Series(steps, values, curve.label, colour=curve.colour, style=curve.style)
    if not curve.noisy or len(steps) < AVERAGED:
        return (plain,)
    average = replace(plain, y=smooth(values))
    spread = dict(zip(*column(run, curve.spread), strict=True))
    if all(step in spread for step in steps):
        half = smooth([spread[step] for step in steps])
        low = tuple(y - h for y, h in zip(average.y, half, strict=True))
        high = tuple(y + h for y, h in zip(average.y, half, strict=True))
        return (replace(average, low=low, high=high),)
    pale = replace(plain, label="", style="faint")
    return (pale, average) if curve.style == "plain" else (average,)


def rules_of(panel: Panel, run: Run) -> tuple[Rule, ...]:
    """The reference line that the run itself supplies: the ceiling of accuracy."""
    ceiling = number(run.summary, "ceiling")
    if ceiling is None or "held_out/accuracy" not in {curve.metric for curve in panel.curves}:
        return ()
    return (Rule(ceiling, "ceiling"),)


def span(panel: Panel, run: Run) -> str:
    """Where the panel's first curve began, and where it closed: for a noisy one, the mean of its last window."""
    for curve in panel.curves:
        _, values = finite(run, curve.metric)
        if len(values) > 1:
            last = closing(values) if curve.noisy and len(values) >= AVERAGED else values[-1]
            return f"{panel.y.written(values[0])} → {panel.y.written(last)}"
    return ""

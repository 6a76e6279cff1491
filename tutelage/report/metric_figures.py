"""Figures of metrics: the curves of a run in a panel, with their first and last values and what was noticed."""

from dataclasses import dataclass, replace

from tutelage.report.diagnoses import broken, closing, column, finite, smooth
from tutelage.report.figures import Axis, Chart, Rule, Series, Svg, draw
from tutelage.report.folders import RunContent
from tutelage.report.json_values import number
from tutelage.report.panels import Curve, Panel

AVERAGED = 12
"""The fewest points of a curve that is averaged."""


@dataclass(frozen=True)
class RunFigure:
    """A drawing on the page with its words: `span` has the first and the last value, `finding` what asks for a look."""

    title: str
    drawing: Svg
    unit: str = ""
    span: str = ""
    healthy: str = ""
    alarming: str = ""
    finding: str = ""


def figure(panel: Panel, run: RunContent) -> RunFigure | None:
    """The figure of a panel for a run, or None when the run has logged no curve of the panel more than once."""
    series = tuple(s for curve in panel.curves for s in series_of(curve, run))
    if all(len(one.x) < 2 for one in series):
        return None
    chart = Chart(
        panel.title, series, x=Axis("step", whole=True), y=panel.y, rules=panel.rules + rules_of(panel, run)
    )
    findings = [panel.diagnose(run), *(broken(run, curve.metric) for curve in panel.curves)]
    return RunFigure(
        title=panel.title,
        drawing=draw(chart),
        unit=panel.unit,
        span=span(panel, run),
        healthy=panel.healthy,
        alarming=panel.alarming,
        finding=" ".join(filter(None, findings)),
    )


def series_of(curve: Curve, run: RunContent) -> tuple[Series, ...]:
    """The series of a curve: as it is, or pale under its running average, or the average with its spread as a band."""
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


def rules_of(panel: Panel, run: RunContent) -> tuple[Rule, ...]:
    """The reference line that a run itself supplies for a panel of accuracy: the ceiling."""
    ceiling = number(run.summary, "ceiling")
    if ceiling is None or "held_out/accuracy" not in {curve.metric for curve in panel.curves}:
        return ()
    return (Rule(ceiling, "ceiling"),)


def span(panel: Panel, run: RunContent) -> str:
    """The first and the last value of a panel's first curve as text; the last one of a noisy curve is the mean of its
    last window."""
    for curve in panel.curves:
        _, values = finite(run, curve.metric)
        if len(values) > 1:
            last = closing(values) if curve.noisy and len(values) >= AVERAGED else values[-1]
            return f"{panel.y.written(values[0])} → {panel.y.written(last)}"
    return ""

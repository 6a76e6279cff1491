"""HTML page of a comparison of runs: one file without scripts or external resources."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.number_text import number as written
from tutelage.report.comparison import Comparison, FinalFigure, OverlaidCurves, PairedTest, VariantCurve
from tutelage.report.figures import LINEAR, Axis, Chart, Series, Svg, ValueBar, draw, interval_strip
from tutelage.report.metrics import HELD_OUT, metric_of
from tutelage.report.page import TITLES, environment, spelled
from tutelage.report.stage_figures import RunFigure, panels_of
from tutelage.stats.intervals import Mean

COLOURS = 6
"""Colours of the palette; further lines are dashed."""


def mean_text(mean: Mean) -> str:
    """A mean with its interval."""
    if mean.value is None:
        return "–"
    ends = "" if mean.low is None or mean.high is None else f" ({written(mean.low)} to {written(mean.high)})"
    return f"{written(mean.value)}{ends}"


def p_text(p: float | None) -> str:
    """A p-value; a dash without one."""
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def over_text(test: PairedTest) -> str:
    """What a test is over: 200 prompts, 3 seeds."""
    return counted(test.difference.n, test.over.removesuffix("s"))


def write_comparison(comparison: Comparison, path: Path) -> Path:
    """Write the page, and return its path. Raises TutelageError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, render_comparison(comparison))
    except OSError as error:
        raise TutelageError(f"Cannot write {path}: {error.strerror}.") from error
    return path


def render_comparison(comparison: Comparison) -> str:
    """The HTML page of a comparison."""
    panelled = {curves.metric for curves in comparison.curves if curves.main}
    axes = {curve.metric: panel.y for panel in panels_of(comparison.kind) for curve in panel.curves}
    leading = [
        each
        for each in comparison.figures
        if each.over == "prompts" or each.name in panelled or each.name.startswith(HELD_OUT)
    ] or list(comparison.figures)
    return (
        environment()
        .get_template("compare.html")
        .render(
            comparison=comparison,
            title=" · ".join(variant.name for variant in comparison.variants),
            kind=TITLES.get(comparison.kind, ""),
            settings=[(row.name, [spelled(value) for value in row.values]) for row in comparison.settings],
            figures=[_row(each) for each in leading],
            more_figures=[_row(each) for each in comparison.figures if each not in leading],
            tests=[(test, _strip(test, comparison.tests)) for test in comparison.tests],
            charts=[_chart(each, axes) for each in comparison.curves if each.main],
            more_charts=[_chart(each, axes) for each in comparison.curves if not each.main],
            banded=any(len(variant.folders) > 1 for variant in comparison.variants),
            mean_text=mean_text,
            p_text=p_text,
            over_text=over_text,
            counted=counted,
        )
    )


def _row(figure: FinalFigure) -> tuple[str, str, list[str]]:
    """Name of a figure, its unit, and its values."""
    metric = metric_of(figure.name)
    note = "mean over prompts" if figure.over == "prompts" else metric.unit if metric else ""
    return figure.name, note, [mean_text(value) for value in figure.values]


def _strip(test: PairedTest, tests: Sequence[PairedTest]) -> Svg | str:
    """Drawing of a difference with its interval, on the scale of all tests of the figure."""
    means = [each.difference for each in tests if each.figure == test.figure]
    ends = (end for mean in means for end in (mean.low, mean.value, mean.high) if end is not None)
    widest = max(map(abs, ends), default=0.0)
    value = test.difference.value
    if value is None or not widest:
        return ""
    bar = ValueBar(test.variant, value, written(value), test.difference.low, test.difference.high)
    return interval_strip(bar, -widest, widest, rule=0.0)


def _chart(overlaid: OverlaidCurves, axes: Mapping[str, Axis]) -> RunFigure:
    series = tuple(_series(curve, index) for index, curve in enumerate(overlaid.curves) if curve.steps)
    axis = axes.get(overlaid.metric, LINEAR)
    drawing = draw(Chart(overlaid.title, series, x=Axis("step", whole=True), y=axis))
    return RunFigure(title=overlaid.title, drawing=drawing, unit=overlaid.unit)


def _series(curve: VariantCurve, index: int) -> Series:
    band = curve.low != curve.high
    return Series(
        curve.steps,
        curve.mean,
        curve.variant,
        colour=index % COLOURS,
        style="plain" if index < COLOURS else "dashed",
        low=curve.low if band else (),
        high=curve.high if band else (),
    )

"""The page about metrics, from the table of the report and its panels."""

from reference.markdown import page, table
from tutelage.report.metrics import GROUPS, Metric
from tutelage.report.panels import DISTILL, IMPROVE, LANGUAGE, REWARD, Panel

INTRODUCTION = """\
A run writes one line for each step to `metrics.jsonl` in its folder, and the same to its trackers. `tutelage
report` draws them, and `tutelage doctor` looks for problems in them ([when training does not
learn](../not_learning.md)). `<part>` is the name of a part of the reward. Metrics that do not apply to a run are
absent from its lines."""


def pages() -> dict[str, str]:
    parts = [
        f"## {title}\n\n{table(('metric', 'meaning', 'unit', 'healthy'), map(row, metrics))}"
        for title, metrics in GROUPS.items()
    ]
    return {"reference/metrics.md": page("Metrics", INTRODUCTION, *parts)}


def row(metric: Metric) -> tuple[str, str, str, str]:
    return (
        f"`{metric.name}`",
        metric.meaning.replace("<part>", "`<part>`"),
        metric.unit or "–",
        healthy(metric) or "–",
    )


def healthy(metric: Metric) -> str:
    """What is healthy in a metric: its own words, or those of the panels that draw it."""
    if metric.healthy:
        return metric.healthy
    panels = [panel for panel in (*IMPROVE, *LANGUAGE, *REWARD) if panel_draws(panel, metric)]
    panels = panels or [panel for panel in DISTILL if panel_draws(panel, metric)]
    return " ".join(f"{panel.healthy} Alarming: {panel.alarming}" for panel in panels[:1])


def panel_draws(panel: Panel, metric: Metric) -> bool:
    return metric.name in {curve.metric for curve in panel.curves}

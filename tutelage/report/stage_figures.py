"""Figures of each kind of stage, with their findings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TypeAlias

from tutelage.base.nouns import counted
from tutelage.base.number_text import number as written
from tutelage.base.number_text import percent
from tutelage.report import sample_answers as answers
from tutelage.report.diagnoses import accuracy_of, broken, closing, column, finite, smooth
from tutelage.report.figures import Axis, BarChart, Chart, Rule, Series, Svg, ValueBar, draw
from tutelage.report.figures.plots import bin_width, fit, histogram, scatter
from tutelage.report.folders import RunContent, holds_run, read
from tutelage.report.json_files import number, numbers, section, string
from tutelage.report.panels import DISTILL, IMPROVE, LANGUAGE, REWARD, Curve, Panel, further
from tutelage.report.reliability_diagram import bins, reliability
from tutelage.stats.text import word_counts

AVERAGED = 12
"""Minimum number of points for a running average."""


@dataclass(frozen=True)
class RunFigure:
    """A figure on the page: `span` has the first and the last value, `finding` a known problem."""

    title: str
    drawing: Svg
    unit: str = ""
    span: str = ""
    healthy: str = ""
    alarming: str = ""
    finding: str = ""


def figure(panel: Panel, run: RunContent) -> RunFigure | None:
    """The figure of a panel for a run; None if no curve of the panel has two points."""
    series = tuple(s for curve in panel.curves for s in series_of(curve, run))
    if all(len(one.x) < 2 for one in series):
        return None
    chart = Chart(panel.title, series, x=Axis("step", whole=True), y=panel.y, rules=panel.rules + rules_of(panel, run))
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
    """The series of a curve: plain, faint under its running average, or the average with its spread as a band."""
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
    """The accuracy ceiling of the run as the reference line of a panel of accuracy."""
    ceiling = number(run.summary, "ceiling")
    if ceiling is None or "held_out/accuracy" not in {curve.metric for curve in panel.curves}:
        return ()
    return (Rule(ceiling, "ceiling"),)


def span(panel: Panel, run: RunContent) -> str:
    """The first and the last value of a panel's first curve as text; for a noisy curve, the mean of the last window."""
    for curve in panel.curves:
        _, values = finite(run, curve.metric)
        if len(values) > 1:
            last = closing(values) if curve.noisy and len(values) >= AVERAGED else values[-1]
            return f"{panel.y.written(values[0])} → {panel.y.written(last)}"
    return ""


POINTS = 400
"""Maximum number of points in a scatter plot."""
FEWEST = 24
"""Minimum number of completions for the correlation of length and score."""
FOLLOWS = 0.8
"""Correlation of length and score that suggests that the reward measures length."""
FigureMaker: TypeAlias = Callable[[RunContent], RunFigure | None]


def accuracy_figure(run: RunContent) -> RunFigure | None:
    """The accuracy of a reward model, next to chance and to a perfect model."""
    accuracy, ceiling = accuracy_of(run), number(run.summary, "ceiling")
    if accuracy is None or ceiling is None:
        return None
    value, low, high = accuracy
    bars = (
        ValueBar("perfect model", ceiling, percent(ceiling, 1), colour=2),
        ValueBar("reward model", value, percent(value, 1), low, high),
        ValueBar("coin", 0.5, "50%", colour=5),
    )
    chart = BarChart(
        "Accuracy against its ceiling", bars, Axis(percent=True, low=0.45), (Rule(ceiling, "ceiling"),), "dot"
    )
    return RunFigure(
        title=chart.title,
        drawing=draw(chart),
        unit="share of held-out votes predicted, with its 95% interval",
        healthy="The interval is close to the ceiling: the model predicts most of what raters agree on.",
        alarming="The interval includes 50% (nothing was learned) or is above the ceiling (a leak).",
    )


def calibration_figure(run: RunContent) -> RunFigure | None:
    """The calibration of a reward model: predicted against observed accuracy."""
    diagram = bins(run.summary)
    if not diagram:
        return None
    return RunFigure(
        title="Calibration",
        drawing=draw(reliability(diagram)),
        unit="observed share of preferences against their predicted probability",
        healthy="The discs lie along the diagonal: predictions of 70% are right in seven of ten votes.",
        alarming="A line flatter than the diagonal: the reward model is overconfident.",
    )


def label_calibration_figure(run: RunContent) -> RunFigure | None:
    """The calibration of the labels of a study whose raters are simulated: their probabilities against the gold."""
    diagram = bins(run.judgements)
    if not diagram:
        return None
    return RunFigure(
        title="Calibration of the labels",
        drawing=draw(reliability(diagram)),
        unit="share of comparisons in which the first response has the higher gold, against its stated probability",
        healthy="The discs lie along the diagonal: labels of 90% are right in nine of ten comparisons.",
        alarming="A line flatter than the diagonal: raters err together, and the labels are overconfident.",
    )


def path_figure(run: RunContent) -> RunFigure | None:
    """The trajectory of a policy in score and gold."""
    gold = dict(zip(*finite(run, "gold/mean"), strict=True))
    score = dict(zip(*finite(run, "score/mean"), strict=True))
    steps = sorted(gold.keys() & score.keys())
    if len(steps) < 3:
        return None
    every = ceil(len(steps) / POINTS)
    steps = steps[::every]
    x, y = [score[step] for step in steps], [gold[step] for step in steps]
    notes = [f"step {step:.0f}: score {a:.3g}, gold {b:.3g}" for step, a, b in zip(steps, x, y, strict=True)]
    points = Series(tuple(x), tuple(y), mark="points", colour=2, style="faint", notes=tuple(notes))
    path = Series(smooth(x), smooth(y))
    return RunFigure(
        title="Gold against score",
        drawing=draw(Chart("Gold against score", (points, path), Axis("score"))),
        unit=f"gold upwards, score to the right, one point per {counted(every, 'step') if every > 1 else 'step'}",
        healthy="The path leads to the upper right: score and gold rise together.",
        alarming="The path bends downwards: more score, less gold. Training should have stopped at the bend.",
    )


def length_figure(run: RunContent) -> RunFigure | None:
    """The distribution of the lengths of sampled completions, in words."""
    lengths = word_counts([string(row, "completion") for row in run.samples])
    if len(lengths) < 2:
        return None
    series = histogram(lengths, bin_width(lengths), "answers")
    return RunFigure(
        title="Length of the completions",
        drawing=draw(Chart("Length of the completions", series, Axis("words"))),
        unit="number of completions",
        healthy="One broad peak: completions of natural and varied length.",
        alarming="A spike at the right edge: completions reach the length limit.",
    )


def length_score_figure(run: RunContent) -> RunFigure | None:
    """Score over length of sampled completions, both relative to the mean of their step to remove the effect of
    training."""
    pairs = relative_to_step(run)
    line = fit(*zip(*pairs, strict=True)) if len(pairs) >= FEWEST else None
    if line is None:
        return None
    title, follows = "Score over length", line[2]
    x, y = ([pair[side] for pair in pairs[:: ceil(len(pairs) / POINTS)]] for side in (0, 1))
    return RunFigure(
        title=title,
        drawing=draw(Chart(title, scatter(x, y, "answers"), Axis("words, less the mean of the step"))),
        unit=f"score less the mean of the step; correlation {written(follows, 2)}",
        healthy="A cloud without a trend: score and length are independent.",
        alarming="A line: the reward depends on length, and the policy will exploit it.",
        finding=""
        if abs(follows) < FOLLOWS
        else f"The score follows the length of the answers (correlation {written(follows, 2)} within a step):"
        " check that the reward measures more than length.",
    )


def relative_to_step(run: RunContent) -> list[tuple[float, float]]:
    """(words, score) of the sampled completions with a score, minus the means of all completions of their step."""
    steps: dict[float | None, list[tuple[float, float]]] = {}
    for row in run.samples:
        score = number(row, "score")
        if score is not None:
            (length,) = word_counts([string(row, "completion")])
            steps.setdefault(number(row, "step"), []).append((length, score))
    pairs = []
    for rows in steps.values():
        centre = [fmean(values) for values in zip(*rows, strict=True)]
        pairs += [(length - centre[0], score - centre[1]) for length, score in rows]
    return pairs


def gain_figure(run: RunContent) -> RunFigure | None:
    """The distribution over prompts of the change from the completion before to the completion after."""
    name, gains = answers.gains(run.answers)
    changes = list(gains.values())
    if len(changes) < 2:
        return None
    width = bin_width(changes)
    better = histogram([change for change in changes if change >= 0], width, "not worse", colour=2)
    worse = histogram([change for change in changes if change < 0], width, "worse", colour=1)
    axis, zero = Axis(f"{name} after − before"), Rule(0.0, axis="x")
    return RunFigure(
        title=f"Change in {name}, prompt by prompt",
        drawing=draw(Chart(f"Change in {name}", worse + better, axis, rules=(zero,))),
        unit="number of prompts",
        healthy="Most of the mass is right of zero, and the left tail is short.",
        alarming="Two peaks, or a long left tail: some prompts got worse while others improved.",
    )


def curves_figure(run: RunContent) -> RunFigure | None:
    """The curves over the steps under `curves` in a summary: their mean, and the range from the lowest to the
    highest."""
    curves = section(run.summary, "curves")
    series = []
    for colour, name in enumerate(curves):
        mean, low, high = (numbers(section(curves, name), key) for key in ("mean", "low", "high"))
        if len(mean) > 1 and len(mean) == len(low) == len(high):
            steps = tuple(float(step) for step in range(1, len(mean) + 1))
            series.append(Series(steps, mean, name, low=low, high=high, colour=colour))
    if not series:
        return None
    title = "Solved over the steps"
    return RunFigure(
        title=title,
        drawing=draw(Chart(title, tuple(series), Axis("step", whole=True), Axis(percent=True, low=0.0, high=1.0))),
        unit="share of the episodes of a step, mean and range of the seeds",
    )


def trust_figure(run: RunContent) -> RunFigure | None:
    """The change in gold over the change in score, one point per prompt."""
    points = [
        (score, gold, string(row, "prompt"))
        for row in run.answers
        if (score := answers.gain(row, "score")) is not None and (gold := answers.gain(row, "gold")) is not None
    ]
    x, y = [point[0] for point in points], [point[1] for point in points]
    line = fit(x, y)
    if line is None:
        return None
    notes = [f"{prompt[:80]}\nscore {a:+.2f}, gold {b:+.2f}" for a, b, prompt in points]
    series = scatter(x, y, "prompts", notes=notes)
    return RunFigure(
        title="Does more score mean more gold?",
        drawing=draw(Chart("Change in gold over change in score", series, Axis("score after − before"))),
        unit=f"gold after − before; correlation {written(line[2], 2)}",
        healthy="A cloud that rises to the right: gains in score are gains in gold.",
        alarming="A flat or falling line: at this distance from the reference the score is no longer informative.",
    )


FIGURES: Mapping[str, tuple[Panel | FigureMaker, ...]] = MappingProxyType(
    {
        "pretrain": LANGUAGE,
        "sft": LANGUAGE,
        "sample": (length_figure,),
        "judge": (label_calibration_figure,),
        "reward": (*REWARD, calibration_figure, accuracy_figure),
        "improve": (*IMPROVE[:2], path_figure, *IMPROVE[2:], length_score_figure),
        "distill": (*DISTILL, length_figure),
        "compare": (curves_figure,),
        "evaluate": (gain_figure, trust_figure),
    }
)
"""The figures of each kind of stage, in page order."""


def figures(kind: str, run: RunContent) -> tuple[RunFigure, ...]:
    """The figures of a kind of stage that the run has data for."""
    items = FIGURES.get(kind, ())
    return tuple(filter(None, (figure(each, run) if isinstance(each, Panel) else each(run) for each in items)))


def further_figures(kind: str, run: RunContent) -> tuple[RunFigure, ...]:
    """Figures for the other metrics of a run, which `figures` does not show."""
    return tuple(filter(None, (figure(panel, run) for panel in further(run, panels_of(kind)))))


def panels_of(kind: str) -> tuple[Panel, ...]:
    """The panels of a kind of stage; none for a kind without any."""
    return tuple(item for item in FIGURES.get(kind, ()) if isinstance(item, Panel))


@dataclass(frozen=True)
class RunFinding:
    """A finding about one figure of a stage, the chat templates of its models (`subject` "Chat template"), its final
    model ("Saved model"), or an unreadable file ("files")."""

    stage: str
    subject: str
    sentence: str


def findings_in(folder: Path) -> tuple[RunFinding, ...]:
    """The findings in the folder of a run or a round, by stage. Raises TutelageError if the folder is neither."""
    content = read(folder)
    findings = [RunFinding("", "files", trouble) for trouble in content.troubles]
    for stage in content.stages:
        charts = (*figures(stage.kind, stage.run), *further_figures(stage.kind, stage.run))
        sentences = [
            *(("files", trouble) for trouble in stage.run.troubles),
            *(("Chat template", mismatch) for mismatch in stage.run.mismatches),
            *((chart.title, chart.finding) for chart in charts if chart.finding),
        ]
        if stage.status == "failed":
            sentences.append(("status", "The stage ended with an error before it was finished."))
        if holds_run(folder) and stage.status == "running" and not stage.run.metrics:
            sentences.append(("status", "No step has ended yet, so no training problem could be found."))
        findings += [RunFinding(stage.name, *sentence) for sentence in sentences]
    return tuple(findings)

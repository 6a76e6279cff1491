"""The figures of each kind of stage: its panels, and drawings of its summary, its samples or its answers."""

from collections.abc import Callable, Mapping
from math import ceil
from statistics import fmean
from types import MappingProxyType
from typing import TypeAlias

from tutelage.base.nouns import counted
from tutelage.report import answers
from tutelage.report.calibration import bins, reliability
from tutelage.report.diagnoses import accuracy_of, finite, smooth
from tutelage.report.figures import Axis, BarChart, Chart, Rule, Series, ValueBar, draw
from tutelage.report.figures.number_text import number as written
from tutelage.report.figures.number_text import percent
from tutelage.report.figures.plots import bin_width, fit, histogram, scatter
from tutelage.report.folders import RunContent
from tutelage.report.json_values import Object, number, string
from tutelage.report.metric_figures import RunFigure, figure
from tutelage.report.panels import DISTILL, IMPROVE, LANGUAGE, REWARD, Panel, further
from tutelage.stats.text import words

POINTS = 400
"""The most points of a scatter; more of them would hide each other."""
FEWEST = 24
"""The fewest answers from which a correlation of length and score is read."""
FOLLOWS = 0.8
"""Correlation of length and score from which on the reward is suspected to count words."""
FigureMaker: TypeAlias = Callable[[RunContent], RunFigure | None]


def accuracy_figure(run: RunContent) -> RunFigure | None:
    """The accuracy of a reward model beside those of a coin and of a perfect model."""
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
        healthy="The interval reaches near the ceiling: little of what raters agree on is missed.",
        alarming="The interval touches 50% (nothing was learnt) or lies above the ceiling (a leak).",
    )


def calibration_figure(run: RunContent) -> RunFigure | None:
    """The calibration of a reward model: whether it is as often right as it predicts."""
    found = bins(run.summary)
    if not found:
        return None
    return RunFigure(
        title="Calibration",
        drawing=draw(reliability(found)),
        unit="how often an answer was preferred, against the predicted probability of it",
        healthy="The discs lie along the diagonal: of the votes given 70%, seven in ten come true.",
        alarming="A line flatter than the diagonal: the reward model is surer than it has reason to be.",
    )


def path_figure(run: RunContent) -> RunFigure | None:
    """The path of a policy through score and gold, from step to step."""
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
        healthy="The path leads to the upper right: what is rewarded is what is wanted.",
        alarming="The path bends downwards: more score, less worth. Training should have stopped at the bend.",
    )


def length_of(sample: Object) -> float:
    """The number of words of a sampled answer."""
    return float(len(words(string(sample, "completion"))))


def length_figure(run: RunContent) -> RunFigure | None:
    """The distribution of the lengths of sampled answers, in words."""
    lengths = [length_of(row) for row in run.samples]
    if len(lengths) < 2:
        return None
    series = histogram(lengths, bin_width(lengths), "answers")
    return RunFigure(
        title="Length of the answers",
        drawing=draw(Chart("Length of the answers", series, Axis("words"))),
        unit="number of answers",
        healthy="One broad hump: answers of natural length, differing enough to compare.",
        alarming="A spike at the right edge: answers run into the length limit.",
    )


def length_score_figure(run: RunContent) -> RunFigure | None:
    """The score of sampled answers over their length, both relative to their step, so that training moves neither."""
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
        healthy="A cloud without a direction: short and long answers score alike.",
        alarming="A line: the reward counts words, upwards or downwards, and the policy will learn to.",
        finding=""
        if abs(follows) < FOLLOWS
        else f"The score follows the length of the answers (correlation {written(follows, 2)} within a step):"
        " check that the reward looks at more than length.",
    )


def relative_to_step(run: RunContent) -> list[tuple[float, float]]:
    """(words, score) of the sampled answers that have a score, less the means of all answers of their step."""
    steps: dict[float | None, list[tuple[float, float]]] = {}
    for row in run.samples:
        score = number(row, "score")
        if score is not None:
            steps.setdefault(number(row, "step"), []).append((length_of(row), score))
    found = []
    for rows in steps.values():
        centre = [fmean(values) for values in zip(*rows, strict=True)]
        found += [(length - centre[0], score - centre[1]) for length, score in rows]
    return found


def gain_figure(run: RunContent) -> RunFigure | None:
    """The distribution over prompts of the change from the answer before to the answer after."""
    name = answers.measure(run.answers)
    changes = (
        [change for row in run.answers if (change := answers.gain(row, name)) is not None] if name else []
    )
    if len(changes) < 2:
        return None
    width = bin_width(changes)
    better = histogram([change for change in changes if change >= 0], width, "not worse", colour=2)
    worse = histogram([change for change in changes if change < 0], width, "worse", colour=1)
    return RunFigure(
        title=f"Change in {name}, prompt by prompt",
        drawing=draw(
            Chart(
                f"Change in {name}",
                worse + better,
                Axis(f"{name} after − before"),
                rules=(Rule(0.0, axis="x"),),
            )
        ),
        unit="number of prompts",
        healthy="Most of the weight lies right of zero, and the left tail is short.",
        alarming="Two humps, or a long left tail: some kind of prompt is paying for the others.",
    )


def trust_figure(run: RunContent) -> RunFigure | None:
    """The change in gold over the change in score, one point per prompt."""
    points = [
        (score, gold, string(row, "prompt"))
        for row in run.answers
        if (score := answers.gain(row, "score")) is not None
        and (gold := answers.gain(row, "gold")) is not None
    ]
    x, y = [point[0] for point in points], [point[1] for point in points]
    line = fit(x, y)
    if line is None:
        return None
    notes = [f"{prompt[:80]}\nscore {a:+.2f}, gold {b:+.2f}" for a, b, prompt in points]
    return RunFigure(
        title="Does more score mean more gold?",
        drawing=draw(
            Chart(
                "Change in gold over change in score",
                scatter(x, y, "prompts", notes=notes),
                Axis("score after − before"),
            )
        ),
        unit=f"gold after − before; correlation {written(line[2], 2)}",
        healthy="A cloud that leans to the upper right: what the reward model pays for is worth something.",
        alarming="A flat or falling line: at this distance from the reference the score has lost its meaning.",
    )


FIGURES: Mapping[str, tuple[Panel | FigureMaker, ...]] = MappingProxyType(
    {
        "pretrain": LANGUAGE,
        "sft": LANGUAGE,
        "sample": (length_figure,),
        "reward": (*REWARD, calibration_figure, accuracy_figure),
        "improve": (*IMPROVE[:2], path_figure, *IMPROVE[2:], length_score_figure),
        "distill": (*DISTILL, length_figure),
        "evaluate": (gain_figure, trust_figure),
    }
)
"""The figures of each kind of stage, in the order in which the page shows them."""


def figures(kind: str, run: RunContent) -> tuple[RunFigure, ...]:
    """The figures of a stage of some kind for which its run has data."""
    made = (figure(item, run) if isinstance(item, Panel) else item(run) for item in FIGURES.get(kind, ()))
    return tuple(filter(None, made))


def further_figures(kind: str, run: RunContent) -> tuple[RunFigure, ...]:
    """The figures of all metrics of a run that `figures` does not show."""
    panels = [item for item in FIGURES.get(kind, ()) if isinstance(item, Panel)]
    return tuple(filter(None, (figure(panel, run) for panel in further(run, panels))))

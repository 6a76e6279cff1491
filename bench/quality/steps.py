"""What a policy with tools is paid for: votes on steps, as many votes on outcomes, or the solution."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from textwrap import fill
from typing import Any

import numpy as np

from bench.quality.experiment import Experiment, Figures, Line, Part, Place
from bench.quality.texts import plain, signed
from tutelage.data.worlds.tool_questions import CARELESS
from tutelage.demo.rounds.round import RoundPlace, run_round
from tutelage.demo.rounds.tools import FOLD, RATERS, ToolsRound, ToolsScale
from tutelage.report.figures import Axis, Chart, Rule, Series, draw, standalone
from tutelage.report.json_files import read_object
from tutelage.stats.intervals import Mean, mean_interval

NAMES = {
    "step votes": "step reward of votes on steps",
    "outcome votes": "outcome reward of as many votes on answers",
    "solution": "the solution itself",
}
GOOD = 0.8
"""Share of solved questions whose first step of training is told."""


def parts(seed: int) -> list[Part]:
    """The demonstration with tools, in a world of this seed."""
    return [Part("tools", {**asdict(ToolsScale()), "raters": RATERS, "careless": dict(CARELESS), "fold": FOLD}, seed)]


def run(part: Part, place: Place) -> Figures:
    """Run the demonstration, and collect what its stages found."""
    out = place.run(part)
    summary = run_round(ToolsRound(place=RoundPlace(out, part.seed, quiet=True), scale=ToolsScale()))
    compared, judged = (read_object(out / name)[0] for name in ("compare/summary.json", "judge/judgements.json"))
    rows: Any = compared["rows"]
    columns: Any = compared["columns"]
    return {
        "before": summary["sft"]["gold_mean"],
        "solved": {name: [row["values"][i] for row in rows[:-1]] for i, name in enumerate(columns)},
        "curves": compared["curves"],
        "votes": judged["votes"],
        "raters": judged["raters"],
        "step_reward": summary["step_reward"],
        "seconds": summary["seconds"],
    }


TITLE = "## A policy with tools: votes on steps or on outcomes"
CLAIM = (
    "Supervising every step gave better reward models than supervising the outcome (Lightman et al. 2023, arXiv "
    "2305.20050), and the same final answers (Uesato et al. 2022, arXiv 2211.14275). Paid as the change of a "
    "potential, steps change only the noise of the gradient (Ng, Harada & Russell 1999)."
)


def section(lines: Sequence[Line]) -> str:
    """What was claimed, what was seen."""
    first = lines[0].settings
    solved = {name: [line.figures["solved"][name] for line in lines] for name in NAMES}
    before = _mean([[line.figures["before"]] for line in lines])
    rows = ["| paid for | held-out questions solved | each | steps to .8 of the training questions |"]
    started = _each([[line.figures["before"]] for line in lines])
    rows += ["|---|---|---|---|", f"| nothing yet | {plain(before)} | {started} | |"]
    for name, title in NAMES.items():
        reached = ", ".join(str(_reached(line.figures["curves"][name]["mean"])) for line in lines)
        rows.append(f"| {title} | {plain(_mean(solved[name]))} | {_each(solved[name])} | {reached} |")
    differences = {
        other: _mean([np.subtract(*own).tolist() for own in zip(solved["step votes"], solved[other], strict=True)])
        for other in ("outcome votes", "solution")
    }
    outcome = (
        f"Here the step reward solved {signed(differences['outcome votes'])} more of the held-out questions than the "
        f"outcome reward of as many votes, and {signed(differences['solution'])} more than the solution as the reward."
    )
    votes = ", ".join(f"{line.figures['votes']:,}" for line in lines)
    inside = [
        low <= rater["truth"] <= high
        for line in lines
        for rater in line.figures["raters"]
        for low, high in [rater["interval"]]
    ]
    accuracy = ", ".join(f"{line.figures['step_reward']['accuracy']:.0%}" for line in lines)
    method = (
        f"`tutelage demo --world tools` with the seeds {', '.join(str(line.seed) for line in lines)}, each with its "
        f"own prices, demonstrations, model and votes, and {first['seeds']} seeds of training in each. "
        f"{len(first['raters'])} simulated raters of known reliability give {votes} votes on steps, "
        f"{first['overlap']} for each, and as many on the answers of more episodes; the step reward judges {accuracy} "
        f"of the steps of other questions as in truth. {sum(inside)} of the {len(inside)} intervals of estimated "
        f"reliabilities contain the true one. {first['steps']} steps of {first['batch']} questions × 4 episodes: "
        f"the {first['fold']} of the steps' probabilities is the score. Intervals are Student's "
        f"over {'the worlds' if len(lines) > 1 else 'the seeds of training, and leave out how worlds differ'}."
    )
    figure = "![Share of training questions solved over the steps, by what was paid for](results/steps.svg)"
    return "\n\n".join([TITLE, *(fill(text, 120) for text in (CLAIM, outcome, method)), "\n".join(rows), figure])


def _mean(values: Sequence[Sequence[float]]) -> Mean:
    """The mean over the worlds of the means over their seeds of training; over the seeds of a single world."""
    return mean_interval(values[0] if len(values) == 1 else [fmean(own) for own in values])


def _each(values: Sequence[Sequence[float]]) -> str:
    """The mean of each world, or the seeds of a single one."""
    return ", ".join(f"{value:.2f}" for value in (values[0] if len(values) == 1 else map(fmean, values)))


def _reached(curve: Sequence[float]) -> int | str:
    """The first step whose episodes solve GOOD of their questions."""
    return next((step for step, solved in enumerate(curve, 1) if solved >= GOOD), "–")


def figures(lines: Sequence[Line]) -> Mapping[str, str]:
    """The share of training questions solved over the steps: its mean, and the range of all runs."""
    series = []
    for colour, name in enumerate(NAMES):
        curves = [line.figures["curves"][name] for line in lines]
        mean = tuple(np.mean([curve["mean"] for curve in curves], axis=0).tolist())
        low = tuple(np.min([curve["low"] for curve in curves], axis=0).tolist())
        high = tuple(np.max([curve["high"] for curve in curves], axis=0).tolist())
        steps = tuple(float(step) for step in range(1, len(mean) + 1))
        series.append(Series(steps, mean, name, colour=colour, low=low, high=high))
    axes = Axis("step", low=0, whole=True), Axis("questions solved", low=0.0, high=1.0)
    before = Rule(fmean(line.figures["before"] for line in lines), "held out, before")
    chart = Chart("Solved over the steps", tuple(series), *axes, rules=(before,), width=560)
    return {"steps": standalone(draw(chart))}


EXPERIMENT = Experiment(
    "steps", "votes on steps or on outcomes, for a policy with tools", parts, run, section, figures, world=True
)

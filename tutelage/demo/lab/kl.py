"""Effect of the KL penalty: PPO with coefficients from zero to far too large, and without a reference.

    maximise  E[ score − β · Σ_t (log π − log π_ref) ]

The proxy is the demonstration's reward model, gold the utility of its raters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

from tutelage.base.nouns import counted
from tutelage.base.number_text import number
from tutelage.demo.lab.experiment import (
    Cell,
    CellResult,
    Experiment,
    ExperimentSetting,
    LabFigure,
    LabPage,
    LabTable,
    followed,
)
from tutelage.demo.lab.measurements import averages, measure
from tutelage.demo.lab.policy_training import LabPlan, training_cell
from tutelage.demo.lab.start import gold_reward
from tutelage.report.diagnoses import fall, smooth
from tutelage.report.figures import Axis, Rule, Series
from tutelage.report.figures.plots import averaged

SFT, FREE, ALONE = "sft", "beta-0", "no-reference"
COLOURS = (1, 4, 2, 0, 3, 5)
STILL = 0.5
"""Nats per completion below which a policy counts as unchanged."""


@dataclass(frozen=True, kw_only=True)
class KlSize:
    """Coefficients, and length of each run."""

    coefs: tuple[float, ...] = (0.02, 0.05, 0.15, 0.5, 2.0)
    """β of each policy, in addition to 0 and to the run without a reference."""
    plan: LabPlan = LabPlan(set=("update.epochs=2", "update.minibatches=2"), steps=50, answers=64)  # noqa: RUF009 - frozen


def cells(setting: ExperimentSetting[KlSize]) -> list[Cell]:
    """The SFT model, then a policy for each coefficient."""
    plan = replace(setting.size.plan, seed=setting.seed)
    free = replace(plan, set=(*plan.set, "penalty=none"))
    parts = [
        Cell(SFT, "SFT", (plan,), partial(_as_it_is, setting)),
        training_cell(setting, FREE, "β = 0", free),
        *(
            training_cell(
                setting, f"beta-{coef:g}", f"β = {coef:g}", replace(plan, set=(*plan.set, f"penalty.coef={coef:g}"))
            )
            for coef in setting.size.coefs
        ),
    ]
    return [*parts, training_cell(setting, ALONE, "no reference", replace(free, reference=False))]


def _as_it_is(setting: ExperimentSetting[KlSize], folder: Path) -> Mapping[str, Any]:
    start, plan = setting.start, setting.size.plan
    policy = start.policy()
    policy.freeze_reference()
    judges = {"score": start.score(policy), "gold": gold_reward()}
    questions = start.questions("held_out", policy)[: plan.tested]
    return averages(measure(policy, questions, judges, start.sampling, seed=setting.seed))


def page(done: Sequence[CellResult], size: KlSize, command: str) -> LabPage:
    """Page of the experiment."""
    by_name = {cell.name: cell for cell in done}
    start, runs = by_name[SFT], [cell for cell in done if cell.name not in (SFT, ALONE)]
    followed_runs = {cell.name: cell for cell in (runs[0], best(runs), runs[-1])}.values()
    return LabPage(
        title="What does the KL do?",
        question=(
            "The same PPO against the same reward model, with prices on leaving the reference that reach from nothing "
            "to far too much: what happens to the score it maximises, and to the gold behind the score?"
        ),
        command=command,
        findings=tuple(findings(start, runs, by_name[ALONE])),
        figures=(*_curves(start, runs, size), _frontier(start, runs, size), _prices(start, runs)),
        tables=(_table(done),),
        method=_method(size),
        strands=tuple(strand for cell in followed_runs for strand in followed(cell, cell.title)),
        numbers={cell.name: dict(cell.figures) for cell in done},
    )


def _method(size: KlSize) -> tuple[str, ...]:
    trained = (
        f"PPO as in the demonstration, {counted(size.plan.steps, 'step')} of {counted(size.plan.answers, 'answer')} "
        f"at a constant learning rate of {size.plan.lr:g} ({size.plan.critic_lr:g} for the critic), one seed, every "
        "policy from the same SFT model. Lines are running averages; bands are 95% intervals of their means, from "
        "the spread of the answers within each step."
    )
    tested = (
        f"The figures in the table are of the final policies on {counted(size.plan.tested, 'held-out prompt')}, one "
        "answer each; ± is half of a 95% interval. The KL is estimated by the mean of log π − log π_ref of whole "
        "answers."
    )
    return trained, tested


def best(runs: Sequence[CellResult]) -> CellResult:
    """Policy with the most gold."""
    return max(runs, key=lambda cell: float(cell.figures["gold"]))


def findings(start: CellResult, runs: Sequence[CellResult], alone: CellResult) -> list[str]:
    """Findings of this run as sentences. `runs` starts with the unpenalised policy and ends with the largest
    coefficient."""
    free, dearest, top = runs[0], runs[-1], best(runs)
    begun = start.measured("gold")
    reached = (
        f"The SFT model answers held-out prompts with gold {begun.written}. Most gold was reached at {top.title}: "
        f"{top.measured('gold').written} at a KL of {number(float(top.figures['kl']))} nats per answer."
    )
    sentences = [reached, _hacking(free, top)]
    sentences += [sentence for cell in runs if (sentence := _turned(cell))]
    sentences.append(_stillness(dearest, start))
    sentences.append(_alone(alone, free))
    return sentences


def _hacking(free: CellResult, top: CellResult) -> str:
    score, gold = (free.measured(name) - top.measured(name) for name in ("score", "gold"))
    moved = f"β = 0 moved {number(float(free.figures['kl']))} nats"
    if free is top:
        return f"{moved} and has the most gold of all: in so many steps no price was needed, and none helped."
    if score.low > 0 and gold.high < 0:
        return (
            f"Reward hacking: {moved} and scores {number(score.value)} more than {top.title}, but is worth "
            f"{number(-gold.value)} less gold (95% interval {number(-gold.high)} to {number(-gold.low)})."
        )
    return (
        f"No clear reward hacking: {moved}; against {top.title} its score differs by {score.written}, its gold by "
        f"{gold.written}."
    )


def _turned(cell: CellResult) -> str:
    """Whether gold fell within the run while the score rose."""
    gold = cell.column("gold/mean")
    if len(gold) < 8:
        return ""
    peak, drop = fall(gold)
    score = smooth(cell.column("score/mean"))
    if drop <= 0 or score[-1] <= score[peak]:
        return ""
    return (
        f"At {cell.title} gold peaked near step {cell.steps[peak]['step']} and closed {number(drop)} lower, while the "
        f"score rose by another {number(score[-1] - score[peak])}."
    )


def _stillness(dearest: CellResult, start: CellResult) -> str:
    kl, gain = float(dearest.figures["kl"]), dearest.measured("gold") - start.measured("gold")
    if kl < STILL and gain.low <= 0 <= gain.high:
        return (
            f"At {dearest.title} the policy cannot move: {number(kl)} nats after all steps, and a gain in gold of "
            f"{gain.written}, which is nothing."
        )
    return f"Even at {dearest.title} the policy moved {number(kl)} nats, which changed gold by {gain.written}."


def _alone(alone: CellResult, free: CellResult) -> str:
    same = all(a == b for a, b in zip(alone.column("score/mean"), free.column("score/mean"), strict=True))
    seconds = _step_seconds(alone) / _step_seconds(free)
    learnt = "learnt exactly the same" if same else "did not learn quite the same"
    return (
        f"Without a reference the policy {learnt} as with one that costs nothing, in {seconds:.0%} of the time per "
        f"step, and its distance was not logged: measured afterwards, {number(float(alone.figures['kl']))} nats."
    )


def _step_seconds(cell: CellResult) -> float:
    """Median time of a step."""
    clock = cell.column("seconds")
    return median(after - before for before, after in pairwise([0.0, *clock]) if after > before)


# Figures -------------------------------------------------------------------------------------------------------------


def _colour(number_: int) -> int:
    return COLOURS[min(number_, len(COLOURS) - 1)]


def _line(cell: CellResult, name: str, spread: str, colour: int, size: KlSize) -> Series:
    values = cell.column(name)
    error = [value / sqrt(size.plan.answers) for value in cell.column(spread)] if spread else [0.0] * len(values)
    window = max(3, size.plan.steps // 10 | 1)
    return averaged(cell.column("step"), values, error, cell.title, colour, window=window)


def _curves(start: CellResult, runs: Sequence[CellResult], size: KlSize) -> list[LabFigure]:
    def drawn(name: str, title: str, column: str, spread: str, unit: str, caption: str, rule: str = "") -> LabFigure:
        series = tuple(_line(cell, column, spread, _colour(i), size) for i, cell in enumerate(runs))
        rules = (Rule(float(start.figures[rule]), "SFT"),) if rule else ()
        axes = Axis("step", whole=True), Axis(unit)
        return LabFigure.over_axes(name, title, series, axes, caption, rules=rules)

    return [
        drawn("score", "The proxy", "score/mean", "score/std", "score by the reward model",
              "What is climbed: it rises faster the less leaving the reference costs.", "score"),
        drawn("gold", "What was wanted", "gold/mean", "gold/std", "gold",
              "What the score stands for. A line that falls while its proxy rises is reward hacking.", "gold"),
        drawn("kl", "How far it goes", "kl/reference", "kl/std", "KL to the reference, nats per answer",
              "The same optimiser takes the policy as far as the price lets it."),
        drawn("length", "How long answers become", "length/mean", "", "tokens per answer",
              "Length is the cheapest way to please many reward models.", "length"),
    ]  # fmt: skip


def _frontier(start: CellResult, runs: Sequence[CellResult], size: KlSize) -> LabFigure:
    """Gold over the distance: all policies lie on one curve if the penalty only slows training."""
    series = []
    for i, cell in enumerate(runs):
        kl = [sqrt(max(value, 0.0)) for value in smooth(cell.column("kl/reference"))]
        series.append(Series(tuple(kl), tuple(smooth(cell.column("gold/mean"))), cell.title, colour=_colour(i)))
    return LabFigure.over_axes(
        "frontier",
        "Gold against distance",
        series,
        (Axis("√KL to the reference, √nats per answer", low=0.0), Axis("gold")),
        "Each line is a run, from left to right. Where lines of different prices lie on each other, the penalty only "
        "decides how far along one curve a policy goes, as stopping early would.",
        rules=(Rule(float(start.figures["gold"]), "SFT"),),
        names="points",
    )


def _prices(start: CellResult, runs: Sequence[CellResult]) -> LabFigure:
    """Score and gold of the final policies over the coefficient, in standard deviations of the SFT model's
    completions."""
    priced = [cell for cell in runs if cell.name != FREE]
    x = tuple(float(cell.name.removeprefix("beta-")) for cell in priced)
    series = []
    for name, label, colour in (("score", "score", 1), ("gold", "gold", 0)):
        begun, unit = float(start.figures[name]), float(start.figures[f"{name}_std"]) or 1.0
        values = [cell.measured(name) for cell in priced]
        y, low, high = (
            tuple((getattr(mean, end) - begun) / unit for mean in values) for end in ("value", "low", "high")
        )
        series.append(Series(x, y, label, colour=colour, low=low, high=high))
    return LabFigure.over_axes(
        "prices",
        "The price of a nat",
        series,
        (Axis("β", log=True), Axis("gain over SFT, in its standard deviations")),
        "The final policies on held-out prompts; bands are 95% intervals. Cheap nats buy score; whether they buy gold "
        "is the question.",
        rules=(Rule(0.0, "SFT"),),
    )


def _table(done: Sequence[CellResult]) -> LabTable:
    rows = []
    for cell in done:
        figures = [cell.measured(name).written for name in ("score", "gold", "kl", "length")]
        time = f"{_step_seconds(cell):.2f}" if cell.steps else ""
        rows.append((cell.title, *figures, f"{float(cell.figures['ended']):.0%}", time))
    columns = ("", "score", "gold", "KL, nats", "length, tokens", "ended", "s per step")
    return LabTable("The final policies, on held-out prompts", columns, tuple(rows))


EXPERIMENT = Experiment(size=KlSize(), cells=cells, page=page)

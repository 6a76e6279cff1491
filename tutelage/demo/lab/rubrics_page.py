"""Page on the over-optimisation of a rubric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias, get_args

import numpy as np

from tutelage.base.nouns import counted
from tutelage.base.number_text import fixed, number, percent
from tutelage.demo.lab.experiment import CellResult, LabFigure, LabPage, LabTable, followed
from tutelage.demo.lab.policy_training import LabPlan
from tutelage.report.diagnoses import fall, smooth
from tutelage.report.figures import Axis, Rule, Series
from tutelage.stats.intervals import Mean, mean_interval

Way: TypeAlias = Literal["judge", "dropout", "ensemble", "gold"]
WAYS: tuple[Way, ...] = get_args(Way)
TITLES: Mapping[Way, str] = {
    "judge": "one judge",
    "dropout": "rubric dropout",
    "ensemble": "ensemble of judges",
    "gold": "true verdicts",
}
COLOURS: Mapping[Way, int] = {"judge": 1, "dropout": 2, "ensemble": 0, "gold": 5}
FIGURES = ("proxy", "gold", "kl", "length")


@dataclass(frozen=True, kw_only=True)
class RubricsSize:
    """Seeds, judges and steps."""

    seeds: int = 3
    """Runs of each remedy; each seed has judges of its own."""
    noise: float = 1.25
    """Standard deviation of a judge's error, relative to the distance between a met criterion and an unmet one."""
    ensemble: int = 4
    """Judges of the ensemble; the first of them is the single judge."""
    dropout: float = 0.5
    answers: int = 400
    """Completions of the SFT model over which errors are standardised."""
    plan: LabPlan = LabPlan(recipe="grpo", set=("penalty=none",), steps=100, answers=64)  # noqa: RUF009


@dataclass(frozen=True)
class RubricRun:
    """A policy of one way and seed: score by its judges, gold and KL over the steps, and the figures of its end on
    held-out prompts."""

    way: Way
    seed: int
    proxy: tuple[float, ...]
    gold: tuple[float, ...]
    kl: tuple[float, ...]
    final: Mapping[str, float]

    @classmethod
    def of(cls, cell: CellResult) -> "RubricRun":
        """The run in a cell of the experiment."""
        name, _, seed = cell.name.rpartition("-")
        (way,) = (way for way in WAYS if way == name)
        proxy, gold, kl = (tuple(cell.column(column)) for column in ("proxy/mean", "gold/mean", "kl/reference"))
        return cls(way, int(seed), proxy, gold, kl, {figure: float(cell.figures[figure]) for figure in FIGURES})

    @property
    def peak(self) -> float:
        """Highest gold of the running average."""
        return max(smooth(self.gold))


def of_way(runs: Sequence[RubricRun], way: Way) -> list[RubricRun]:
    """Runs of one way."""
    return [run for run in runs if run.way == way]


def page(done: Sequence[CellResult], size: RubricsSize, command: str) -> LabPage:
    """Page of the experiment on rubrics."""
    judges, *rest = done
    runs = [RubricRun.of(cell) for cell in rest]
    return LabPage(
        title="Can a rubric be over-optimised?",
        question=(
            "GRPO on a rubric whose criteria a noisy judge decides, with the true verdicts known: does gold fall while "
            "the score rises, and do rubric dropout and an ensemble of judges help?"
        ),
        command=command,
        findings=(judged(judges.figures), *findings(runs)),
        figures=figures(runs),
        tables=(LabTable("Final policies on held-out prompts", COLUMNS, tuple(table(runs))),),
        method=method(size),
        strands=tuple(followed(next(cell for cell in rest if cell.name == "judge-0"), "one judge, seed 0")),
        numbers={cell.name: dict(cell.figures) for cell in done},
    )


def method(size: RubricsSize) -> tuple[str, ...]:
    """How it was made, as sentences."""
    judged = (
        "Nine criteria of the tutoring world, two of them faults, which the world decides exactly; their score is "
        "gold. A judge's verdict is the sign of ±1 plus an error: random weights of the answer's words for each "
        f"criterion and judge, standardised to a standard deviation of {size.noise:g} over the SFT model's answers. "
        f"Rubric dropout leaves every criterion out with probability {size.dropout:g}, drawn for each prompt in each "
        f"step; the ensemble is the mean score of {counted(size.ensemble, 'judge')}, the first of which is the single "
        "one."
    )
    plan = size.plan
    trained = (
        f"GRPO without a penalty, {counted(plan.steps, 'step')} of {counted(plan.answers, 'answer')} at a rate of "
        f"{plan.lr:g}, {counted(size.seeds, 'seed')}, each with judges of its own. The score is by the judges of the "
        "training, with all criteria. Lines are running averages of the means over the seeds, bands their lowest and "
        f"highest. Final figures are of one answer to each of {counted(plan.tested, 'held-out prompt')}; intervals are "
        "Student's over the seeds, of differences within seeds."
    )
    return judged, trained


def judged(figures: Mapping[str, object]) -> str:
    """How well judges do on the SFT model's answers."""
    right, correlation = (np.asarray(figures[name], dtype=float) for name in ("right", "correlation"))
    text = f"On the SFT model's answers judges decide {percent(float(right.mean()))} of the criteria rightly"
    if not np.isfinite(correlation).all():
        return f"{text}."
    return f"{text}, and their scores correlate with gold at {correlation.min():.2f} to {correlation.max():.2f}."


def findings(runs: Sequence[RubricRun]) -> list[str]:
    """Findings as sentences."""
    alone = of_way(runs, "judge")
    sentences = [_curve(alone)]
    for way in ("dropout", "ensemble"):
        sentences.append(_remedy(way, of_way(runs, way), alone))
    true = of_way(runs, "gold")
    ends = f"at {_mean(true, 'gold')} (mean of {counted(len(true), 'seed')}), with one judge at {_mean(alone, 'gold')}"
    return [*sentences, f"Trained on the true verdicts gold ends {ends}."]


def _curve(runs: Sequence[RubricRun]) -> str:
    """What gold does while the score rises."""
    drops = [fall(run.gold) for run in runs]
    fallen = [(run, drop) for run, (_, drop) in zip(runs, drops, strict=True) if drop > 0]
    score = f"the score rose from {_ends(runs, 'proxy', 0)} to {_ends(runs, 'proxy', -1)}"
    if not fallen:
        return (
            f"With one judge {score}, and gold from {_ends(runs, 'gold', 0)} to at most "
            f"{_each([run.peak for run in runs])}; it closed at {_ends(runs, 'gold', -1)}, a fall beyond chance in no "
            "seed."
        )
    steps = ", ".join(str(top + 1) for top, _ in drops)
    return (
        f"With one judge {score}, while gold rose from {_ends(runs, 'gold', 0)} to {_each([run.peak for run in runs])} "
        f"(near step {steps}) and fell to {_ends(runs, 'gold', -1)}, beyond chance in {len(fallen)} of "
        f"{counted(len(runs), 'seed')}."
    )


def _remedy(way: Way, runs: Sequence[RubricRun], alone: Sequence[RubricRun]) -> str:
    gain = difference(runs, alone, "gold")
    lowest = min(min(smooth(run.gold)[len(run.gold) // 2 :]) for run in runs)
    if gain.low is None or gain.low <= 0 <= (gain.high or 0):
        verdict = "cannot be told from one judge"
    else:
        verdict = "more than one judge" if gain.low > 0 else "less than one judge"
    return (
        f"{TITLES[way].capitalize()}: gold ends at {_mean(runs, 'gold')}, {verdict} ({change(gain)}); its peak was "
        f"{_each([run.peak for run in runs])}, its lowest value in the second half {fixed(lowest)}."
    )


def difference(runs: Sequence[RubricRun], others: Sequence[RubricRun], figure: str) -> Mean:
    """Mean difference of a final figure within seeds."""
    by_seed = {run.seed: run.final[figure] for run in others}
    return mean_interval([run.final[figure] - by_seed[run.seed] for run in runs if run.seed in by_seed])


def change(mean: Mean) -> str:
    """A difference with its interval."""
    bounds = "" if mean.low is None else f", {mean.low:+.2f} to {mean.high:+.2f}"
    return f"{mean.value:+.2f}{bounds}".replace("-", "\N{MINUS SIGN}")


def _ends(runs: Sequence[RubricRun], column: Literal["proxy", "gold"], at: int) -> str:
    return fixed(fmean(smooth(getattr(run, column))[at] for run in runs))


def _each(values: Sequence[float]) -> str:
    return fixed(fmean(values))


def _mean(runs: Sequence[RubricRun], figure: str) -> str:
    return fixed(fmean(run.final[figure] for run in runs))


# Figures -------------------------------------------------------------------------------------------------------------

STEP, SCORE = Axis("step", low=0.0, whole=True), Axis("share of the rubric's points")


def figures(runs: Sequence[RubricRun]) -> tuple[LabFigure, ...]:
    """Score and gold with one judge; gold by way over the steps, and over the distance."""
    alone = of_way(runs, "judge")
    both = [
        _series([run.proxy for run in alone], "score by the judge", COLOURS["judge"]),
        _series([run.gold for run in alone], "gold", COLOURS["gold"]),
    ]
    ways = [_series([run.gold for run in of_way(runs, way)], TITLES[way], COLOURS[way]) for way in WAYS]
    far = []
    for way in WAYS:
        distance, gold = (
            np.mean([smooth(getattr(run, name)) for run in of_way(runs, way)], axis=0) for name in ("kl", "gold")
        )
        far.append(
            Series(
                tuple(np.sqrt(np.maximum(distance, 0.0)).tolist()),
                tuple(gold.tolist()),
                TITLES[way],
                colour=COLOURS[way],
            )
        )
    band = "Means over the seeds; bands: lowest and highest."
    return (
        LabFigure.over_axes("judge", "One judge: score and gold", both, (STEP, SCORE), band),
        LabFigure.over_axes("gold", "Gold by what is trained on", ways, (STEP, SCORE), band),
        LabFigure.over_axes(
            "distance", "Gold over the distance from the SFT model", far, (Axis("√KL, √nats", low=0.0), SCORE),
            "Means over the seeds.", rules=(Rule(0.0),), names="points",
        ),
    )  # fmt: skip


def _series(curves: Sequence[Sequence[float]], label: str, colour: int) -> Series:
    """Mean of the seeds' running averages, between the lowest and the highest."""
    lines = np.array([smooth(curve) for curve in curves])
    low, high = tuple(lines.min(0).tolist()), tuple(lines.max(0).tolist())
    steps = tuple(float(step) for step in range(1, lines.shape[1] + 1))
    return Series(steps, tuple(lines.mean(0).tolist()), label, colour=colour, low=low, high=high)


COLUMNS = ("", "score", "gold", "gold minus one judge's", "highest gold on the way", "KL, nats", "tokens")


def table(runs: Sequence[RubricRun]) -> list[tuple[str, ...]]:
    """A row for each way: means over the seeds."""
    alone = of_way(runs, "judge")
    rows: list[tuple[str, ...]] = []
    for way in WAYS:
        own = of_way(runs, way)
        against = "" if way == "judge" else change(difference(own, alone, "gold"))
        peak = fixed(fmean(run.peak for run in own))
        means = {figure: fmean(run.final[figure] for run in own) for figure in FIGURES}
        rows.append(
            (TITLES[way], fixed(means["proxy"]), fixed(means["gold"]), against, peak, number(means["kl"], 2),
             f"{means['length']:.0f}")
        )  # fmt: skip
    return rows

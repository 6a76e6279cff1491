"""Recipes at equal tokens, with several seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, variance

from tutelage.algorithms.recipe import NaturalStep
from tutelage.algorithms.registry import RECIPES, recipe_named
from tutelage.base.nouns import counted
from tutelage.base.number_text import duration, number
from tutelage.demo.lab.experiment import (
    Cell,
    CellResult,
    Experiment,
    ExperimentSetting,
    LabFigure,
    LabPage,
    LabTable,
    measured_series,
)
from tutelage.demo.lab.measurements import Z95, Measurement
from tutelage.demo.lab.policy_training import LabPlan, training_cell
from tutelage.report.figures import Axis, Chart

WARMUP = 3
"""Warm-up steps of the critic, for recipes that have them: the published ten would be a third of these short runs."""


@dataclass(frozen=True, kw_only=True)
class RecipesSize:
    """Recipes, number of seeds, number of tokens."""

    names: tuple[str, ...] = tuple(RECIPES)
    seeds: int = 3
    plan: LabPlan = LabPlan(steps=200, tokens=40_000, tested=160, every=1000)  # noqa: RUF009 - frozen


def cells(setting: ExperimentSetting[RecipesSize]) -> list[Cell]:
    """One run per recipe and seed, seed by seed."""
    size = setting.size
    return [
        training_cell(
            setting,
            f"{name}-{seed}",
            f"{name}, seed {seed}",
            replace(size.plan, recipe=name, set=_changes(name), seed=seed),
        )
        for seed in range(setting.seed, setting.seed + size.seeds)
        for name in size.names
    ]


def _changes(name: str) -> tuple[str, ...]:
    critic = recipe_named(name).critic
    return (f"critic.warmup={WARMUP}",) if critic is not None and critic.warmup > WARMUP else ()


def family(name: str) -> str:
    """Family of a recipe, in a word."""
    recipe = recipe_named(name)
    if isinstance(recipe.update, NaturalStep):
        return "natural gradient"
    if recipe.critic is not None:
        return "critic"
    return "group" if recipe.samples > 1 else "neither"


COLOURS = {"neither": 5, "critic": 0, "group": 1, "natural gradient": 2}
WORDS = "grey: neither critic nor groups; blue: a critic; orange: groups of answers; green: natural gradient"
FIGURES = ("gold", "score", "kl", "length", "ended")


@dataclass(frozen=True)
class RecipeResult:
    """Means of a recipe over the seeds, with standard errors from the pooled variance of all recipes."""

    name: str
    family: str
    figures: Mapping[str, Measurement]
    seconds: float
    tokens: float
    steps: float


def results(done: Sequence[CellResult], families: Mapping[str, str]) -> list[RecipeResult]:
    """Results of all recipes, by decreasing gold.

    With few seeds a recipe's own spread is unreliable, so the variance between seeds is pooled over the recipes,
    assuming that it is equal.
    """
    runs = {name: [cell for cell in done if cell.name.rpartition("-")[0] == name] for name in families}
    values = {
        name: {figure: [float(cell.figures[figure]) for cell in cells] for figure in FIGURES}
        for name, cells in runs.items()
    }
    errors = {figure: pooled([columns[figure] for columns in values.values()]) for figure in FIGURES}
    measured = [
        RecipeResult(
            name=name,
            family=families[name],
            figures={figure: Measurement(fmean(columns[figure]), errors[figure]) for figure in FIGURES},
            seconds=fmean(cell.column("seconds")[-1] for cell in runs[name]),
            tokens=fmean(cell.column("tokens")[-1] for cell in runs[name]),
            steps=fmean(len(cell.steps) for cell in runs[name]),
        )
        for name, columns in values.items()
    ]
    return sorted(measured, key=lambda one: -one.figures["gold"].value)


def pooled(groups: Sequence[Sequence[float]]) -> float:
    """Standard error of a group's mean, from the variance within the groups; NaN if no group has two."""
    several = [group for group in groups if len(group) > 1]
    if not several:
        return float("nan")
    return sqrt(fmean(variance(group) for group in several) / len(several[0]))


def page(done: Sequence[CellResult], size: RecipesSize, command: str) -> LabPage:
    """Page of the experiment on recipes."""
    ranked = results(done, {name: family(name) for name in size.names})
    seeds = len(done) // len(size.names)
    return LabPage(
        title="Recipes at equal tokens",
        question=(
            f"Every recipe from the same SFT model, with {counted(size.plan.tokens, 'sampled token')} and "
            f"{counted(seeds, 'seed')} each: what gold is reached, at what distance, in what time?"
        ),
        command=command,
        findings=tuple(findings(ranked)),
        figures=(_ranked(ranked), _against(ranked, "kl"), _against(ranked, "seconds")),
        tables=(_table(ranked),),
        method=_method(size.plan, seeds),
        numbers={
            one.name: {name: mean.value for name, mean in one.figures.items()} | {"seconds": one.seconds}
            for one in ranked
        },
    )


def _method(plan: LabPlan, seeds: int) -> tuple[str, ...]:
    same = (
        f"Every run samples {counted(plan.answers, 'answer')} a step (a recipe with groups asks fewer prompts) and "
        f"ends with the step in which {counted(plan.tokens, 'token', 'is')} reached; answers that a recipe samples "
        f"and throws away count, greedy ones too. One learning rate, {plan.lr:g} ({plan.critic_lr:g} for critics), "
        "for all, and each recipe's own defaults otherwise, except that critics warm up for three steps instead of "
        "ten: none is tuned, so the order says which default suits this task, not which idea is best."
    )
    sure = (
        f"Figures are of the final policies on {counted(plan.tested, 'held-out prompt')}, means over "
        f"{counted(seeds, 'seed')}. Intervals are 95%, from the variance between seeds, pooled over the recipes. Time "
        "is that of the training steps."
    )
    return same, sure


def findings(ranked: Sequence[RecipeResult]) -> list[str]:
    """Findings as sentences."""
    best, worst = ranked[0], ranked[-1]
    error = best.figures["gold"].error
    reach = Z95 * sqrt(2) * error
    level = [one.name for one in ranked[1:] if best.figures["gold"].value - one.figures["gold"].value <= reach]
    near = sorted(ranked, key=lambda one: one.figures["kl"].value / max(one.figures["gold"].value, 1e-9))
    fast = sorted(ranked, key=lambda one: one.seconds)
    first = (
        f"Most gold was reached by {best.name} ({best.figures['gold'].written}), least by {worst.name} "
        f"({worst.figures['gold'].written}). Differences below {number(reach, 2)} are within chance"
    )
    first += f": {', '.join(level)} cannot be told from the first." if level else "; the first stands alone."
    far = max(ranked, key=lambda one: one.figures["kl"].value)
    close = min(ranked, key=lambda one: one.figures["kl"].value)
    reached = (
        f"Distances reach from {_distance(close)} to {_distance(far)}; the cheapest gold per nat is that of "
        f"{', '.join(one.name for one in near[:3])}."
    )
    times = [f"{one.name} {duration(one.seconds)}" for one in (fast[0], fast[-1])]
    return [first, reached, f"The same tokens took {' and '.join(times)}.", _families(ranked)]


def _distance(one: RecipeResult) -> str:
    return f"{number(one.figures['kl'].value, 2)} nats ({one.name})"


def _families(ranked: Sequence[RecipeResult]) -> str:
    kinds = dict.fromkeys(one.family for one in ranked)
    means = {kind: fmean(one.figures["gold"].value for one in ranked if one.family == kind) for kind in kinds}
    ordered = sorted(means.items(), key=lambda pair: -pair[1])
    return "Mean gold by what recipes are made of: " + ", ".join(f"{kind} {value:.2f}" for kind, value in ordered) + "."


# Figures -------------------------------------------------------------------------------------------------------------


def _ranked(ranked: Sequence[RecipeResult]) -> LabFigure:
    measured = ((one.name, one.figures["gold"], COLOURS[one.family]) for one in ranked)
    dots = ((name, gold, gold.written, colour) for name, gold, colour in measured)
    return LabFigure.dots("gold", "Gold of the final policies", dots, Axis(), f"{WORDS}.")


def _against(ranked: Sequence[RecipeResult], what: str) -> LabFigure:
    """Gold over distance or time, with recipes named at their points."""
    titles = {"kl": "Gold against distance", "seconds": "Gold against time"}
    axes = {
        "kl": Axis("KL to the reference, nats per answer", log=True),
        "seconds": Axis("seconds of training", log=True),
    }
    series = []
    for one in ranked:
        gold = one.figures["gold"]
        x = one.figures["kl"].value if what == "kl" else one.seconds
        series.append(measured_series([x], [gold], one.name, mark="points", colour=COLOURS[one.family]))
    chart = Chart(titles[what], tuple(series), axes[what], Axis("gold"), width=960, height=520)
    caption = f"Means over the seeds with 95% intervals; {WORDS}."
    return LabFigure.of(f"gold-{what}", chart, caption, names="points", wide=True)


def _table(ranked: Sequence[RecipeResult]) -> LabTable:
    rows = tuple(
        (
            one.name,
            *(one.figures[name].written for name in ("gold", "score", "kl", "length")),
            f"{one.figures['ended'].value:.0%}",
            f"{one.steps:.0f}",
            f"{one.tokens:,.0f}",
            f"{one.seconds:.0f}",
        )
        for one in ranked
    )
    columns = ("", "gold", "score", "KL, nats", "length, tokens", "ended", "steps", "tokens", "seconds")
    return LabTable("Every recipe", columns, rows)


EXPERIMENT = Experiment(size=RecipesSize(), cells=cells, page=page)

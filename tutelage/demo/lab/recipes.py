"""All recipes at equal tokens, with several seeds: what is reached, how far from the reference, and how fast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tutelage.algorithms.recipe import NaturalStep
from tutelage.algorithms.registry import RECIPES
from tutelage.demo.lab import recipes_page
from tutelage.demo.lab.cells import Cell, CellResult
from tutelage.demo.lab.climbing import Climb, Goal, climb
from tutelage.demo.lab.experiment import Experiment, ExperimentSetting
from tutelage.demo.lab.page import LabPage
from tutelage.demo.lab.start import gold_reward

WARMUP = 3
"""Steps in which only the critic learns, for recipes that have such: the ten of the published ones would be a third of
these short runs."""


@dataclass(frozen=True, kw_only=True)
class RecipesSize:
    """Which recipes, how many seeds, how many tokens."""

    names: tuple[str, ...] = tuple(RECIPES)
    seeds: int = 3
    plan: Climb = Climb(steps=200, tokens=40_000, tested=160, every=1000)  # noqa: RUF009 - frozen


QUICK = RecipesSize(
    names=("reinforce", "trpo", "ppo", "rloo", "remax", "dapo"),
    seeds=2,
    plan=Climb(steps=20, answers=16, tokens=2000, tested=32, every=1000),
)


def cells(setting: ExperimentSetting[RecipesSize]) -> list[Cell]:
    """A run for every recipe and seed, one seed after the other."""
    size = setting.size
    return [
        _cell(setting, name, replace(size.plan, recipe=name, set=_changes(name), seed=setting.seed + number))
        for number in range(size.seeds)
        for name in size.names
    ]


def _changes(name: str) -> tuple[str, ...]:
    critic = RECIPES[name].critic
    return (f"critic.warmup={WARMUP}",) if critic is not None and critic.warmup > WARMUP else ()


def _cell(setting: ExperimentSetting[RecipesSize], name: str, plan: Climb) -> Cell:
    def run(folder: Path) -> Mapping[str, Any]:
        policy = setting.start.policy()
        goal = Goal(setting.start.score(policy), {"gold": gold_reward()})
        return climb(folder, setting.start, plan, policy, goal, quiet=setting.quiet)

    return Cell(f"{name}-{plan.seed}", f"{name}, seed {plan.seed}", (plan,), run)


def family(name: str) -> str:
    """What a recipe is made of, in a word."""
    recipe = RECIPES[name]
    if isinstance(recipe.update, NaturalStep):
        return "natural gradient"
    if recipe.critic is not None:
        return "critic"
    return "group" if recipe.samples > 1 else "neither"


def page(done: Sequence[CellResult], size: RecipesSize, command: str) -> LabPage:
    """The page of the experiment."""
    families = {name: family(name) for name in size.names}
    return recipes_page.page(done, families, size.plan, command)


EXPERIMENT = Experiment(full=RecipesSize(), quick=QUICK, cells=cells, page=page)

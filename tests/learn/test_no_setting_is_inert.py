"""Every setting of every recipe changes what is learned, or is refused, or the recipe remarks on it."""

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import pytest
import torch
from tabular import random_table
from tiers import long_except
from torch import Tensor

from learn.tabular_policy import improved
from tutelage.algorithms.choice_rules import remarks
from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import GradientSteps, NaturalStep, Recipe
from tutelage.algorithms.registry import FILES, RECIPES
from tutelage.base.errors import TutelageError

SCORE = torch.tensor([[0.0, 0.2, 1.0, -0.5, 0.1, -1.0, 0.6], [0.4, 0.4, 0.0, 0.4, 0.4, 0.4, 0.4]]).double()
START = random_table(0, prompts=2).double()
START[1, 0, 0] += 4  # the second prompt is nearly always answered alike, so that there are groups without spread
RATE = 3.0  # steps large enough for clips and caps to act
STEPS = 3
SEED = 1  # with others a search may find nothing to refuse, or a batch be too much alike

WORDS = {
    "per": ("turn", "token"),
    "normalise": ("batch", "running"),
    "reduce": ("token_mean", "sequence_sum"),
    "kind": ("k2", "k3", "k3_ratio"),
    "where": ("loss", "reward"),
    "controller": ("Adaptive", "Doubling"),
    "baseline": ("BatchMean", "LeaveOneOut"),
    "overlong": ("Overlong", "none"),
    "low": ("0.3",),
    "high": ("0.3",),
    "entropy": ("0.5",),
    "ptx": ("0.5",),
    "cap": ("1.01",),
    "dual": ("1.01",),
    "value_lam": ("0.3",),
    "max_kl": ("1e-6",),
    "clip": ("0.05", "none"),
    "missing_end": ("none", "3"),
    "missing_end_penalty": ("3",),
    "penalty": ("Penalty", "none"),
    "critic": ("Critic", "none"),
}
"""Values worth trying, by the setting's name; numbers and switches are varied as they are."""

SEARCHED = ("update.backtracks", "update.decay", "update.search")
BOLD = ["update.max_kl=4", "update.damping=1e-6"]


def stage(recipe: Recipe, path: str) -> list[str]:
    """What must be set first for a setting to have its say in three steps."""
    first = []
    if path == "shaping.missing_end_penalty":
        first.append("shaping.missing_end=none")
    if recipe.critic and recipe.critic.warmup and path != "critic.warmup":
        first.append("critic.warmup=0")
    if isinstance(recipe.update, GradientSteps) and recipe.update.max_kl and path != "update.max_kl":
        first.append("update.max_kl=none")
    if isinstance(recipe.update, NaturalStep) and path in SEARCHED:
        first += BOLD
    return first


def settings(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every leaf of a recipe with its dotted path; pieces count as leaves too where they can be replaced."""
    found = []
    for field in fields(value):
        inner, place = getattr(value, field.name), f"{path}{field.name}"
        if not is_dataclass(inner) or field.name in WORDS:
            found.append((place, inner))
        if is_dataclass(inner):
            found += settings(inner, f"{place}.")
    return [(place, inner) for place, inner in found if place not in ("name", "paper")]


def other_values(path: str, value: Any) -> list[str]:
    tried = list(WORDS.get(path.rpartition(".")[2], ()))
    if isinstance(value, bool):
        tried.append(str(not value).lower())
    elif isinstance(value, int):
        tried += [str(value + 1), str(2 * value + 2), "1", "0"]
    elif isinstance(value, float):
        tried += [str(value * factor) for factor in (0.1, 0.5, 2, 4, 40)]
    return [text for text in tried if text != str(value)]


@cache
def learned(recipe: Recipe, turns: bool) -> Tensor:
    policy, critic = improved(recipe, START, SCORE, steps=STEPS, rate=RATE, seed=SEED, turns=turns)
    return torch.cat((policy.table.detach().flatten(), critic.head.weight.detach().flatten()))


def has_a_say(recipe: Recipe, path: str, value: Any) -> bool:
    """Whether some other value changes the outcome, or earns a refusal or a remark that the recipe has not earned."""
    staged = override(recipe, stage(recipe, path))
    turns = recipe.name in FILES["turn_credit"] and path != "advantage.per"
    usual = learned(staged, turns)
    refused = 0
    tried = other_values(path, value)
    for text in list(tried):
        try:
            changed = override(staged, [f"{path}={text}"])
        except TutelageError:
            refused += 1
            continue
        if changed == staged:
            tried.remove(text)
        if not torch.equal(learned(changed, turns), usual) or set(remarks(changed)) > set(remarks(staged)):
            return True
    return refused == len(tried) > 0


@pytest.mark.parametrize("name", long_except(("ppo", "grpo"), RECIPES))
def test_no_setting_is_inert(name: str) -> None:
    recipe = RECIPES[name]
    silent = [path for path, value in settings(recipe) if not has_a_say(recipe, path, value)]
    assert not silent

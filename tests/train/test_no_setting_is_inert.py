"""Settings of recipes that a policy, a critic or a text has to honour: another value changes what a transformer learns.

All settings of all recipes are varied in `tests/learn`, through the same loop on a table. What differs here is who
draws the answers and computes their scores, values, divergences and gradients.
"""

from functools import cache

import pytest
import torch
from learn.test_no_setting_is_inert import other_values, settings
from simple_goal import low_tokens
from tiers import long_except
from tiny_training import World, policy_of, some_rows

from tutelage.algorithms.choice_rules import remarks
from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import GradientSteps
from tutelage.algorithms.registry import RECIPES
from tutelage.base.errors import TutelageError
from tutelage.train.supervised.language import PretrainingMix

HONOURED = {
    *("Recipe.samples", "Recipe.dynamic_sampling", "Recipe.entropy", "Recipe.ptx", "Recipe.critic"),
    *("Recipe.penalty", "Penalty.kind", "Penalty.where", "Penalty.mixture"),
    *("TotalReturn.baseline", "Critic.warmup"),
    *("GradientSteps.epochs", "GradientSteps.minibatches", "GradientSteps.max_kl"),
    *("NaturalStep.max_kl", "NaturalStep.damping", "NaturalStep.cg", "NaturalStep.critic_steps"),
}
"""The settings that decide what is asked of a policy and a critic; others are arithmetic on their answers."""
FEW = {"Recipe.samples", "Recipe.ptx", "Penalty.kind", "Critic.warmup", "GradientSteps.max_kl", "NaturalStep.damping"}
"""One of each piece, for `make test`."""


def owner(recipe, path):
    """The class whose field a path names."""
    *parents, _ = path.split(".")
    piece = recipe
    for name in parents:
        piece = getattr(piece, name)
    return type(piece).__name__


@cache
def every():
    """Each setting once: (class, field) -> the recipes that have it, the plainest first."""
    found = {}
    for name, recipe in RECIPES.items():
        for path, _ in settings(recipe):
            found.setdefault((owner(recipe, path), path.rpartition(".")[2]), []).append((name, path))
    return found


def stage(recipe, path):
    """Changes under which a setting can have an effect in a few steps of a small batch."""
    first = []
    if recipe.critic and recipe.critic.warmup and path != "critic.warmup":
        first.append("critic.warmup=0")
    if isinstance(recipe.update, GradientSteps) and recipe.update.max_kl and path != "update.max_kl":
        first.append("update.max_kl=none")
    return first


def scores(completions):
    """Score tokens with low ids; for every other prompt all answers score alike: groups without spread."""
    told = low_tokens(completions)
    same = torch.tensor([int(one.prompt_id.removeprefix("p")) % 2 == 1 for one in completions])
    return torch.where(same, 0.5, told)


def learned(recipe, folder):
    policy = policy_of(folder)
    policy.end_ids = tuple(range(100, 200))
    mix = PretrainingMix(policy, some_rows(4), 4, recipe.ptx, 0) if recipe.ptx else None
    world = World(policy, recipe, steps=3, lr=3e-2, reward=scores, tokens=5, batch=6, mix=mix)
    for _ in world.train():
        pass
    return torch.cat([p.flatten() for p in world.learner.parameters])


def says(recipe, path, value, folder):
    """Whether another value changes the outcome or earns a remark (True), does neither (False), is refused (None)."""
    tried = 0
    staged = override(recipe, stage(recipe, path))
    usual = learned(staged, folder)
    for text in other_values(path, value):
        try:
            changed = override(staged, [f"{path}={text}"])
        except TutelageError:
            continue
        if changed == staged:
            continue
        tried += 1
        if set(remarks(changed)) > set(remarks(staged)):
            return True
        other = learned(changed, folder)
        if other.shape != usual.shape or not torch.equal(other, usual):
            return True
    return False if tried else None


@pytest.mark.parametrize("setting", long_except(FEW, sorted(HONOURED)))
def test_no_setting_is_inert(tiny_model, setting):
    told = []
    recipes = every()[tuple(setting.split("."))][:3]
    for name, path in recipes:
        value = RECIPES[name]
        for part in path.split("."):
            value = getattr(value, part)
        told.append(says(RECIPES[name], path, value, tiny_model("llama")))
        if told[-1]:
            return
    assert set(told) == {None}, f"{setting} changes nothing in {recipes}"


def test_the_settings_are_those_of_recipes():
    assert {".".join(each) for each in every()} >= HONOURED

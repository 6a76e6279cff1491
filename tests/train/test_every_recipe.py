"""Every recipe of the registry through the real loop, on a transformer: it runs as it is, and one of each kind learns.

That every recipe learns is seen in `tests/learn`, on a table. On a transformer recipes of one kind differ by arithmetic
on tensors that a table has too.
"""

import math

import pytest
from simple_goal import LIMIT, expected, low_tokens
from tiers import EVERY_RECIPE, long_except
from tiny_training import World, assert_identical, passes, policy_of, recipe_of, snapshot

from tutelage.algorithms.recipe import GradientSteps, critic_only, needs_greedy, needs_kl_old
from tutelage.algorithms.recipe_state import initial_state
from tutelage.algorithms.registry import RECIPES

TOLD = {
    "score/mean",
    "score/std",
    "score/shaped",
    "kl/reference",
    "kl/reference_k3",
    "kl/old",
    "penalty/coef",
    "entropy",
    "length/mean",
    "ended",
    "ratio/max",
    "advantage/std",
    "tokens_per_second",
}
"""What every recipe logs, whatever it is."""


def varied(recipe):
    """Changes of a recipe for a small batch: several answers per prompt, and an objective of the reward alone."""
    changes = [] if recipe.samples > 1 else ["samples=4"]
    if recipe.shaping.missing_end is not None:
        changes.append("shaping.missing_end=none")
    if recipe.critic and recipe.critic.warmup:
        changes.append("critic.warmup=2")
    if recipe.penalty and recipe.penalty.coef >= 1:
        changes.append("penalty.coef=0.05")
    if not isinstance(recipe.update, GradientSteps):
        changes.append("update.max_kl=0.1")
    return changes


@pytest.mark.parametrize("name", EVERY_RECIPE)
def test_it_runs_as_it_is(tiny_model, name):
    recipe, policy = RECIPES[name], policy_of(tiny_model("llama"))
    policy.end_ids = tuple(range(100, 200))  # so that some answers end within the limit
    world = World(policy, recipe, steps=2, reward=low_tokens, tokens=6)
    before = world.everything()
    for step in world.train():
        odd = {key for key, value in step.metrics.items() if not math.isfinite(value)}
        assert not odd - {"value/explained_variance"}
        assert set(step.metrics) >= TOLD | ({"value/loss", "value/explained_variance"} if recipe.critic else set())
        assert len(step.sample) == len(step.texts) == 8 * recipe.samples
        if step.index == 1:
            assert step.metrics["kl/reference"] == pytest.approx(0.0, abs=1e-4)
    now = world.everything()
    own = len(world.policy.parameters())
    if critic_only(recipe, initial_state(recipe)):
        assert_identical(now[:own], before[:own])
    else:
        assert any((a != b).any() for a, b in zip(now[:own], before[:own], strict=True))
    if recipe.critic:
        assert any((a != b).any() for a, b in zip(now[own:], before[own:], strict=True))
    assert world.state.step == 2


def kind(recipe):
    """What decides the work of a step: rollouts, passes through the models, updates."""
    update, several = recipe.update, False
    if isinstance(update, GradientSteps):
        several = update.epochs * update.minibatches > 1
    rollouts = recipe.samples > 1, recipe.dynamic_sampling, needs_greedy(recipe)
    return rollouts, passes(recipe), type(update), several, needs_kl_old(recipe)


ONE_OF_A_KIND = {kind(RECIPES[name]): name for name in [*reversed(list(RECIPES)), "grpo", "ppo"]}.values()
"""A recipe of each kind."""


@pytest.mark.parametrize("name", long_except(("ppo",), ONE_OF_A_KIND))
def test_it_learns(tiny_model, name):
    """The expected score, computed exactly before and after, rises from a half."""
    recipe = recipe_of(*varied(RECIPES[name]), name=name)
    policy = policy_of(tiny_model("llama"))
    world = World(policy, recipe, steps=12, lr=1e-2, reward=low_tokens, tokens=LIMIT)
    before = expected(policy, world.order.items)
    started = snapshot(policy.parameters())
    for _ in world.train():
        pass
    assert expected(policy, world.order.items) > before + 0.08
    with policy.reference():
        assert expected(policy, world.order.items) == pytest.approx(before, abs=1e-6), "the reference stays"
    assert any((a != b).any() for a, b in zip(policy.parameters(), started, strict=True))

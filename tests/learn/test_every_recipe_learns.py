"""Every recipe raises the expected score of the tabular language, known exactly before and after."""

import pytest
import torch
from tabular import ENDED, LIMIT, MASK, probability, random_table
from tiers import EVERY_RECIPE, long_except
from torch import Tensor

from learn.tabular_policy import improved
from tutelage.algorithms.override import override
from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.registry import RECIPES
from tutelage.core.pieces import Context, apply, init

SCORE = torch.tensor([[0.0, 0.2, 1.0, -0.5, 0.1, -1.0, 0.6], [-0.5, 0.9, 0.0, 0.3, -0.2, 0.3, 0.3]]).double()
START = random_table(0, prompts=2).double() / 2


def trained_on(recipe: Recipe) -> Tensor:
    """The score of every sentence as the recipe shapes it. Float[2, 7]"""
    context = Context(max_length=LIMIT)
    inputs = [(score, ENDED, MASK.sum(1), context) for score in SCORE]
    return torch.stack([apply(recipe.shaping, *each, state=init(recipe.shaping))[0] for each in inputs])


def expected(table: Tensor, score: Tensor) -> float:
    """Mean score over the two prompts."""
    return sum(float((probability(table[i : i + 1]) * score[i]).sum()) / 2 for i in range(2))


def with_a_low_price(recipe: Recipe) -> Recipe:
    """The recipe with a KL that leaves room for a score: at a price of 1 the best policy stays near the reference."""
    return override(recipe, ["penalty.coef=0.05"]) if recipe.penalty and recipe.penalty.coef >= 1 else recipe


@pytest.mark.parametrize("name", EVERY_RECIPE)
def test_learns(name: str) -> None:
    recipe = with_a_low_price(RECIPES[name])
    score = trained_on(recipe)
    before = expected(START, score)
    policy, _ = improved(recipe, START, SCORE, prompts=16, rate=1.0, steps=40)
    reached = (expected(policy.table.detach(), score) - before) / (float(score.amax(1).mean()) - before)
    assert reached > 0.5, f"closed {reached:.0%} of the way to the best policy"


@pytest.mark.parametrize(
    ("kind", "where"),
    long_except(
        [("k1", "reward"), ("exact", "loss")],
        [("k1", "reward"), ("k3", "loss"), ("mse", "loss"), ("k3_ratio", "loss"), ("abs", "reward"), ("exact", "loss")],
    ),
)
def test_a_larger_kl_coefficient_keeps_the_policy_nearer_to_the_reference(kind: str, where: str) -> None:
    """By the divergence itself, a sum over all sentences."""
    found = []
    for coef in (0.001, 1.0):
        changes = (f"penalty.kind={kind}", f"penalty.where={where}", f"penalty.coef={coef}")
        recipe = override(RECIPES["ppo"], [*changes, "shaping.missing_end=none"])
        policy, _ = improved(recipe, START, SCORE, prompts=16, rate=1.0, steps=40)
        found.append(divergence(policy.table.detach(), START))
    assert found[1] < 0.5 * found[0], found


def divergence(table: Tensor, reference: Tensor) -> float:
    """KL(table‖reference) of a sentence, a mean over the two prompts."""
    total = 0.0
    for i in range(2):
        p, q = (probability(each[i : i + 1]) for each in (table, reference))
        total += float((p * (p / q).log()).sum()) / 2
    return total

"""Rollouts that were drawn K steps before they are learnt from still raise the exact expected score."""

from itertools import product

import pytest
from tiers import long_except

from learn.tabular_policy import improved
from learn.test_every_recipe_learns import SCORE, START, expected, trained_on
from tutelage.algorithms.registry import RECIPES


@pytest.mark.parametrize(
    ("name", "staleness"), long_except([("grpo", 4), ("ppo", 1)], product(["grpo", "ppo"], [1, 2, 4]))
)
def test_learns_from_old_rollouts(name: str, staleness: int) -> None:
    score = trained_on(RECIPES[name])
    before = expected(START, score)
    policy, _ = improved(
        RECIPES[name], START, SCORE, prompts=16, rate=1.0, steps=40, staleness=staleness, mismatch="truncated"
    )
    reached = (expected(policy.table.detach(), score) - before) / (float(score.amax(1).mean()) - before)
    assert reached > 0.5, f"closed {reached:.0%} of the way to the best policy"


def test_without_staleness_nothing_changes() -> None:
    """K = 0 is the synchronous run, and the correction of what does not differ is none."""
    plain, _ = improved(RECIPES["grpo"], START, SCORE, steps=5)
    same, _ = improved(RECIPES["grpo"], START, SCORE, steps=5, staleness=0, mismatch="truncated")
    assert (plain.table - same.table).abs().max() < 1e-12

"""Rewards made of rewards, and means with their errors."""

from math import sqrt

import pytest
import torch

from tutelage.core.batch import Rows
from tutelage.data.records import Prompt, user
from tutelage.demo.lab.ensembles import CountedReward, StandardisedReward
from tutelage.demo.lab.measuring import averages, mean
from tutelage.demo.lab.recipes_page import pooled
from tutelage.rewards.composite import Ensemble
from tutelage.rewards.reward import Completions

ROWS = Rows(
    prompt=torch.ones(3, 2, dtype=torch.long),
    prompt_mask=torch.ones(3, 2, dtype=torch.bool),
    response=torch.ones(3, 4, dtype=torch.long),
    mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool),
)


COMPLETIONS = Completions([Prompt("p", user("Why?"))] * 3, ["a", "b", "c"], ROWS)


def constant(*values: float):
    return lambda completions: torch.tensor(values)


def test_an_ensemble_of_scaled_rewards_by_hand() -> None:
    one, other = constant(1.0, 2.0, 6.0), constant(10.0, 30.0, 20.0)
    scaled = StandardisedReward(one, 2.0, 2.0), StandardisedReward(other, 20.0, 10.0)
    expected = {"mean": [-0.75, 0.5, 1.0], "worst": [-1.0, 0.0, 0.0], "lower": [-0.75 - 0.0625, 0.25, 0.0]}
    for how, values in expected.items():
        found = Ensemble(scaled, how, 1.0)(COMPLETIONS)
        assert found.tolist() == pytest.approx(values)
        assert found.dtype == torch.float32


def test_tokens_are_counted_each_time_they_are_asked_about() -> None:
    reward = CountedReward(constant(1.0, 2.0, 3.0), tokens=100)
    assert reward(COMPLETIONS).tolist() == [1.0, 2.0, 3.0]
    assert reward.tokens == 107
    reward(COMPLETIONS)
    assert reward.tokens == 114


def test_a_mean_and_its_interval() -> None:
    found = mean([1.0, 2.0, 3.0, 6.0])
    assert found.value == 3.0
    assert found.error == pytest.approx(sqrt(14 / 3) / 2)
    assert (found.low, found.high) == pytest.approx((3 - 1.96 * found.error, 3 + 1.96 * found.error))
    figures = averages([{"text": "a", "gold": 1.0}, {"text": "b", "gold": 3.0}])
    assert figures == pytest.approx({"gold": 2.0, "gold_error": 1.0, "gold_std": sqrt(2)})


def test_the_pooled_error_is_that_of_one_group_where_all_spread_alike() -> None:
    assert pooled([[0.0, 2.0, 4.0], [10.0, 12.0, 14.0]]) == pytest.approx(2 / sqrt(3))
    assert pooled([[0.0, 2.0], [5.0, 5.0]]) == pytest.approx(sqrt(1.0 / 2))
    assert pooled([[1.0], [2.0]]) != pooled([[1.0], [2.0]]), "one run tells nothing about its spread"

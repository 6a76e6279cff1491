"""Rewards made of rewards, and means with their errors."""

from math import sqrt

import numpy as np
import pytest
import torch

from tutelage.core.batch import Rows
from tutelage.data.records import Prompt, user
from tutelage.demo.lab.measurements import Sketch, averages, bias, cosine, inner, jackknife, mean, noise, products
from tutelage.demo.lab.policy_training import CountedReward, StandardisedReward
from tutelage.demo.lab.recipes import pooled
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


SIZE, BATCHES = 400, 60


def batches(mean: np.ndarray, spread: float, seed: int) -> np.ndarray:
    return mean + spread * np.random.default_rng(seed).normal(size=(BATCHES, len(mean)))


def direction(seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=SIZE)
    return drawn / np.linalg.norm(drawn)


def test_signal_and_noise_are_those_of_the_distribution() -> None:
    sampled = batches(2.0 * direction(0), 0.1, seed=1)
    pairs = products(sampled, sampled)
    assert inner(pairs) == pytest.approx(4.0, rel=0.05)
    assert noise(pairs) == pytest.approx(SIZE * 0.1**2, rel=0.05)


def test_the_signal_is_unbiased_where_there_is_none() -> None:
    """The square of the mean gradient would be SIZE/BATCHES; the mean over different batches is 0."""
    found = [inner(products(b, b)) for b in (batches(np.zeros(SIZE), 1.0, seed) for seed in range(200))]
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(200)
    assert np.mean(found) < 0.05 * SIZE / BATCHES


def test_the_jackknife_foretells_the_spread_over_repetitions() -> None:
    def signal(b: np.ndarray) -> float:
        return inner(products(b, b))

    runs = [jackknife(signal, batches(direction(0), 0.2, seed)) for seed in range(150)]
    spread = np.std([run.value for run in runs])
    assert np.mean([run.error for run in runs]) == pytest.approx(spread, rel=0.25)


def test_bias_is_measured_through_noise_that_both_share() -> None:
    shared = batches(direction(0), 1.0, seed=2)
    shifted = shared + 0.3 * direction(1)
    assert bias(shifted, shared) == pytest.approx(0.09, rel=1e-6)
    assert bias(shared, shared) == 0.0


def test_cosine_of_known_angle() -> None:
    one = direction(0)
    other = direction(1)
    other = other - (other @ one) * one
    other /= np.linalg.norm(other)
    turned = 0.6 * one + 0.8 * other
    found = jackknife(cosine, batches(one, 0.02, 3), batches(5 * turned, 0.1, 4))
    assert abs(found.value - 0.6) < 4 * found.error
    assert found.error < 0.02
    assert np.isnan(cosine(batches(np.zeros(SIZE), 1.0, 9) * 0, batches(one, 0.1, 3)))


def test_a_sketch_keeps_inner_products_and_is_linear() -> None:
    layer = torch.nn.Linear(300, 200)
    sketch = Sketch(list(layer.parameters()), width=1 << 12)
    count = 300 * 200 + 200
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(2, count, generator=generator)
    b = 0.5 * a + b
    error = float(a.norm() * b.norm()) / (1 << 6)
    assert abs(float(sketch(a) @ sketch(b) - a @ b)) < 4 * error
    assert torch.allclose(sketch(a + 2 * b), sketch(a) + 2 * sketch(b), atol=1e-3)


def test_the_sketch_of_a_gradient_is_that_of_its_entries_in_order() -> None:
    layer = torch.nn.Linear(3, 2)
    unused = torch.nn.Parameter(torch.ones(4))
    sketch = Sketch([unused, *layer.parameters()], width=64)
    value = (layer(torch.ones(1, 3)) * torch.tensor([[2.0, -1.0]])).sum()
    by_hand = torch.cat([torch.zeros(4), torch.tensor([2.0] * 3 + [-1.0] * 3), torch.tensor([2.0, -1.0])])
    assert torch.allclose(sketch.gradient(value), sketch(by_hand))
    assert torch.allclose(sketch.gradient(value), sketch(by_hand)), "the graph is kept for the next"

"""Noise, bias and angles of gradient estimates against distributions whose moments are known."""

import numpy as np
import pytest
import torch

from tutelage.demo.lab.gradients import Sketch, bias, cosine, inner, jackknife, noise, products

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

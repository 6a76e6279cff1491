"""Natural-gradient steps on a policy whose Fisher matrix can be written down."""

import math

import pytest
import torch
from tabular import MASK, SENTENCES, distributions, gradient, probability, random_table, token_logp
from torch import Tensor

from tutelage.core.natural import conjugate_gradient, line_search, natural_direction

TABLE = random_table(0).double()
PSI = torch.randn(7, 2, generator=torch.Generator().manual_seed(1)).double() * MASK


def mean_kl(table: Tensor) -> Tensor:
    """KL(old‖π), averaged over the tokens that the old policy writes."""
    old = distributions(TABLE, SENTENCES)
    per_token = (old.exp() * (old - distributions(table, SENTENCES))).sum(-1)
    visits = probability(TABLE)[:, None] * MASK
    return (visits * per_token).sum() / visits.sum()


def gain(table: Tensor) -> Tensor:
    """Σ ρ Ψ under the old policy."""
    ratio = (token_logp(table, SENTENCES) - token_logp(TABLE, SENTENCES)).exp()
    return (probability(TABLE)[:, None] * ratio * PSI * MASK).sum()


def product(v: Tensor) -> Tensor:
    """F v from the derivative of the derivative of the KL."""
    table = TABLE.clone().requires_grad_()
    (slope,) = torch.autograd.grad(mean_kl(table), table, create_graph=True)
    return gradient((slope.reshape(-1) * v).sum(), table).reshape(-1)


def fisher() -> Tensor:
    """F as the covariance of the score function: no derivative of a KL anywhere."""
    p, visits = distributions(TABLE, SENTENCES).exp(), probability(TABLE)[:, None] * MASK
    states = torch.stack((torch.zeros(7, dtype=torch.long), SENTENCES[:, 0]), 1)
    full = torch.zeros(9, 9)
    for s in range(7):
        for t in range(2):
            block = torch.diag(p[s, t]) - torch.outer(p[s, t], p[s, t])
            at = slice(3 * int(states[s, t]), 3 * int(states[s, t]) + 3)
            full[at, at] += visits[s, t] / visits.sum() * block
    return full


def slope() -> Tensor:
    table = TABLE.clone().requires_grad_()
    return gradient(gain(table), table).reshape(-1)


def test_the_product_is_that_with_the_fisher_matrix() -> None:
    for seed in range(3):
        v = torch.randn(9, generator=torch.Generator().manual_seed(seed))
        assert (product(v) - fisher() @ v).abs().max() < 1e-14


def test_conjugate_gradient_solves_what_a_dense_solver_solves() -> None:
    generator = torch.Generator().manual_seed(0)
    root, g = torch.randn(12, 12, generator=generator), torch.randn(12, generator=generator)
    matrix = root @ root.T + 0.1 * torch.eye(12)
    found = conjugate_gradient(lambda v: matrix @ v, g, iterations=40, tolerance=1e-24)
    assert torch.allclose(found, torch.linalg.solve(matrix, g), rtol=1e-7)
    three = torch.diag(torch.tensor([1.0, 1.0, 2.0, 2.0, 5.0, 5.0]))  # three eigenvalues: three steps are enough
    found = conjugate_gradient(lambda v: three @ v, torch.ones(6), iterations=3)
    assert torch.allclose(found, 1 / three.diagonal())
    assert torch.equal(conjugate_gradient(lambda v: three @ v, torch.zeros(6), iterations=3), torch.zeros(6))


@pytest.mark.parametrize("delta", [1e-4, 0.01, 0.3])
def test_the_step_has_the_length_that_was_asked_and_the_direction_of_the_natural_gradient(delta: float) -> None:
    d = natural_direction(product, slope(), max_kl=delta, damping=0.0, iterations=20)
    assert float(d @ fisher() @ d / 2) == pytest.approx(delta, rel=1e-9)
    dense = torch.linalg.pinv(fisher()) @ slope()
    assert float(torch.nn.functional.cosine_similarity(d, dense, dim=0)) == pytest.approx(1.0, abs=1e-10)
    damped = natural_direction(product, slope(), max_kl=delta, damping=0.1, iterations=20)
    assert float(damped @ (fisher() + 0.1 * torch.eye(9)) @ damped / 2) == pytest.approx(delta, rel=1e-9)
    assert float(damped @ fisher() @ damped / 2) < delta


def test_the_true_divergence_of_a_short_step_is_what_was_asked() -> None:
    d = natural_direction(product, slope(), max_kl=1e-6, damping=0.0, iterations=20)
    assert float(mean_kl(TABLE + d.reshape(TABLE.shape))) == pytest.approx(1e-6, rel=1e-2)


def test_with_overwhelming_damping_it_is_the_plain_gradient() -> None:
    d = natural_direction(product, slope(), max_kl=0.01, damping=1e6, iterations=20)
    assert float(torch.nn.functional.cosine_similarity(d, slope(), dim=0)) == pytest.approx(1.0, abs=1e-9)


def test_a_gradient_of_zero_is_a_step_of_zero() -> None:
    assert torch.equal(
        natural_direction(product, torch.zeros(9), max_kl=0.1, damping=0.1, iterations=5), torch.zeros(9)
    )


def test_the_search_keeps_the_true_divergence_and_takes_the_longest_step_that_does() -> None:
    delta = 0.5  # far beyond where the KL is a parabola
    d = natural_direction(product, slope(), max_kl=delta, damping=0.0, iterations=20).reshape(TABLE.shape)
    d = 4 * d  # too long on purpose, so that the search has something to do
    before = float(gain(TABLE))

    def evaluate(share: float) -> tuple[float, float]:
        there = TABLE + share * d
        return float(gain(there)) - before, float(mean_kl(there))

    found = line_search(evaluate, max_kl=delta, backtracks=10, decay=0.8)
    assert 0 < found.share < 1
    assert found.kl <= delta
    assert found.improvement > 0
    assert found.share == 0.8 ** (found.tried - 1)
    assert evaluate(found.share / 0.8)[1] > delta
    assert (found.improvement, found.kl) == evaluate(found.share)


def test_the_search_refuses_what_never_rises_and_what_is_not_a_number() -> None:
    for outcome in ((-1.0, 0.0), (math.nan, 0.0), (1.0, math.nan), (1.0, 2.0)):
        tried: list[float] = []

        def evaluate(share: float, outcome: tuple[float, float] = outcome, tried: list[float] = tried):
            tried.append(share)
            return outcome

        found = line_search(evaluate, max_kl=1.0, backtracks=2, decay=0.5)
        assert found.share == 0.0
        assert tried == [1.0, 0.5, 0.25]

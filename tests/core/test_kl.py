"""The divergences between whole distributions; the estimators are in tests/laws/test_kl_placement.py."""

import math

import torch
from offenders import for_each
from torch import Tensor

from tutelage.core.kl import exact_divergence, exact_kl, expectation


def logits(seed: int) -> Tensor:
    return 2 * torch.randn(5, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


POLICY, REFERENCE = logits(0), logits(1)


def test_the_ends_are_the_two_kls_and_the_limits_of_what_lies_between() -> None:
    forward, reverse = exact_kl(REFERENCE, POLICY), exact_kl(POLICY, REFERENCE)
    assert torch.equal(exact_divergence(POLICY, REFERENCE), reverse)
    torch.testing.assert_close(exact_divergence(POLICY, REFERENCE, 0.0), forward)
    close = 1e-4
    torch.testing.assert_close(exact_divergence(POLICY, REFERENCE, close) / close, forward, rtol=5e-3, atol=0)
    torch.testing.assert_close(exact_divergence(POLICY, REFERENCE, 1 - close) / close, reverse, rtol=5e-3, atol=0)


@for_each([0.1, 0.5, 0.9])
def test_between_them_it_is_bounded_and_turns_with_its_arguments(mixture: float) -> None:
    apart = exact_divergence(POLICY, REFERENCE, mixture)
    entropy = -mixture * math.log(mixture) - (1 - mixture) * math.log(1 - mixture)
    assert (apart > 0).all()
    assert (apart < entropy).all()  # that of the choice between the two
    torch.testing.assert_close(apart, exact_divergence(REFERENCE, POLICY, 1 - mixture))
    assert exact_divergence(POLICY, POLICY + 3.0, mixture).abs().max() < 1e-12


@for_each([0.0, 0.1, 0.5, 0.9, 1.0])
def test_its_gradient_is_that_of_the_closed_form(mixture: float) -> None:
    """∂D/∂z = π (g − Σ π g) with g = (1 − β) log(π / m); without the factor at β = 1; and π − ref at β = 0."""
    z = POLICY.clone().requires_grad_()
    (found,) = torch.autograd.grad(exact_divergence(z, REFERENCE, mixture).sum(), z)
    p, ref = POLICY.softmax(-1), REFERENCE.softmax(-1)
    if mixture == 0.0:
        expected = p - ref
    else:
        g = (1 - mixture if mixture < 1 else 1.0) * (p / (mixture * ref + (1 - mixture) * p)).log()
        expected = p * (g - (p * g).sum(-1, keepdim=True))
    torch.testing.assert_close(found, expected)


def test_what_nobody_chooses_adds_nothing() -> None:
    never = torch.tensor([0.0, -torch.inf, 0.0])
    for mixture in (0.0, 0.5, 1.0):
        assert float(exact_divergence(never, never, mixture)) == 0.0
    assert torch.isinf(exact_divergence(never, torch.zeros(3), 0.0)), "the policy cannot say what the reference says"
    assert float(exact_divergence(never, torch.zeros(3), 0.5)) < math.log(2)


MASKED = POLICY.clone()
MASKED[:, 2], MASKED[1, 4] = -torch.inf, -torch.inf
"""Logits of tokens that are never chosen: one column, and one more of a row."""


@for_each([0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_gradient_at_a_logit_of_minus_infinity_is_the_limit(mixture: float) -> None:
    """D and its gradient in both arguments are those at a logit so low that its probability rounds to 0."""
    cases = {
        "the policy alone": (MASKED, REFERENCE if mixture else POLICY),
        "both": (MASKED, REFERENCE.masked_fill(MASKED.isneginf(), -torch.inf)),
        "the reference alone": (POLICY if mixture < 1 else MASKED, MASKED - 0.5 * REFERENCE),
    }
    if mixture == 0.0:
        del cases["the policy alone"]  # infinite
    for name, pair in cases.items():
        at, limit = (
            [x.clone().requires_grad_() for x in (z.clamp(min=low) for z in pair)] for low in (-torch.inf, -1e4)
        )
        values = [exact_divergence(*both, mixture) for both in (at, limit)]
        torch.testing.assert_close(*values, msg=name)
        found, expected = (torch.autograd.grad(v.sum(), both) for v, both in zip(values, (at, limit), strict=True))
        for one, other in zip(found, expected, strict=True):
            assert one.isfinite().all(), name
            torch.testing.assert_close(one, other, msg=name)


def test_the_gradient_beside_a_logit_of_minus_infinity_is_that_of_differences() -> None:
    inside = ~MASKED[0].isneginf()

    def divergences(finite: Tensor) -> Tensor:
        z = torch.full_like(MASKED[0], -torch.inf).masked_scatter(inside, finite)
        ref = MASKED[0] * 0.5
        return torch.stack([exact_divergence(z, ref, mixture) for mixture in (0.0, 0.3, 1.0)])

    assert torch.autograd.gradcheck(divergences, (POLICY[0, inside].clone().requires_grad_(),))


def test_an_expectation_leaves_out_what_has_probability_0() -> None:
    logp = torch.tensor([0.5, 0.5, 0.0]).log().requires_grad_()
    for odd in (torch.inf, -torch.inf, torch.nan):
        value = expectation(logp, torch.tensor([1.0, 3.0, odd]))
        assert value.item() == 2.0
        assert torch.autograd.grad(value, logp)[0].tolist() == [0.5, 1.5, 0.0]

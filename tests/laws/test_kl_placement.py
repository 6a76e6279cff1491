"""Each cell of the table in `tutelage.core.kl`, by enumeration."""

import math

import pytest
import torch
from tabular import MASK, SENTENCES, distributions, gradient, probability, random_table, token_logp
from torch import Tensor

from tutelage.core.advantages import RewardToGo, TotalReturn
from tutelage.core.kl import ESTIMATORS, exact_kl, kl_estimate
from tutelage.core.pieces import NOTHING

POLICY, REFERENCE = random_table(0).double(), random_table(1).double()


def kl(table: Tensor) -> Tensor:
    """KL(π‖ref) of whole sentences."""
    return (probability(table) * (token_logp(table, SENTENCES) - token_logp(REFERENCE, SENTENCES)).sum(1)).sum()


def reverse_kl(table: Tensor) -> Tensor:
    """KL(ref‖π) of whole sentences."""
    apart = token_logp(REFERENCE, SENTENCES) - token_logp(table, SENTENCES)
    return (probability(REFERENCE) * apart.sum(1)).sum()


def exact(function: object) -> Tensor:
    table = POLICY.clone().requires_grad_()
    return gradient(function(table), table)


def mean_of(kind: str) -> float:
    per_token = kl_estimate(token_logp(POLICY, SENTENCES), token_logp(REFERENCE, SENTENCES), kind)
    return float((probability(POLICY) * per_token.sum(1)).sum())


def gradient_in_the_loss(kind: str) -> Tensor:
    table = POLICY.clone().requires_grad_()
    old = token_logp(POLICY, SENTENCES)
    per_token = kl_estimate(token_logp(table, SENTENCES), token_logp(REFERENCE, SENTENCES), kind, old)
    return gradient((probability(POLICY) * per_token.sum(1)).sum(), table)


def gradient_in_the_reward(kind: str, piece: object = RewardToGo()) -> Tensor:
    table = POLICY.clone().requires_grad_()
    reward = kl_estimate(token_logp(POLICY, SENTENCES), token_logp(REFERENCE, SENTENCES), kind) * MASK
    (psi, _), _ = piece(reward, MASK, None, 1, NOTHING, ())
    return gradient((probability(POLICY) * (token_logp(table, SENTENCES) * psi).sum(1)).sum(), table)


def test_k1_and_k3_have_the_right_mean_and_the_others_have_not() -> None:
    truth = float(kl(POLICY))
    assert mean_of("k1") == pytest.approx(truth, abs=1e-12)
    assert mean_of("k3") == pytest.approx(truth, abs=1e-12)
    assert abs(mean_of("k2") - truth) > 1e-2
    assert mean_of("abs") > truth + 1e-2


def test_k1_in_the_reward_follows_the_exact_gradient_and_the_others_do_not() -> None:
    truth = exact(kl)
    for piece in (RewardToGo(), TotalReturn()):
        assert (gradient_in_the_reward("k1", piece) - truth).abs().max() < 1e-12
    for kind in ("k2", "k3", "abs"):
        assert (gradient_in_the_reward(kind) - truth).abs().max() > 1e-2, kind


def test_in_the_loss_k1_has_no_gradient_and_the_others_follow_another() -> None:
    truth, reverse = exact(kl), exact(reverse_kl)
    assert gradient_in_the_loss("k1").abs().max() < 1e-12
    for kind in ("k2", "k3", "abs"):
        found = gradient_in_the_loss(kind)
        assert min(float((found - truth).abs().max()), float((found - reverse).abs().max())) > 1e-2, kind


def one_token(kind: str, sampler: Tensor = POLICY) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient in the loss on tokens of `sampler`, ∇KL(π‖ref) and ∇KL(ref‖π) for a single token of three words."""
    logits, ref = POLICY[0, 0].clone().requires_grad_(), torch.log_softmax(REFERENCE[0, 0], -1)
    logp, old = torch.log_softmax(logits, -1), torch.log_softmax(sampler[0, 0], -1)
    return (
        gradient((old.exp() * kl_estimate(logp, ref, kind, old)).sum(), logits),
        gradient((logp.exp() * (logp - ref)).sum(), logits),
        gradient((ref.exp() * (ref - logp)).sum(), logits),
    )


def test_for_one_token_k2_is_the_forward_and_k3_the_reverse_gradient_exactly() -> None:
    found, forward, reverse = one_token("k2")
    assert (found - forward).abs().max() < 1e-12
    assert (forward - reverse).abs().max() > 1e-2
    found, forward, reverse = one_token("k3")
    assert (found - reverse).abs().max() < 1e-12
    found, forward, reverse = one_token("abs")
    assert min(float((found - forward).abs().max()), float((found - reverse).abs().max())) > 1e-2


def test_weighted_with_its_ratio_k3_has_the_forward_gradient_whatever_the_sampler() -> None:
    for sampler in (POLICY, REFERENCE, random_table(2).double()):
        found, forward, _ = one_token("k3_ratio", sampler)
        assert (found - forward).abs().max() < 1e-12
    for kind in ("k2", "k3"):
        found, forward, reverse = one_token(kind, random_table(2).double())
        assert min(float((found - forward).abs().max()), float((found - reverse).abs().max())) > 1e-2, kind


def test_weighted_with_its_ratio_k3_is_in_the_loss_as_k2_is() -> None:
    assert (gradient_in_the_loss("k3_ratio") - gradient_in_the_loss("k2")).abs().max() < 1e-12


def test_weighted_with_its_ratio_k3_needs_the_sampler() -> None:
    with pytest.raises(ValueError, match=r"k3_ratio requires .* sampler"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k3_ratio")


def test_the_exact_kl_of_tokens_adds_up_to_that_of_sentences() -> None:
    ours, theirs = distributions(POLICY, SENTENCES), distributions(REFERENCE, SENTENCES)
    per_token = exact_kl(ours + 5.0, theirs - 1.0)  # logits up to a constant
    total = (probability(POLICY)[:, None] * per_token * MASK).sum()
    assert float(total) == pytest.approx(float(kl(POLICY)), abs=1e-12)


def test_in_the_loss_the_exact_kl_has_the_mean_gradient_of_k2() -> None:
    table = POLICY.clone().requires_grad_()
    per_token = exact_kl(distributions(table, SENTENCES), distributions(REFERENCE, SENTENCES)) * MASK
    found = gradient((probability(POLICY) * per_token.sum(1)).sum(), table)
    assert (found - gradient_in_the_loss("k2")).abs().max() < 1e-12


def test_the_exact_kl_ignores_tokens_the_policy_never_chooses() -> None:
    policy = torch.tensor([0.0, -torch.inf, 0.0])
    assert float(exact_kl(policy, torch.tensor([0.0, -torch.inf, 0.0]))) == 0.0
    assert float(exact_kl(policy, torch.zeros(3))) == pytest.approx(float(torch.tensor(1.5).log()))
    assert torch.isinf(exact_kl(torch.zeros(3), policy))


def test_the_sign_is_that_of_policy_against_reference() -> None:
    logp, ref = torch.tensor([-0.5]), torch.tensor([-2.0])  # the policy likes the token better
    old = logp - math.log(2.0)
    assert kl_estimate(logp, ref, "k1") == 1.5
    assert {kind: round(float(kl_estimate(logp, ref, kind, old)), 6) for kind in ESTIMATORS} == {
        "k1": 1.5,
        "k2": 1.125,
        "mse": 1.125,
        "k3": 0.723130,
        "k3_ratio": 1.446260,
        "abs": 1.5,
    }


def test_an_unknown_estimator_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'k4' is not known; choose one of k1, k2, mse, k3, k3_ratio, abs"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")

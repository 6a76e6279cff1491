"""E[ Σₜ ∇ log πₜ Ψₜ ] against the exact gradient of the expected score, by summing over every sentence."""

from itertools import product

import pytest
import torch
from tabular import MASK, SENTENCES, exact_values, gradient, probability, random_table, sentence_gradients
from tabular import token_logp as token_logp_of
from torch import Tensor

from tutelage.core.advantages import (
    ActionValue,
    Advantage,
    Gae,
    NStep,
    RewardToGo,
    TemporalDifference,
    TotalReturn,
    ValueBaseline,
)
from tutelage.core.baselines import BatchMean, LeaveOneOut, MinimumVariance, MovingAverage, NoBaseline, score_norm_bound
from tutelage.core.groups import BestOfGroup, Greedy, Group
from tutelage.core.pieces import NOTHING, Context, apply, init
from tutelage.core.reduce import at_last_token
from tutelage.core.surrogates import TrajectoryWeighted

TABLE = random_table(0).double()
SCORE = torch.randn(7, generator=torch.Generator().manual_seed(1)).double()
STATES = torch.stack((torch.zeros(7, dtype=torch.long), SENTENCES[:, 0]), 1)
STEPWISE = random_table(3).double()[0][STATES, SENTENCES] * MASK  # a reward on every token, of its state and itself
WRONG = torch.full((7, 2), 0.3).double() * MASK  # a critic that has learned nothing


def psi_of(
    piece: Advantage, reward: Tensor, mask: Tensor, value: Tensor | None, group: int, context: Context = NOTHING
) -> Tensor:
    """Ψ of a batch that is the first."""
    (psi, _), _ = apply(piece, reward, mask, value, group, context, state=init(piece))
    return psi


def exact_gradient(score: Tensor) -> Tensor:
    table = TABLE.clone().requires_grad_()
    return gradient((probability(table) * score).sum(), table)


def expected_gradient(psi: Tensor) -> Tensor:
    """E[Σₜ ∇ log πₜ Ψₜ] with one Ψ per sentence and token."""
    return torch.einsum("s,st,st...->...", probability(TABLE), psi, sentence_gradients(TABLE))


@pytest.mark.parametrize(
    ("piece", "critic"),
    [
        (TotalReturn(), None),
        (TotalReturn(MovingAverage()), None),
        (RewardToGo(), None),
        (RewardToGo(MovingAverage()), None),
        (ValueBaseline(), "wrong"),
        (ValueBaseline(), "exact"),
        (Gae(lam=1.0, whiten=False), "wrong"),
        (Gae(lam=0.95, whiten=False), "exact"),
        (Gae(lam=0.0, whiten=False), "exact"),
        (TemporalDifference(), "exact"),
        (NStep(n=1), "exact"),
        (NStep(n=2), "wrong"),
        (ActionValue(), "exact"),
        (Greedy(), None),
    ],
    ids=repr,
)
def test_every_unbiased_psi_has_the_exact_policy_gradient(piece: Advantage, critic: str | None) -> None:
    for reward in (at_last_token(SCORE, MASK), STEPWISE):
        value = {None: None, "wrong": WRONG, "exact": exact_values(TABLE, reward)}[critic]
        context = Context(greedy=torch.full((7,), -2.0))
        earlier = {"sum": 3.0, "weight": 1.0} if init(piece) else init(piece)
        (psi, _), _ = apply(piece, reward, MASK, value, 1, context, state=earlier)
        exact = exact_gradient(reward.sum(1))
        assert (expected_gradient(psi) - exact).abs().max() < 1e-11


def test_a_critic_that_is_wrong_biases_what_trusts_it() -> None:
    reward = at_last_token(SCORE, MASK)
    for piece in (TemporalDifference(), ActionValue(), Gae(lam=0.5, whiten=False), NStep(n=1)):
        psi, _ = piece(reward, MASK, WRONG, 1)
        assert (expected_gradient(psi) - exact_gradient(SCORE)).abs().max() > 1e-3, piece


def over_groups(piece: Advantage, size: int) -> Tensor:
    """E[mean over rows of Σₜ ∇ log πₜ Ψₜ] over all ways to draw `size` sentences."""
    p, grads, reward = probability(TABLE), sentence_gradients(TABLE), at_last_token(SCORE, MASK)
    total = torch.zeros_like(TABLE)
    for drawn in product(range(7), repeat=size):
        rows = torch.tensor(drawn)
        psi = psi_of(piece, reward[rows], MASK[rows], None, size)
        total += p[rows].prod() * torch.einsum("st,st...->...", psi, grads[rows]) / size
    return total


@pytest.mark.parametrize("size", [2, 3])
def test_leave_one_out_is_unbiased_and_the_plain_group_mean_is_g_minus_1_over_g_of_it(size: int) -> None:
    exact = exact_gradient(SCORE)
    assert (over_groups(Group(leave_one_out=True), size) - exact).abs().max() < 1e-11
    assert (over_groups(Group(), size) - exact * (size - 1) / size).abs().max() < 1e-11
    assert (over_groups(TotalReturn(LeaveOneOut()), size) - exact).abs().max() < 1e-11
    assert (over_groups(RewardToGo(LeaveOneOut()), size) - exact).abs().max() < 1e-11


def test_dividing_by_the_spread_biases_the_direction() -> None:
    found, exact = over_groups(Group(standardise=True), 2).flatten(), exact_gradient(SCORE).flatten()
    assert torch.nn.functional.cosine_similarity(found, exact, dim=0) < 0.99


@pytest.mark.parametrize("size", [2, 3])
def test_best_of_group_climbs_the_expected_maximum(size: int) -> None:
    table = TABLE.clone().requires_grad_()
    p = probability(table)
    drawn = torch.tensor(list(product(range(7), repeat=size)))
    best = (p[drawn].prod(1) * SCORE[drawn].amax(1)).sum()
    assert (over_groups(BestOfGroup(), size) - gradient(best, table)).abs().max() < 1e-11


def population() -> tuple[Tensor, Tensor]:
    """A policy whose sentences have probabilities in sixteenths, and a batch that holds each exactly as often."""
    table = torch.tensor([[[2.0, 1.0, 1.0], [1.0, 1.0, 2.0], [2.0, 1.0, 1.0]]]).double().log()
    return table, torch.repeat_interleave(torch.arange(7), torch.tensor([8, 1, 1, 2, 2, 1, 1]))


def token_norms(table: Tensor) -> Tensor:
    return (sentence_gradients(table) ** 2).flatten(2).sum(-1)


@pytest.mark.parametrize("to_go", [True, False])
def test_the_minimum_variance_baseline_has_the_smallest_variance_of_all_constants(to_go: bool) -> None:
    table, rows = population()
    assert torch.allclose(probability(table), torch.bincount(rows) / 16)
    reward, grads = STEPWISE[rows], sentence_gradients(table)[rows]
    piece = RewardToGo if to_go else TotalReturn
    context = Context(score_norm=token_norms(table)[rows])

    def second_moment(psi: Tensor) -> float:
        per_row = torch.einsum("st,st...->s...", psi, grads)
        return float((per_row**2).flatten(1).sum(1).mean())

    plain, best, mean = (
        psi_of(piece(baseline), reward, MASK[rows], None, 1, context)
        for baseline in (NoBaseline(), MinimumVariance(), BatchMean())
    )
    b = float((plain - best)[MASK[rows]].mean())
    others = [torch.where(MASK[rows], plain - (b + step), 0.0) for step in (-0.5, -1e-3, 1e-3, 0.5)]
    assert all(second_moment(best) < second_moment(other) for other in [plain, mean, *others])


def test_the_norm_from_sampled_log_probabilities_is_within_a_factor_of_two() -> None:
    for seed in range(20):
        table = random_table(seed).double() * 3
        norm, bound = token_norms(table)[MASK], score_norm_bound(token_logp_of(table, SENTENCES))[MASK]
        assert (bound <= norm + 1e-12).all()
        assert (norm <= 2 * bound + 1e-12).all()


def test_a_moving_average_is_that_of_earlier_batches() -> None:
    (psi, _), after = TotalReturn(MovingAverage(decay=0.5))(
        at_last_token(SCORE, MASK), MASK, None, 1, NOTHING, {"sum": 0.35, "weight": 0.5}
    )
    assert torch.allclose(psi[:, 0], SCORE - 0.7)
    assert after == {"sum": pytest.approx(0.175 + float(SCORE.mean()) / 2), "weight": 0.75}


def test_off_policy_weights_give_the_exact_gradient_far_from_the_sampler() -> None:
    sampler, table = random_table(5).double(), TABLE.clone().requires_grad_()
    old = token_logp_of(sampler, SENTENCES)
    psi = psi_of(RewardToGo(), STEPWISE, MASK, None, 1)
    value = TrajectoryWeighted()(token_logp_of(table, SENTENCES), old, psi, MASK)
    found = gradient((old.sum(1).exp()[:, None] * value)[MASK].sum(), table)
    assert (found - exact_gradient(STEPWISE.sum(1))).abs().max() < 1e-11
    capped = TrajectoryWeighted(cap=1.5)(token_logp_of(table, SENTENCES), old, psi, MASK)
    biased = gradient((old.sum(1).exp()[:, None] * capped)[MASK].sum(), table)
    assert (biased - exact_gradient(STEPWISE.sum(1))).abs().max() > 1e-3

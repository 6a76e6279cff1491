"""What the surrogates share, and where they part."""

import math

import pytest
import torch
from tabular import MASK, SENTENCES, gradient, random_table, token_logp
from torch import Tensor

from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import token_weights
from tutelage.core.surrogates import (
    Cispo,
    Clipped,
    ImportanceWeighted,
    KlPenalised,
    ScoreFunction,
    SequenceClipped,
    Surrogate,
    TrajectoryWeighted,
)

SAMPLER, MOVED = random_table(0).double(), random_table(0).double() + 0.8 * random_table(1).double()
PSI = torch.randn(7, 2, generator=torch.Generator().manual_seed(2)).double() * MASK
PER_RESPONSE = PSI[:, :1].expand(7, 2) * MASK
OLD = token_logp(SAMPLER, SENTENCES)


def slope(surrogate: Surrogate, at: Tensor, psi: Tensor = PSI, reduce: str = "token_mean") -> Tensor:
    table = at.clone().requires_grad_()
    per_token = surrogate(token_logp(table, SENTENCES), OLD, psi, MASK)
    return gradient((token_weights(MASK, reduce) * per_token).sum(), table)


@pytest.mark.parametrize(
    "surrogate",
    [
        ImportanceWeighted(),
        ImportanceWeighted(cap=2.0),
        TrajectoryWeighted(),
        TrajectoryWeighted(cap=2.0),
        Clipped(),
        Clipped(low=0.01, high=0.3, dual=3.0),
        KlPenalised(coef=7.0),
        Cispo(),
    ],
    ids=repr,
)
def test_at_the_sampler_all_surrogates_have_one_gradient(surrogate: Surrogate) -> None:
    assert (slope(surrogate, SAMPLER) - slope(ScoreFunction(), SAMPLER)).abs().max() < 1e-15


def test_a_ratio_per_response_has_the_same_gradient_there_under_the_reduction_that_fits() -> None:
    product, mean = SequenceClipped(length_normalised=False), SequenceClipped()
    found = slope(product, SAMPLER, PER_RESPONSE, "sequence_mean")
    assert (found - slope(ScoreFunction(), SAMPLER, PER_RESPONSE, "sequence_sum")).abs().max() < 1e-15
    found = slope(mean, SAMPLER, PER_RESPONSE, "sequence_mean")
    assert (found - slope(ScoreFunction(), SAMPLER, PER_RESPONSE, "sequence_mean")).abs().max() < 1e-15


def test_a_clip_without_bounds_is_the_importance_weight_everywhere() -> None:
    free = Clipped(low=math.inf, high=math.inf)
    assert (slope(free, MOVED) - slope(ImportanceWeighted(), MOVED)).abs().max() < 1e-15
    assert (slope(Clipped(), MOVED) - slope(ImportanceWeighted(), MOVED)).abs().max() > 1e-3


def test_the_clipped_objective_is_a_lower_bound_that_touches_at_the_sampler() -> None:
    logp = token_logp(MOVED, SENTENCES)
    free = ImportanceWeighted()(logp, OLD, PSI, MASK)
    assert (Clipped()(logp, OLD, PSI, MASK) <= free + 1e-15).all()
    assert torch.equal(Clipped()(OLD, OLD, PSI, MASK), ImportanceWeighted()(OLD, OLD, PSI, MASK))
    dual = Clipped(dual=3.0)(logp, OLD, PSI, MASK)
    assert (dual >= Clipped()(logp, OLD, PSI, MASK)).all()
    assert (dual[PSI < 0] >= 3.0 * PSI[PSI < 0]).all()


@pytest.mark.parametrize(
    "surrogate",
    [
        Clipped(),
        Clipped(low=0.05, high=0.6),
        Clipped(dual=1.3),
        SequenceClipped(low=0.02, high=0.3),
        ImportanceWeighted(cap=1.2),
    ],
    ids=repr,
)
def test_clipped_tells_exactly_where_the_gradient_is_cut(surrogate: Clipped) -> None:
    psi = PER_RESPONSE if isinstance(surrogate, SequenceClipped) else PSI
    logp = token_logp(MOVED, SENTENCES).detach().requires_grad_()
    per_token = surrogate(logp, OLD, psi, MASK)
    said = surrogate.clipped(logp.detach(), OLD, psi, MASK)
    found = torch.stack([gradient(per_token[b, t], logp)[b].abs().sum() for b in range(7) for t in range(2)]).reshape(
        7, 2
    )
    assert torch.equal(said, (found == 0) & MASK)
    assert 0 < int(said.sum()) < int(MASK.sum())


@pytest.mark.parametrize(
    ("ratio", "psi", "value"),
    [
        (1.5, 2.0, 2.6),  # a good token that has grown enough: held at 1 + high
        (1.5, -2.0, -3.0),  # a bad token that has grown: pulled back
        (0.5, 2.0, 1.0),  # a good token that has shrunk: pulled back
        (0.5, -2.0, -1.8),  # a bad token that has shrunk enough: held at 1 - low
        (1.2, 2.0, 2.4),
        (0.95, -2.0, -1.9),
    ],
)
def test_the_clip_in_each_of_its_cases(ratio: float, psi: float, value: float) -> None:
    logp, old, one = torch.tensor([[ratio]]).log(), torch.zeros(1, 1), torch.ones(1, 1).bool()
    for surrogate in (Clipped(low=0.1, high=0.3), SequenceClipped(low=0.1, high=0.3)):
        assert float(surrogate(logp, old, torch.tensor([[psi]]), one)) == pytest.approx(value)


def test_weights_held_constant_do_not_lose_a_gradient() -> None:
    logp = token_logp(MOVED, SENTENCES).detach().requires_grad_()
    ratio = (logp - OLD).exp().detach()
    found = gradient(Cispo(cap=1.1)(logp, OLD, PSI, MASK)[MASK].sum(), logp)
    assert torch.allclose(found, ratio.clamp(max=1.1) * PSI)
    assert int((ratio > 1.1)[MASK].sum()) > 0


def test_the_penalty_between_policies_is_the_divergence_from_the_sampler() -> None:
    logp = token_logp(MOVED, SENTENCES)
    paid = ImportanceWeighted()(logp, OLD, PSI, MASK) - KlPenalised(coef=2.0)(logp, OLD, PSI, MASK)
    expected = (OLD.sum(1).exp() * paid.sum(1)).sum() / 2.0
    truth = (OLD.sum(1).exp() * (OLD - logp).sum(1)).sum()
    assert float(expected) == pytest.approx(float(truth), abs=1e-12)
    assert torch.allclose(paid, 2.0 * kl_estimate(OLD, logp, "k3"))

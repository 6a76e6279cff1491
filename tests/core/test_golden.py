"""Published worked numbers, re-derived by hand outside this code base (TRL's conventions, noted where ours differ)."""

import math

import pytest
import torch
from torch import Tensor

from tutelage.core.baselines import Context
from tutelage.core.groups import Greedy, Group
from tutelage.core.kl import kl_estimate
from tutelage.core.preferences import (
    PREFERENCE_LOSSES,
    AnswerPairs,
    Answers,
    Dpo,
    Hinge,
    Ipo,
    RobustDpo,
    bradley_terry,
    dpo,
)
from tutelage.core.reduce import at_last_token, token_weights, whiten
from tutelage.core.returns import gae
from tutelage.core.scoring_losses import Soft
from tutelage.core.surrogates import Cispo, Clipped, SequenceClipped

APPROX = 6e-7


def near(found: Tensor, expected: list[list[float]] | list[float]) -> bool:
    return torch.allclose(found.double(), torch.tensor(expected), atol=APPROX, rtol=0)


def test_whitening_up_to_bessels_correction() -> None:
    x, mask = torch.tensor([[1.0, 2, 3, 0], [4, 0, -1, 9]]), torch.tensor([[True, True, True, False]] * 2)
    trl = torch.tensor([[-0.267261, 0.267261, 0.801784, 0.0], [1.336306, -0.801784, -1.336306, 0.0]])
    assert torch.allclose(whiten(x, mask), trl * math.sqrt(6 / 5), atol=2e-6)


LOGP = torch.tensor([[-1, -0.5, -0.2, 0, 0], [-0.7, -1.1, -0.3, -0.9, -0.4]]).double()
REF = torch.tensor([[-1.2, -0.4, -0.5, 0, 0], [-0.9, -1, -0.3, -1.4, -0.1]]).double()
VALUE = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5], [-0.1, 0, 0.1, 0.2, 0.3]]).double()
SCORE = torch.tensor([1.0, -0.5]).double()
# The fixture scores row 0 in the state after its third token; in our alignment that is a fourth token of KL 0.
LENGTHS = torch.arange(5) < torch.tensor([[4], [5]])


@pytest.mark.parametrize(
    ("kind", "sums", "advantage_0"),
    [
        ("k1", [0.4, 0.3], [0.780887, 0.72725, 0.655, 0.6, 0]),
        ("k3", [0.06472, 0.180291], [0.796651, 0.734303, 0.667959, 0.6, 0]),
    ],
)
def test_the_ppo_fixture(kind: str, sums: list[float], advantage_0: list[float]) -> None:
    kl = kl_estimate(LOGP, REF, kind) * LENGTHS
    assert near(kl.sum(1), sums)
    reward = at_last_token(SCORE, LENGTHS) - 0.05 * kl
    advantage = gae(reward, VALUE, LENGTHS, gamma=1.0, lam=0.95)
    assert near(advantage[0], advantage_0)
    if kind == "k1":
        assert near(reward, [[-0.01, 0.005, -0.015, 1, 0], [-0.01, 0.005, 0, -0.025, -0.485]])
        assert near(advantage[1], [-0.295084, -0.405352, -0.537212, -0.67075, -0.785])
        targets = (advantage + VALUE) * LENGTHS
        expected = [[0.880887, 0.92725, 0.955, 1, 0], [-0.395084, -0.405352, -0.437212, -0.47075, -0.485]]
        assert near(targets, expected)


def test_token_means_of_the_estimators() -> None:
    mask = torch.arange(5) < torch.tensor([[3], [5]])
    for kind, mean in (("k1", 0.0875), ("k2", 0.033125), ("k3", 0.030626)):
        assert float(kl_estimate(LOGP, REF, kind)[mask].mean()) == pytest.approx(mean, abs=APPROX)


GROUPS = torch.tensor([[1.0, 0, 0, 1], [0.2, 0.4, 0.6, 0.8], [1, 1, 1, 1]]).double()


def psi_of(piece: Group) -> Tensor:
    mask = torch.ones(12, 1, dtype=torch.bool)
    return piece(GROUPS.reshape(-1, 1), mask, None, 4)[0].reshape(3, 4)


def test_group_advantages() -> None:
    spread = [
        [0.865875, -0.865875, -0.865875, 0.865875],
        [-1.161445, -0.387148, 0.387148, 1.161445],
        [0.0] * 4,
    ]
    assert near(psi_of(Group(standardise=True)), spread)
    assert near(psi_of(Group()), [[0.5, -0.5, -0.5, 0.5], [-0.3, -0.1, 0.1, 0.3], [0.0] * 4])
    left_out = [[2 / 3, -2 / 3, -2 / 3, 2 / 3], [-0.4, -0.133333, 0.133333, 0.4], [0.0] * 4]
    assert near(psi_of(Group(leave_one_out=True)), left_out)


def test_groups_of_two_are_pairwise_differences_and_plain_groups_a_share_of_leave_one_out() -> None:
    score, mask = torch.randn(10, 1), torch.ones(10, 1, dtype=torch.bool)
    psi, _ = Group(leave_one_out=True)(score, mask, None, 2)
    first, second = score.reshape(5, 2).unbind(1)
    assert torch.allclose(psi.reshape(5, 2), torch.stack((first - second, second - first), 1))
    plain, _ = Group()(score, mask, None, 5)
    left_out, _ = Group(leave_one_out=True)(score, mask, None, 5)
    assert torch.allclose(plain, left_out * 4 / 5)


def test_equal_scores_give_zero_and_a_group_of_one_is_refused() -> None:
    mask = torch.ones(3, 2, dtype=torch.bool)
    same = at_last_token(torch.full((3,), 0.1), mask)
    for piece in (Group(), Group(standardise=True), Group(leave_one_out=True)):
        assert piece(same, mask, None, 3)[0].abs().max() < 1e-12
    with pytest.raises(ValueError, match="3 rows do not fall into groups of 1"):
        Group()(same, mask, None, 1)
    with pytest.raises(ValueError, match="3 rows do not fall into groups of 2"):
        Group()(same, mask, None, 2)
    with pytest.raises(ValueError, match="scores of the greedy responses"):
        Greedy()(same, mask, None, 1)
    found = Greedy()(same, mask, None, 1, Context(greedy=torch.tensor([0.1, 0.0, 1.0])))[0]
    assert near(found[:, 0], [0.0, 0.1, -0.9])


NOW = torch.tensor([[-0.9, -1.2, -0.4], [-0.6, -0.8, 0]]).double()
OLD = torch.tensor([[-1, -1, -0.7], [-0.5, -1.3, 0]]).double()
REFERENCE = torch.tensor([[-1.1, -1, -0.6], [-0.6, -0.9, 0]]).double()
MASK = torch.tensor([[True, True, True], [True, True, False]])
PSI = torch.tensor([[1.0] * 3, [-0.5] * 3]) * MASK


def loss(per_token: Tensor, how: str) -> float:
    return -float((token_weights(MASK, how, 3) * per_token).sum())


def test_losses_of_groups() -> None:
    clipped = Clipped(0.2, 0.2)(NOW, OLD, PSI, MASK)
    assert loss(clipped, "sequence_mean") == pytest.approx(-0.201455, abs=APPROX)
    assert loss(clipped, "token_mean") == pytest.approx(-0.369424, abs=APPROX)
    assert loss(clipped, "fixed_length") == pytest.approx(-0.307854, abs=APPROX)
    assert loss(Cispo(cap=5.0)(NOW, OLD, PSI, MASK), "token_mean") == pytest.approx(0.317227, abs=APPROX)
    sequence = SequenceClipped(0.2, 0.2)(NOW, OLD, PSI, MASK)
    assert loss(sequence, "sequence_mean") == pytest.approx(-0.229119, abs=APPROX)
    with_kl = clipped - 0.1 * kl_estimate(NOW, REFERENCE, "k3")
    assert loss(with_kl, "sequence_mean") == pytest.approx(-0.200353, abs=APPROX)


def pairs() -> AnswerPairs:
    def side(logp: float, ref: float, length: int) -> Answers:
        return Answers(logp=torch.tensor([logp]), ref_logp=torch.tensor([ref]), length=torch.tensor([length]))

    return AnswerPairs(chosen=side(-12, -13, 8), rejected=side(-15, -14.5, 10))


@pytest.mark.parametrize(
    ("piece", "expected"),
    [(Dpo(0.1), 0.620957), (Hinge(0.1), 0.85), (Ipo(0.1), 23.280625), (RobustDpo(0.1, 0.1), 0.602207)],
    ids=repr,
)
def test_the_direct_losses(piece: Dpo, expected: float) -> None:
    assert float(piece(pairs())) == pytest.approx(expected, abs=APPROX)
    assert set(PREFERENCE_LOSSES) >= {"dpo", "ipo", "cdpo", "robust", "hinge", "kto", "orpo", "simpo"}


def test_dpo_of_margins() -> None:
    found = dpo(torch.tensor([3.0]), torch.tensor([1.5]), beta=0.1)
    assert float(found) == pytest.approx(0.620957, abs=APPROX)


def test_bradley_terry() -> None:
    chosen, rejected = torch.tensor([1.2, -0.3]), torch.tensor([0.4, 0.5])
    assert float(bradley_terry(chosen, rejected).mean()) == pytest.approx(0.771101, abs=APPROX)
    margins = torch.tensor([0.5, 1.0])
    assert float(bradley_terry(chosen, rejected, 1.0, margins).mean()) == pytest.approx(1.253666, abs=APPROX)
    centred = Soft(centre=0.01)(chosen, rejected, torch.ones(2), margins)
    assert float(centred.mean()) == pytest.approx(0.784101, abs=APPROX)

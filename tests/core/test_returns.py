"""Returns and advantages along a response: worked examples, and the identities between estimators."""

from itertools import product

import pytest
import torch
from offenders import for_each
from torch import Tensor

from tutelage.core.advantages import (
    ActionValue,
    Gae,
    LengthAdaptive,
    NStep,
    RewardToGo,
    TemporalDifference,
    TotalReturn,
    ValueBaseline,
)
from tutelage.core.baselines import BatchMean, LeaveOneOut, TimeDependent
from tutelage.core.pieces import NOTHING, Context
from tutelage.core.reduce import at_last_token
from tutelage.core.returns import gae, n_step, returns_to_go, td_errors, total_return

GENERATOR = torch.Generator().manual_seed(0)
MASK = torch.arange(6) < torch.tensor([[1], [4], [6], [3], [0]])
REWARD = torch.randn(5, 6, generator=GENERATOR, dtype=torch.float64) * MASK
VALUE = torch.randn(5, 6, generator=GENERATOR, dtype=torch.float64)  # anything, also where there is no token


def row(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


def full(x: Tensor) -> Tensor:
    return torch.ones_like(x, dtype=torch.bool)


def test_gae_to_the_digit() -> None:
    reward, value = row(1, 2, 3, 4), row(10, 11, 12, 13)
    found = gae(reward, value, full(reward), gamma=0.9, lam=0.95)
    assert found[0].tolist() == pytest.approx([-1.212470, -2.470725, -4.995, -9.0], abs=5e-7)


def test_lambda_zero_is_the_td_error_and_one_is_monte_carlo() -> None:
    reward, value = row(1, 2), row(0, 1)
    assert gae(reward, value, full(reward), gamma=0.5, lam=0.0).tolist() == [[1.5, 1.0]]
    reward = row(1, 2, 3)
    assert gae(reward, 0 * reward, full(reward), gamma=1.0, lam=1.0).tolist() == [[6.0, 5.0, 3.0]]


@for_each(product([1.0, 0.9], [0.0, 0.7, 1.0]))
def test_gae_is_the_exponential_average_of_all_horizons(gamma: float, lam: float) -> None:
    expected = torch.zeros_like(REWARD)
    for b in range(len(REWARD)):
        length = int(MASK[b].sum())
        for t in range(length):
            total, left = 0.0, length - t
            for n in range(1, left + 1):
                seen = sum(gamma**k * float(REWARD[b, t + k]) for k in range(n))
                ahead = gamma**n * float(VALUE[b, t + n]) if n < left else 0.0
                share = (1 - lam) * lam ** (n - 1) if n < left else lam ** (n - 1)
                total += share * (seen + ahead - float(VALUE[b, t]))
            expected[b, t] = total
    assert torch.allclose(gae(REWARD, VALUE, MASK, gamma=gamma, lam=lam), expected)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_ladder_of_estimators(gamma: float) -> None:
    def psi(piece: object) -> Tensor:
        return piece(REWARD, MASK, VALUE, 1)[0]

    td = psi(TemporalDifference(gamma))
    monte_carlo = psi(ValueBaseline(gamma))
    assert torch.allclose(psi(Gae(0.0, gamma, whiten=False)), td)
    assert torch.allclose(psi(NStep(1, gamma)), td)
    assert torch.allclose(psi(Gae(1.0, gamma, whiten=False)), monte_carlo)
    assert torch.allclose(psi(NStep(6, gamma)), monte_carlo)
    assert torch.allclose(psi(NStep(60, gamma)), monte_carlo)
    assert torch.allclose(td, td_errors(REWARD, VALUE, MASK, gamma=gamma))


def test_targets_are_advantages_plus_values_before_whitening() -> None:
    for plain, white in (
        (Gae(0.9, whiten=False), Gae(0.9, whiten=True)),
        (NStep(2), NStep(2, whiten=True)),
        (TemporalDifference(), TemporalDifference(whiten=True)),
        (ValueBaseline(), ValueBaseline(whiten=True)),
    ):
        psi, target = plain(REWARD, MASK, VALUE, 1)
        whitened, same = white(REWARD, MASK, VALUE, 1)
        assert target is not None
        assert torch.allclose(target, (psi + VALUE) * MASK)
        assert torch.equal(same, target)
        assert float(whitened[MASK].mean()) == pytest.approx(0.0, abs=1e-12)
        assert float(whitened[MASK].var(correction=0)) == pytest.approx(1.0, abs=1e-6)


def test_the_target_may_have_a_lambda_of_its_own() -> None:
    psi, target = Gae(0.5, value_lam=1.0, whiten=False)(REWARD, MASK, VALUE, 1)
    assert torch.allclose(psi, gae(REWARD, VALUE, MASK, gamma=1.0, lam=0.5))
    assert torch.allclose(target, returns_to_go(REWARD, MASK))


def test_a_lambda_by_length_is_applied_response_by_response() -> None:
    rule = LengthAdaptive(alpha=0.5)
    assert rule(MASK).tolist() == [0.0, 0.5, pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]
    psi, _ = Gae(rule, whiten=False)(REWARD, MASK, VALUE, 1)
    for b in range(5):
        alone = gae(REWARD[b : b + 1], VALUE[b : b + 1], MASK[b : b + 1], gamma=1.0, lam=float(rule(MASK)[b]))
        assert torch.allclose(psi[b], alone[0])


def test_a_discounted_return_is_the_sum_it_stands_for() -> None:
    assert torch.allclose(total_return(REWARD, MASK, gamma=0.9)[:, 0], (REWARD * 0.9 ** torch.arange(6)).sum(1))
    assert torch.allclose(total_return(REWARD, MASK)[:, 0], returns_to_go(REWARD, MASK)[:, 0])
    assert torch.allclose(n_step(REWARD, VALUE, MASK, gamma=0.9, n=6), returns_to_go(REWARD, MASK, gamma=0.9))


def test_with_a_score_at_the_end_only_the_total_return_is_the_reward_to_go() -> None:
    reward = at_last_token(torch.randn(5), MASK)
    (total, _), _ = TotalReturn()(reward, MASK, None, 1, NOTHING, ())
    (to_go, _), _ = RewardToGo()(reward, MASK, None, 1, NOTHING, ())
    assert torch.equal(total, to_go)


def test_nothing_depends_on_what_stands_beyond_the_response() -> None:
    spoiled = torch.where(MASK, VALUE, 1e9)
    for function in (
        lambda v: gae(REWARD, v, MASK, gamma=0.9, lam=0.9),
        lambda v: td_errors(REWARD, v, MASK),
        lambda v: n_step(REWARD, v, MASK, gamma=0.9, n=3),
    ):
        assert torch.equal(function(VALUE), function(spoiled))
        assert torch.equal(function(VALUE)[~MASK], torch.zeros(int((~MASK).sum())))


def test_baselines_on_a_batch_small_enough_to_do_by_hand() -> None:
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    returns = torch.tensor([[1.0, 3.0], [5.0, 0.0], [6.0, 7.0]])
    assert TimeDependent()(returns, mask, NOTHING)[0].tolist() == [4.0, 5.0]
    assert BatchMean()(returns, mask, NOTHING)[0].tolist() == [22 / 5] * 2
    assert LeaveOneOut()(returns, mask, NOTHING).tolist() == [[5.5, 7.0], [3.5, 5.0], [3.0, 3.0]]
    alone = torch.tensor([[True, True], [True, False]])
    assert LeaveOneOut()(returns[:2], alone, NOTHING)[0].tolist() == [5.0, 0.0]


def test_pieces_that_need_something_say_so() -> None:
    for piece in (Gae(), TemporalDifference(), NStep(), ValueBaseline()):
        assert piece.needs == {"value"}
        with pytest.raises(ValueError, match="values of the states"):
            piece(REWARD, MASK, None, 1)


def test_the_value_after_a_cut_stands_for_the_rewards_that_did_not_come() -> None:
    """Estimators of a row that is cut, with the value of the state there, are those of the whole row, up to the cut."""
    cut, places = 3, torch.arange(5) < 3
    for seed in range(5):
        reward, value = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        whole, part = full(reward), places.expand_as(reward)
        exact = returns_to_go(reward, whole, gamma=0.9)[:, cut]  # what is still to come
        held = torch.where(part, reward, 0.0)
        found = returns_to_go(held, part, gamma=0.9, last=exact)
        torch.testing.assert_close(found[:, :cut], returns_to_go(reward, whole, gamma=0.9)[:, :cut])
        known = value.index_copy(1, torch.tensor([cut]), exact[:, None])
        for lam in (0.0, 1.0):  # of the TD error, and of a return that ends with an exact value
            expected = gae(reward, known, whole, gamma=0.9, lam=lam)[:, :cut]
            torch.testing.assert_close(gae(held, known, part, gamma=0.9, lam=lam, last=exact)[:, :cut], expected)
        expected = n_step(reward, known, whole, gamma=0.9, n=1)[:, :cut]
        torch.testing.assert_close(n_step(held, known, part, gamma=0.9, n=1, last=exact)[:, :cut], expected)


def test_a_cut_without_the_value_after_it_learns_the_wrong_choice() -> None:
    """A choice of two tokens, after which the row is cut: a pays 0 and is worth .8 more, b pays .2 and costs .3."""
    pays, worth, chance = row(0.0, 0.2).T, torch.tensor([0.8, -0.3], dtype=torch.float64), 0.4
    mask, own = full(pays), torch.tensor([chance, 1 - chance], dtype=torch.float64)
    value = ((pays[:, 0] + worth) * own).sum().expand(2, 1)
    truth = chance * (1 - chance) * float(pays[0, 0] + worth[0] - pays[1, 0] - worth[1])
    score = torch.tensor([1 - chance, -chance], dtype=torch.float64)  # ∂ log π / ∂ logit of a

    def gradient(last: Tensor | None, advantage: object) -> float:
        psi, _ = advantage(pays, mask, value, 1, Context(last_value=last))  # type: ignore[operator]
        return float((own * score * psi[:, 0]).sum())

    pieces = (*(Gae(lam=lam, whiten=False) for lam in (0.0, 0.5, 1.0)), TemporalDifference(), NStep(n=3))
    for piece in (*pieces, ValueBaseline(), ActionValue()):
        assert gradient(worth, piece) == pytest.approx(truth), piece
        assert truth > 0 > gradient(None, piece), piece

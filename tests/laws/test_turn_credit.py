"""E[ Σₜ ∇ log πₜ Ψₜ ] of turn-level estimators, by summing over all groups of episodes, against the exact gradient.

The sentences of the tabular language are the episodes of a game: at most two turns of one token and three actions each,
where action 0 ends an episode, and every turn has a reward.
"""

from itertools import product

import pytest
import torch
from tabular import MASK, SENTENCES, exact_values, gradient, probability, random_table, sentence_gradients
from torch import Tensor

from tutelage.core.advantages import Advantage, Gae, ValueBaseline
from tutelage.core.groups import Group
from tutelage.core.pieces import Context
from tutelage.core.reduce import at_last_token
from tutelage.core.returns import turn_ends
from tutelage.core.turns import TurnGroup, TurnRewardGroup, TurnSamples, shaping_rewards

TURN = torch.arange(2).expand(7, 2)


def game(seed: int) -> tuple[Tensor, Tensor]:
    """A policy, and a reward for every turn of every episode. Float[1, 3, 3], Float[7, 2]"""
    states = torch.stack((torch.zeros(7, dtype=torch.long), SENTENCES[:, 0]), 1)
    return random_table(seed).double(), random_table(seed + 100).double()[0][states, SENTENCES] * MASK


def go_or_stop(reward: float) -> tuple[Tensor, Tensor]:
    """The policy goes on to a second turn with chance .3; turn 1 pays .5, turn 2 `reward`."""
    table = torch.full((1, 3, 3), -40.0).double()
    table[0, 0, 0], table[0, 0, 1] = torch.tensor(0.7).log(), torch.tensor(0.3).log()
    table[0, 1:, 0] = 0.0
    return table, torch.tensor([0.5, reward]).expand(7, 2).double() * MASK


def exact_gradient(table: Tensor, reward: Tensor) -> Tensor:
    table = table.clone().requires_grad_()
    return gradient((probability(table) * reward.sum(1)).sum(), table)


def expected_gradient(piece: Advantage, table: Tensor, reward: Tensor, size: int) -> Tensor:
    """E[mean over episodes of Σₜ ∇ log πₜ Ψₜ] over all groups of `size` episodes."""
    p, grads, total = probability(table), sentence_gradients(table), torch.zeros_like(table)
    for drawn in product(range(7), repeat=size):
        rows = torch.tensor(drawn)
        psi, _ = piece(reward[rows], MASK[rows], None, size, Context(turn=TURN[rows]))
        total += p[rows].prod() * torch.einsum("st,st...->...", psi, grads[rows]) / size
    return total


def angle(found: Tensor, exact: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(found.flatten(), exact.flatten(), dim=0))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("piece", [TurnGroup(), Group(leave_one_out=True)], ids=repr)
def test_the_default_and_leave_one_out_have_the_exact_gradient(piece: Advantage, size: int) -> None:
    for table, reward in (game(0), game(1), go_or_stop(1.0), go_or_stop(-1.0)):
        exact = exact_gradient(table, reward)
        assert (expected_gradient(piece, table, reward, size) - exact).abs().max() < 1e-11


@pytest.mark.parametrize("piece", [TurnGroup(), Group(leave_one_out=True)], ids=repr)
def test_rewards_from_a_potential_change_no_expected_gradient(piece: Advantage) -> None:
    """A potential of all that was done so far, as the scores of a process reward model are."""
    for seed in range(2):
        table, reward = game(seed)
        shaping = shaping_rewards(game(seed + 7)[1], MASK)
        assert shaping.abs().max() > 0.1
        assert shaping.sum(1).abs().max() < 1e-12
        found = expected_gradient(piece, table, reward + shaping, 2)
        assert (found - exact_gradient(table, reward)).abs().max() < 1e-11


@pytest.mark.parametrize("size", [2, 3])
def test_a_mean_over_the_episodes_that_have_a_turn_does_not_credit_reaching_it(size: int) -> None:
    """A second turn that pays 1 and one that costs 1 have the same expected gradient: none."""
    for reward in (1.0, -1.0):
        table, rewards = go_or_stop(reward)
        exact = exact_gradient(table, rewards)[0, 0, :2]
        assert exact.tolist() == pytest.approx([-0.21 * reward, 0.21 * reward])
        assert expected_gradient(TurnRewardGroup(), table, rewards, size).abs().max() < 1e-11


@pytest.mark.parametrize("piece", [TurnRewardGroup(), TurnSamples()], ids=repr)
def test_the_biased_estimators_change_the_direction(piece: Advantage) -> None:
    turned = [angle(expected_gradient(piece, *game(seed), 2), exact_gradient(*game(seed))) for seed in range(4)]
    assert min(turned) < 0.999


def test_of_episodes_with_equally_many_turns_all_have_the_exact_direction() -> None:
    """If every first action goes on, the means are over whole groups, (G − 1)/G of the exact gradient."""
    table, reward = game(2)
    table[0, 0, 0] = -40.0
    exact = exact_gradient(table, reward)
    for piece in (TurnRewardGroup(), TurnSamples()):
        assert (expected_gradient(piece, table, reward, 3) - exact * 2 / 3).abs().max() < 1e-11


def test_a_redraw_of_what_the_policy_causes_turns_the_gradient_round() -> None:
    """Episodes that go on fail with chance .9, and an episode that fails earns nothing. Drawing failed episodes again
    is unbiased only if the policy does not cause them: the gradient of the rest has the other sign."""
    table, reward = go_or_stop(0.4)
    p, grads = probability(table), sentence_gradients(table)
    earned = reward.sum(1)
    survival = torch.where(SENTENCES[:, 0] > 0, 0.1, 1.0)

    def rloo(chances: Tensor, score: Tensor) -> Tensor:
        mean = (chances * score).sum()
        return torch.einsum("s,s,st...->...", chances, score - mean, grads)

    failing = rloo(p, earned * survival)
    redrawn = rloo(p * survival / (p * survival).sum(), earned)
    unrelated = rloo(p * 0.5 / (p * 0.5).sum(), earned)
    assert float(failing[0, 0, 1]) < -0.01
    assert float(redrawn[0, 0, 1]) > 0.01
    assert torch.allclose(unrelated, rloo(p, earned))


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_gae_over_turns_is_exact_with_the_exact_critic_and_for_lambda_1_with_any(lam: float) -> None:
    table, reward = game(3)
    p, grads, exact = probability(table), sentence_gradients(table), exact_gradient(table, reward)
    piece = Gae(lam=lam, per="turn", whiten=False)

    def found(value: Tensor) -> Tensor:
        psi, _ = piece(reward, MASK, value, 1, Context(turn=TURN))
        return torch.einsum("s,st,st...->...", p, psi, grads)

    assert (found(exact_values(table, reward)) - exact).abs().max() < 1e-11
    wrong = found(torch.full((7, 2), 0.3).double() * MASK)
    assert ((wrong - exact).abs().max() < 1e-11) == (lam == 1.0)


def long_turns(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four episodes of turns of several tokens: reward, mask, values, turns. [4, 9] each"""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.tensor(
        [[0, 0, 0, 1, 1, 2, 2, 2, 2], [0] * 9, [0, 1, 1, 1, 2, 3, 3, 3, 3], [0, 0, 1, 1, 1, 1, 1, 1, 1]]
    )
    mask = torch.arange(9) < torch.tensor([[9], [4], [7], [5]])
    reward, value = (torch.randn(4, 9, generator=generator).double() * mask for _ in range(2))
    return torch.where(turn_ends(turn, mask), reward, 0.0), mask, value, turn


def test_a_turn_of_several_tokens_has_the_psi_of_its_action() -> None:
    """Against a loop over lists, with a discount per turn."""
    reward, mask, _, turn = long_turns(0)
    psi, _ = TurnGroup(gamma=0.9)(reward, mask, None, 2, Context(turn=turn))
    returns: list[list[float]] = []
    for row in range(4):
        count = int(turn[row][mask[row]].max()) + 1
        paid = [float(reward[row][mask[row] & (turn[row] == k)].sum()) for k in range(count)]
        returns.append([sum(0.9 ** (k - start) * paid[k] for k in range(start, count)) for start in range(count)])
    for row in range(4):
        other = returns[row ^ 1]
        for t in range(9):
            k = int(turn[row, t])
            expected = returns[row][k] - other[min(k, len(other) - 1)] if mask[row, t] else 0.0
            assert float(psi[row, t]) == pytest.approx(expected, abs=1e-12)


def test_a_reward_at_the_end_alone_gives_leave_one_out() -> None:
    _, mask, _, turn = long_turns(0)
    reward = at_last_token(torch.tensor([0.3, -1.0, 2.0, 0.7]).double(), mask)
    psi, _ = TurnGroup()(reward, mask, None, 4, Context(turn=turn))
    assert torch.allclose(psi, Group(leave_one_out=True)(reward, mask, None, 4)[0])


def test_gae_over_turns_discounts_only_between_turns() -> None:
    reward, mask, value, turn = long_turns(1)
    psi, target = Gae(lam=0.7, gamma=0.9, per="turn", whiten=False)(reward, mask, value, 1, Context(turn=turn))
    for row in range(4):
        after, later = 0.0, 0.0
        for t in reversed(range(int(mask[row].sum()))):
            ends = t + 1 == int(mask[row].sum()) or turn[row, t] != turn[row, t + 1]
            gamma, lam = (0.9, 0.7) if ends else (1.0, 1.0)
            later = float(reward[row, t] + gamma * after - value[row, t]) + gamma * lam * later
            after = float(value[row, t])
            assert float(psi[row, t]) == pytest.approx(later, abs=1e-12)
    assert target is not None
    assert torch.allclose(target, torch.where(mask, psi + value, 0.0))


def test_episodes_of_one_turn_are_completions() -> None:
    """To the bit: the group's estimators are leave-one-out, the group mean, the mean; GAE over turns is G − V."""
    generator = torch.Generator().manual_seed(2)
    mask = torch.arange(5) < torch.tensor([[5], [2], [3], [1]])
    reward, value = (torch.randn(4, 5, generator=generator).double() * mask for _ in range(2))
    plain, loo = Group()(reward, mask, None, 2)[0], Group(leave_one_out=True)(reward, mask, None, 2)[0]
    for context in (Context(), Context(turn=torch.zeros(4, 5, dtype=torch.long))):
        assert torch.allclose(TurnGroup()(reward, mask, None, 2, context)[0], loo)
        assert torch.allclose(TurnRewardGroup()(reward, mask, None, 2, context)[0], plain)
        assert torch.allclose(TurnSamples()(reward, mask, None, 2, context)[0], plain)
        over_turns = Gae(lam=0.3, per="turn", whiten=False)(reward, mask, value, 2, context)
        assert torch.allclose(over_turns[0], ValueBaseline()(reward, mask, value, 2, context)[0])

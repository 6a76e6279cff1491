"""Advantages that credit the turns of an episode.

An episode is a row of several turns: stretches of tokens that the policy wrote, with text of an environment between
them that is not part of the row. `Context.turn` has the index of each token's turn; without it a row has one turn. The
reward of a turn is on its last token. A turn is one action: all its tokens have the same Ψ, and γ discounts per turn.

For turn k of episode i in a group of G, with turn rewards r and G_ik = Σ_{l≥k} γ^(l−k) r_il:

    TurnGroup          Ψ_ik = G_ik − mean over the other episodes j of G_jm, m = min(k, last turn of j)   unbiased
    TurnRewardGroup    Ψ_ik = Σ_{l≥k} γ^(l−k) (r_il − mean over the episodes that have a turn l of r_jl)  biased
    TurnSamples        Ψ_ik = G_i0 − mean over all turns of the group of the G_j0 of their episodes       biased

The first subtracts a term that depends only on other episodes. The other two subtract means over sets that the
episode's own actions determine: which turns exist, and how many.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tutelage.core.advantages import Psi
from tutelage.core.groups import check_groups
from tutelage.core.pieces import NOTHING, Context, check_range
from tutelage.core.returns import returns_to_go, turn_ends, turn_index
from tutelage.core.shapes import PerToken, TokenMask


@dataclass(frozen=True)
class TurnGroup:
    """Ψ = return from the turn on − mean return of the prompt's other episodes from the same turn on.

    An episode without that turn counts with its last one. Then a reward that comes only at the end gives
    `Group(leave_one_out=True)`, as does an episode of one turn. A mean over the episodes that have the turn, or 0 for
    those that have not, is unbiased too, but noisier where rewards have a mean other than 0.
    """

    gamma: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"group"})

    def __post_init__(self) -> None:
        check_range(self, "[0, 1]", gamma=self.gamma)

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        returns, present = by_turn(_turn_returns(reward, mask, context, self.gamma), mask, context, group)
        for turn in range(1, returns.shape[2]):
            returns[..., turn] = torch.where(present[..., turn], returns[..., turn], returns[..., turn - 1])
        baseline = (returns.sum(1, keepdim=True) - returns) / (group - 1)
        return of_turn(returns - baseline, mask, context), None


@dataclass(frozen=True)
class TurnRewardGroup:
    """Ψ = sum from the turn on of turn rewards, each less the group's mean at its turn index (MT-GRPO, Zeng et al.
    2025, arXiv 2505.11821).

    Biased if the number of turns varies: the rewards of turns that all their episodes share have Ψ = 0, so the decision
    to reach them is not credited. If going on pays 1 in a second turn, the expected gradient is 0.
    """

    gamma: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"group"})

    def __post_init__(self) -> None:
        check_range(self, "[0, 1]", gamma=self.gamma)

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        rewards, present = by_turn(_turn_returns(reward, mask, context, 0.0), mask, context, group)
        centred = (rewards - rewards.sum(1, keepdim=True) / present.sum(1, keepdim=True).clamp(min=1)) * present
        for turn in reversed(range(centred.shape[2] - 1)):
            centred[..., turn] += self.gamma * centred[..., turn + 1]
        return of_turn(centred, mask, context), None


@dataclass(frozen=True)
class TurnSamples:
    """Ψ = return − mean return over all turns of the group, as if each turn were a sample of its own (as in
    agent-lightning, issue 489).

    Biased if the number of turns varies: episodes with more turns weigh more in the mean, so the baseline depends on
    the episode's own actions.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"group"})
    per_response: ClassVar[bool] = True

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        returns, present = by_turn(_turn_returns(reward, mask, context, 1.0), mask, context, group)
        whole, turns = returns[..., :1], present.sum(2, keepdim=True)
        mean = (whole * turns).sum(1, keepdim=True) / turns.sum(1, keepdim=True).clamp(min=1)
        return of_turn((whole - mean).expand_as(returns), mask, context), None


def shaping_rewards(potential: Float[Tensor, "B K"], present: Bool[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """Fₖ = Φₖ − Φₖ₋₁ for each turn, with potential Φ = 0 before the first turn and after the last.

    They sum to 0 over an episode, and the rewards from turn k on to −Φₖ₋₁, which the turns before have determined. So
    with γ = 1 they change neither the expected gradient of an unbiased estimator nor the best policy, only when a
    reward of the end is credited (Ng, Harada & Russell 1999). `present` is a prefix of each row.
    """
    kept = torch.where(present, potential, 0.0)
    last = present & ~torch.nn.functional.pad(present[:, 1:], (0, 1), value=False)
    before = torch.nn.functional.pad(kept[:, :-1], (1, 0))
    return torch.where(present, torch.where(last, 0.0, kept) - before, 0.0)


def by_turn(
    x: PerToken, mask: TokenMask, context: Context, group: int
) -> tuple[Float[Tensor, "P G K"], Bool[Tensor, "P G K"]]:
    """The entry of `x` at the first token of every turn, 0 where an episode has no such turn; and which turns exist.

    Raises ValueError if the rows do not form groups of two or more.
    """
    check_groups(len(x), group)
    turn = turn_index(context.turn, mask)
    first = mask & torch.nn.functional.pad(turn_ends(turn, mask)[:, :-1], (1, 0), value=True)
    rows, columns = first.nonzero(as_tuple=True)
    entries = x.new_zeros(len(x), int(turn.max()) + 1 if turn.numel() else 1)
    present = torch.zeros_like(entries, dtype=torch.bool)
    entries[rows, turn[rows, columns]] = x[rows, columns]
    present[rows, turn[rows, columns]] = True
    return entries.reshape(-1, group, entries.shape[1]), present.reshape(-1, group, entries.shape[1])


def of_turn(x: Float[Tensor, "P G K"], mask: TokenMask, context: Context) -> PerToken:
    """The entry of every token's turn, 0 at padding. [P, G, K] -> [B, R]"""
    return torch.where(mask, x.flatten(0, 1).gather(1, turn_index(context.turn, mask)), 0.0)


def _turn_returns(reward: PerToken, mask: TokenMask, context: Context, gamma: float) -> PerToken:
    """Returns from each token on, discounted per turn; γ = 0 leaves the rewards of the turn itself."""
    ends = turn_ends(turn_index(context.turn, mask), mask)
    return returns_to_go(reward, mask, gamma=torch.where(ends, gamma, torch.ones_like(reward)))

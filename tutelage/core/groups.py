"""Advantages that compare the completions of one prompt: no critic, one number per completion.

Row b belongs to prompt b // group. The score of a row is the sum of its rewards (minus the KL if the recipe puts it in
the reward).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.core.advantages import Psi
from tutelage.core.pieces import NOTHING, Context
from tutelage.core.reduce import whiten as whitened
from tutelage.core.shapes import PerToken, TokenMask

SPREAD_FLOOR = 1e-4
"""Added to a group's standard deviation before dividing, as in TRL; groups with less spread count as equal."""


@dataclass(frozen=True)
class Group:
    """Ψ = score − mean of the prompt's G scores.

    leave_one_out   the mean is that of the other G − 1: unbiased, and G/(G − 1) times the plain one
    standardise     divide by the group's standard deviation (over G − 1), which weighs prompts by 1/std
    whiten          scale over the tokens of the whole batch afterwards (REINFORCE++ with baseline)
    """

    leave_one_out: bool = False
    standardise: bool = False
    whiten: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"group"})
    per_response: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.leave_one_out and self.standardise:
            raise ValueError(
                "Group: after dividing by the group's spread, leaving one out only multiplies by G/(G − 1). "
                "Use standardise or leave_one_out, not both."
            )

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        score = by_group(reward, mask, group)
        psi = score - score.mean(1, keepdim=True)
        if self.leave_one_out:
            psi = psi * group / (group - 1)
        if self.standardise:
            psi = psi / (score.std(1, keepdim=True) + SPREAD_FLOOR)
        psi = torch.where(mask, psi.reshape(-1, 1), 0.0)
        return (whitened(psi, mask) if self.whiten else psi), None


@dataclass(frozen=True)
class BestOfGroup:
    """Ψ = G (max of the G scores − max of the other G − 1): maximises E[max], the score of best-of-G (Tang 2025).

    Only the best completion has an advantage: the difference of its score from the second best. The factor G
    compensates for the mean over rows, since the gradient of E[max] is the sum over them.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"group"})
    per_response: ClassVar[bool] = True

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        score = by_group(reward, mask, group)
        best, where = score.topk(2, dim=1)
        lead = torch.zeros_like(score).scatter_(1, where[:, :1], group * (best[:, :1] - best[:, 1:]))
        return torch.where(mask, lead.reshape(-1, 1), 0.0), None


@dataclass(frozen=True)
class Greedy:
    """Ψ = score − score of the greedy completion to the same prompt (ReMax, Li et al. 2023).

    The greedy completion depends on the prompt and the policy, never on the sampled row: unbiased with a
    single sample.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"greedy"})
    per_response: ClassVar[bool] = True

    def __call__(
        self, reward: PerToken, mask: TokenMask, value: PerToken | None, group: int, context: Context = NOTHING
    ) -> Psi:
        if context.greedy is None:
            raise ValueError("Greedy needs the scores of the greedy responses: Context(greedy=...).")
        total = torch.where(mask, reward, 0.0).sum(-1)
        return torch.where(mask, (total - context.greedy).unsqueeze(-1), 0.0), None


def by_group(reward: PerToken, mask: TokenMask, group: int) -> Float[Tensor, "P G"]:
    """Sum of the rewards of each row, grouped by prompt. [B, R] -> [P, G]

    Raises ValueError if the rows do not form groups of two or more.
    """
    check_groups(len(reward), group)
    return torch.where(mask, reward, 0.0).sum(-1).reshape(-1, group)


def check_groups(rows: int, group: int) -> None:
    """Raise ValueError if so many rows do not form groups of two or more."""
    if group < 2 or rows % group:
        raise ValueError(f"{rows} rows do not fall into groups of {group} with something to compare.")

"""Rewards made of rewards: on a common scale, cautiously combined, counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tutelage.core.batch import Rows
from tutelage.data.records import Prompt
from tutelage.evaluation.overoptimisation import Combination, combine
from tutelage.models.rewards import Reward


@dataclass(frozen=True)
class Scaled:
    """(score − mean) / std: a reward in units of its own spread over the initial policy's answers."""

    reward: Reward
    mean: float
    std: float

    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        return (self.reward(rows, prompts, texts) - self.mean) / self.std


@dataclass(frozen=True)
class Ensemble:
    """Several rewards as one; `weight` is that of the variance in `lower` (see `combine`)."""

    members: tuple[Reward, ...]
    how: Combination = "mean"
    weight: float = 1.0

    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        scores = torch.stack([member(rows, prompts, texts) for member in self.members])
        together = combine(scores.double().cpu().numpy(), self.how, self.weight)
        return torch.as_tensor(together, dtype=scores.dtype, device=scores.device)


class Counted:
    """A reward that counts the tokens it was asked about: whatever a recipe samples passes through here, answers that
    dynamic sampling throws away and greedy ones included."""

    def __init__(self, reward: Reward, tokens: int = 0) -> None:
        self.reward, self.tokens = reward, tokens

    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        self.tokens += int(rows.mask.sum())
        return self.reward(rows, prompts, texts)

"""A weighted sum of rewards."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tutelage.rewards.reward import Completion, Reward
from tutelage.rewards.scores import scores_of


@dataclass(frozen=True)
class WeightedReward:
    """Several rewards added up: Σ weight · score."""

    parts: tuple[tuple[float, Reward], ...]

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B]"""
        return torch.stack([weight * scores_of(part, completions) for weight, part in self.parts]).sum(0)

"""Rewards made of others: a weighted sum, and a cap."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.rewards.reward import Breakdown, Completion, Reward, RewardWrapper, reward_name
from tutelage.rewards.scores import breakdown_of


@dataclass(frozen=True)
class WeightedReward:
    """Several rewards added up: Σ weight · score."""

    parts: tuple[tuple[float, Reward], ...]

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """The parts."""
        return tuple(part for _, part in self.parts)

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B]"""
        return self.breakdown(completions).total

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The sum, and the score of each part by its name."""
        weights, rewards = zip(*self.parts, strict=True)
        scores = [breakdown_of(reward, completions) for reward in rewards]
        total = torch.stack([weight * each.total for weight, each in zip(weights, scores, strict=True)]).sum(
            0
        )
        return Breakdown(total, parts_by_name(rewards, scores))


@dataclass(frozen=True)
class CappedReward(RewardWrapper):
    """A reward held between two bounds, so that it cannot be earned without end: min(max(score, lowest), highest)."""

    reward: Reward
    lowest: float = -math.inf
    highest: float = math.inf

    def __post_init__(self) -> None:
        if not self.lowest < self.highest or (math.isinf(self.lowest) and math.isinf(self.highest)):
            raise TutelageError(
                f"A reward between {self.lowest:g} and {self.highest:g} is not held by anything: give a lowest below a "
                "highest score, at least one of them finite."
            )

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The capped scores, and the parts of the reward as they are."""
        found = breakdown_of(self.reward, completions)
        return Breakdown(found.total.clamp(self.lowest, self.highest), found.parts)


def parts_by_name(rewards: Sequence[Reward], scores: Sequence[Breakdown]) -> Mapping[str, Tensor]:
    """The scores of rewards by name, and those of their own parts as "name.part"; equal names are numbered."""
    found: dict[str, Tensor] = {}
    for name, each in zip(_distinct(rewards), scores, strict=True):
        found[name] = each.total
        found |= {f"{name}.{inner}": values for inner, values in each.parts.items()}
    return found


def _distinct(rewards: Sequence[Reward]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in map(reward_name, rewards):
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"

"""Composite rewards: a weighted sum, a cap, and a conservative ensemble."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.rewards.reward import (
    Breakdown,
    BreakdownReward,
    Completion,
    Reward,
    RewardWrapper,
    applies_to_all,
    columns_read,
    reward_name,
)
from tutelage.rewards.scores import breakdown_of


def no_reward(completions: Sequence[Completion]) -> list[float]:
    """Zeros, for episodes whose environment returns their whole reward."""
    return [0.0] * len(completions)


@dataclass(frozen=True)
class WeightedReward(BreakdownReward):
    """Weighted sum of rewards: Σ weight · score over those that apply to the completion; none, if none does, or the
    score of one that applies to all is missing (`reward.applies_to_all`)."""

    parts: tuple[tuple[float, Reward], ...]

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """Components of the sum."""
        return tuple(part for _, part in self.parts)

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The sum, and the score of each component by name."""
        weights, rewards = zip(*self.parts, strict=True)
        scores = [breakdown_of(reward, completions) for reward in rewards]
        weighted = torch.stack([weight * each.total for weight, each in zip(weights, scores, strict=True)])
        absent = weighted.isnan()
        missing = [each for each, reward in zip(absent, rewards, strict=True) if applies_to_all(reward)]
        without = torch.stack([absent.all(0), *missing]).any(0)
        total = torch.where(absent, 0.0, weighted).sum(0).masked_fill(without, math.nan)
        return Breakdown(total, parts_by_name(rewards, scores), _weighted_credit(weights, scores))


def _weighted_credit(weights: Sequence[float], scores: Sequence[Breakdown]) -> Tensor | None:
    """Weighted sum of the credit of turns; None if no reward gives any. Float[B, R]"""
    credit = [weight * each.credit for weight, each in zip(weights, scores, strict=True) if each.credit is not None]
    return torch.stack(credit).sum(0) if credit else None


@dataclass(frozen=True)
class MeasuredReward:
    """Reward split into components that need no columns of a row but those of a study, and components that do."""

    measured: WeightedReward
    others: WeightedReward | None

    @classmethod
    def of(cls, reward: Reward, columns: Collection[str] = ()) -> "MeasuredReward":
        """Split a reward; `columns` are those of the study. Raises TutelageError if every component reads others."""
        parts = reward.parts if isinstance(reward, WeightedReward) else ((1.0, reward),)
        blind = tuple((weight, part) for weight, part in parts if set(columns_read(part)) <= set(columns))
        reading = tuple(each for each in parts if each not in blind)
        if not blind:
            names = ", ".join(reward_name(part) for _, part in reading)
            raise TutelageError(
                f"The reward {names} reads columns of the prompts ({', '.join(columns_read(reward))}), and this study "
                "stores only conversations and responses, one of kind checklist rubrics too, so the reward cannot be "
                "compared with it. Leave --trust out."
            )
        return cls(WeightedReward(blind), WeightedReward(reading) if reading else None)

    def weighted(self, weight: float) -> WeightedReward:
        """The whole reward, with the weights of the measured components multiplied by `weight`."""
        parts = tuple((weight * own, part) for own, part in self.measured.parts)
        return WeightedReward((*parts, *(self.others.parts if self.others else ())))


@dataclass(frozen=True)
class CappedReward(RewardWrapper):
    """Reward clipped to an interval, which bounds reward hacking: min(max(score, lowest), highest)."""

    reward: Reward
    lowest: float = -math.inf
    highest: float = math.inf

    def __post_init__(self) -> None:
        if not self.lowest < self.highest or (math.isinf(self.lowest) and math.isinf(self.highest)):
            raise TutelageError(
                f"A reward between {self.lowest:g} and {self.highest:g} is not a cap: give a lowest below a "
                "highest score, at least one of them finite."
            )

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """Capped scores, and the uncapped scores of the components."""
        breakdown = breakdown_of(self.reward, completions)
        return Breakdown(breakdown.total.clamp(self.lowest, self.highest), breakdown.parts, breakdown.credit)


def parts_by_name(rewards: Sequence[Reward], scores: Sequence[Breakdown]) -> Mapping[str, Tensor]:
    """Scores of rewards by name, and those of their components as "name.part"; duplicate names are numbered."""
    parts: dict[str, Tensor] = {}
    counts: Counter[str] = Counter()
    for reward, each in zip(rewards, scores, strict=True):
        name = reward_name(reward)
        counts[name] += 1
        if counts[name] > 1:
            name = f"{name}_{counts[name]}"
        parts[name] = each.total
        parts |= {f"{name}.{inner}": values for inner, values in each.parts.items()}
    return parts


Combination: TypeAlias = Literal["mean", "worst", "lower", "lcb"]


@dataclass(frozen=True)
class Ensemble(BreakdownReward):
    """Ensemble of rewards on a common scale; `weight` scales the disagreement in `lower` and `lcb` (see `combine`).

    It applies to the completions to which all members do. The credit of turns is the mean of theirs.
    """

    members: tuple[Reward, ...]
    how: Combination = "mean"
    weight: float = 1.0

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """Members of the ensemble."""
        return self.members

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """Combined scores, and those of each member by name."""
        breakdowns = [breakdown_of(member, completions) for member in self.members]
        scores = torch.stack([each.total for each in breakdowns])
        combined = combine(scores.double(), self.how, self.weight).to(scores.dtype)
        credit = _weighted_credit([1 / len(breakdowns)] * len(breakdowns), breakdowns)
        return Breakdown(combined, parts_by_name(self.members, breakdowns), credit)


def combine(scores: Tensor, how: Combination, weight: float = 1.0) -> Tensor:
    """Combine the scores of M rewards on a common scale conservatively. Float[M, B] -> Float[B]

        mean    the mean
        worst   the minimum over the rewards                                       (Coste et al. 2023, 2310.02743)
        lower   mean − weight · variance over the M, a penalty on disagreement      (ibid., "UWO")
        lcb     mean − weight · standard deviation: a lower confidence bound, in the unit of the scores

    Variances are population variances (divided by M). Raises TutelageError for an unknown name.
    """
    if how == "mean":
        return scores.mean(0)
    if how == "worst":
        return scores.amin(0)
    if how == "lower":
        return scores.mean(0) - weight * scores.var(0, correction=0)
    if how == "lcb":
        return scores.mean(0) - weight * scores.std(0, correction=0)
    raise TutelageError(f"An ensemble cannot be combined by {how!r}; choose one of {', '.join(get_args(Combination))}.")

"""Rewards made of others: a weighted sum, a cap, a cautious ensemble, and one that is distributed over ranks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.ranks import Ranks, deal
from tutelage.rewards.reward import (
    Breakdown,
    BreakdownReward,
    Completion,
    Reward,
    RewardWrapper,
    columns_read,
    device_of,
    prompt_ids,
    reward_name,
    selected,
)
from tutelage.rewards.scores import breakdown_of


@dataclass(frozen=True)
class WeightedReward(BreakdownReward):
    """Several rewards added up: Σ weight · score."""

    parts: tuple[tuple[float, Reward], ...]

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """The parts."""
        return tuple(part for _, part in self.parts)

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The sum, and the score of each part by its name."""
        weights, rewards = zip(*self.parts, strict=True)
        scores = [breakdown_of(reward, completions) for reward in rewards]
        total = torch.stack([weight * each.total for weight, each in zip(weights, scores, strict=True)]).sum(
            0
        )
        return Breakdown(total, parts_by_name(rewards, scores))


@dataclass(frozen=True)
class MeasuredReward:
    """A reward in two parts: what can be scored without the columns of a row, and what cannot."""

    measured: WeightedReward
    others: WeightedReward | None

    @classmethod
    def of(cls, reward: Reward) -> "MeasuredReward":
        """The parts of a reward. Raises TutelageError where each of them reads columns, which a study does not keep."""
        parts = reward.parts if isinstance(reward, WeightedReward) else ((1.0, reward),)
        blind = tuple((weight, part) for weight, part in parts if not columns_read(part))
        reading = tuple((weight, part) for weight, part in parts if columns_read(part))
        if not blind:
            names = ", ".join(reward_name(part) for _, part in reading)
            raise TutelageError(
                f"The reward {names} reads columns of the prompts ({', '.join(columns_read(reward))}), and a study "
                "keeps conversations and answers alone, so that it cannot be held against its votes. Leave --trust out."
            )
        return cls(WeightedReward(blind), WeightedReward(reading) if reading else None)

    def weighted(self, weight: float) -> WeightedReward:
        """The whole reward, with the weights of what was measured multiplied by `weight`."""
        parts = tuple((weight * own, part) for own, part in self.measured.parts)
        return WeightedReward((*parts, *(self.others.parts if self.others else ())))


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
    """Rewards on a common scale as one; `weight` is that of the disagreement in `lower` and `lcb` (see `combine`)."""

    members: tuple[Reward, ...]
    how: Combination = "mean"
    weight: float = 1.0

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """The members."""
        return self.members

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The combined scores, and those of each member by its name."""
        found = [breakdown_of(member, completions) for member in self.members]
        scores = torch.stack([each.total for each in found])
        combined = combine(scores.double(), self.how, self.weight).to(scores.dtype)
        return Breakdown(combined, parts_by_name(self.members, found))


def combine(scores: Tensor, how: Combination, weight: float = 1.0) -> Tensor:
    """One cautious score from those of M rewards on a common scale. Float[M, B] -> Float[B]

        mean    the mean
        worst   the minimum: no answer is better than its sternest judge says      (Coste et al. 2023, 2310.02743)
        lower   mean − weight · variance over the M: disagreement costs            (the same; "UWO" there)
        lcb     mean − weight · standard deviation: a lower confidence bound, in the unit of the scores

    Variances are those of a population: divided by M. Raises TutelageError for another name.
    """
    if how == "mean":
        return scores.mean(0)
    if how == "worst":
        return scores.amin(0)
    if how == "lower":
        return scores.mean(0) - weight * scores.var(0, correction=0)
    if how == "lcb":
        return scores.mean(0) - weight * scores.std(0, correction=0)
    raise TutelageError(
        f"An ensemble cannot be combined by {how!r}; choose one of {', '.join(get_args(Combination))}."
    )


TOTAL = ""
"""The name of the whole score beside those of its parts."""


@dataclass(frozen=True)
class DealtReward(RewardWrapper):
    """Every rank scores the completions of some prompts, and gets the scores of all.

    The completions of a prompt are scored by one rank, in one call. `passes` are those through reward models in shards,
    which all ranks take together.
    """

    reward: Reward
    ranks: Ranks
    passes: Passes | None = None

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The scores, and those of the parts. Raises `PeerError` where the reward of another rank fails."""
        ids = prompt_ids(completions)
        counts = Counter(ids)
        rank_of = dict(zip(counts, deal(list(counts.values()), list(counts), self.ranks.size), strict=True))
        own = [place for place, name in enumerate(ids) if rank_of[name] == self.ranks.rank]
        mine = selected(completions, own)
        together = self.ranks.together if self.passes is None else self.passes.together
        found = together(lambda: breakdown_of(self.reward, mine) if own else None)
        columns = {} if found is None else {TOTAL: found.total} | dict(found.parts)
        gathered = self.ranks.gather((own, {name: values.tolist() for name, values in columns.items()}))
        device = device_of(completions)
        whole = {name: torch.zeros(len(completions)) for _, part in gathered for name in part}
        for places, part in gathered:
            for name, values in part.items():
                whole[name][places] = torch.tensor(values)
        parts = {name: values.to(device) for name, values in whole.items()}
        return Breakdown(parts.pop(TOTAL), parts)


def dealt_reward(reward: Reward, ranks: Ranks, passes: Passes | None = None) -> Reward:
    """The reward with its completions dealt to the ranks; itself for a single rank. For `passes` see `DealtReward`."""
    return reward if ranks.size == 1 else DealtReward(reward, ranks, passes)

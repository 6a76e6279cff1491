"""Several rewards of the same thing as one cautious reward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.rewards.reward import Breakdown, Completion, Reward
from tutelage.rewards.scores import breakdown_of
from tutelage.rewards.weighted import parts_by_name

Combination: TypeAlias = Literal["mean", "worst", "lower", "lcb"]


@dataclass(frozen=True)
class Ensemble:
    """Rewards on a common scale as one; `weight` is that of the disagreement in `lower` and `lcb` (see `combine`)."""

    members: tuple[Reward, ...]
    how: Combination = "mean"
    weight: float = 1.0

    @property
    def made_of(self) -> tuple[Reward, ...]:
        """The members."""
        return self.members

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B]"""
        return self.breakdown(completions).total

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

"""Rewards made of rewards: on a common scale, counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tutelage.rewards.reward import Completion, Reward, Scores, rows_of
from tutelage.rewards.scores import scores_of


@dataclass(frozen=True)
class StandardisedReward:
    """(score − mean) / std: a reward in units of its own spread over the initial policy's answers."""

    reward: Reward
    mean: float
    std: float

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        return (scores_of(self.reward, completions) - self.mean) / self.std


class CountedReward:
    """A reward that counts the tokens it was asked about: whatever a recipe samples passes through here, answers that
    dynamic sampling throws away and greedy ones included."""

    def __init__(self, reward: Reward, tokens: int = 0) -> None:
        self.reward, self.tokens = reward, tokens

    def __call__(self, completions: Sequence[Completion]) -> Scores:
        rows = rows_of(completions)
        self.tokens += 0 if rows is None else int(rows.mask.sum())
        return self.reward(completions)

"""The columns that rewards read: looked for in every row before anything is sampled; rewards without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.formats import LoadedRecords
from tutelage.data.records import Prompt
from tutelage.rewards.named import columns_by_name
from tutelage.rewards.reward import Reward, columns_read, reward_name
from tutelage.rewards.weighted import WeightedReward


def require_columns(names: Sequence[str], prompts: LoadedRecords[Any]) -> None:
    """Check that every prompt has the columns that these rewards read.

    Raises TutelageError with the reward, the column and the first row without it.
    """
    for name, columns in columns_by_name(names).items():
        for column in columns:
            _require(name, column, prompts)


def _require(name: str, column: str, prompts: LoadedRecords[Prompt]) -> None:
    rows = zip(prompts.places, prompts.records, strict=True)
    without = [(place, prompt) for place, prompt in rows if prompt.data.get(column) is None]
    if without:
        place, prompt = without[0]
        count = f"{len(without):,} of {counted(len(prompts.records), 'row', 'lacks')} it"
        raise TutelageError(
            f"The reward {name} reads the column {column!r}, which {place} of {prompts.source} does not have "
            f"({count}); the own columns of that row are: {', '.join(prompt.data) or 'none'}."
        )


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

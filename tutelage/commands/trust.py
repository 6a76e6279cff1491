"""A reward that is to train, trusted as far as it agrees with the votes of a study: its record and weight."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from tutelage.base.config.files import write_atomically
from tutelage.engines.ranks.processes import join
from tutelage.rewards.composite import MeasuredReward
from tutelage.rewards.reward import Reward
from tutelage.train.run.folder import Run

RECORD = "trust.json"
"""File in a run directory: how far the reward agrees with the study's votes, and the weight that follows."""


class RewardedRun(Protocol):
    """Settings of a run that trains on a reward."""

    @property
    def trust(self) -> str: ...
    @property
    def trust_study(self) -> str: ...
    @property
    def trust_anyway(self) -> bool: ...
    @property
    def out(self) -> Path: ...


Record: TypeAlias = Mapping[str, object]
"""What a run remembers: the study and the moment, the figures, and the weight."""


def measure_first(settings: RewardedRun, make: Callable[[], Reward]) -> Record:
    """The record of the reward that `make` returns, held against --trust before a run begins; empty without --trust.

    A run that has a record keeps it. Collective over ranks. Raises TutelageError as `measure` does.
    """
    if not settings.trust:
        return {}
    from tutelage.commands.trust_measurement import measure  # a run that trusts nothing needs no database

    def record() -> Record:
        if (settings.out / RECORD).is_file():
            return read_record(settings.out)
        return measure(
            make(), settings.trust, settings.trust_study, settings.out, anyway=settings.trust_anyway
        )

    return join().shared(record)


def trusted(reward: Reward, record: Record, run: Run) -> Reward:
    """The reward with the weight of `record`, which is kept in the run; the reward as it is where that is empty.

    Collective over ranks.
    """
    if not record:
        return reward
    run.ranks.shared(lambda: keep_record(record, run.path))
    return weighed(reward, record)


def keep_record(record: Record, run: Path) -> None:
    """Write the record into the folder of a run."""
    write_atomically(run / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read_record(run: Path) -> Record:
    """The record in the folder of a run."""
    found: Record = json.loads((run / RECORD).read_text(encoding="utf-8"))
    return found


def weighed(reward: Reward, record: Record) -> Reward:
    """The reward on the scale of people's preferences: a difference of 1 is a log-odds of 1 that they prefer an answer.

    One that people contradict has no such scale and stays as it is.
    """
    return MeasuredReward.of(reward).weighted(float(str(record["weight"])))

"""Trust in a reward by its agreement with the votes of a study: its record and weight."""

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
"""File in a run directory: agreement of the reward with the study's votes, and the resulting weight."""


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
"""Record of a run: the study and the moment, the figures, and the weight."""


def measure_first(settings: RewardedRun, make: Callable[[], Reward]) -> Record:
    """Check the reward that `make` returns against --trust before a run begins, and return the record; empty without
    --trust.

    A run with a record keeps it. Collective over ranks. Raises TutelageError as `measure` does.
    """
    if not settings.trust:
        return {}
    from tutelage.commands.trust_measurement import measure  # imported here: other runs need no database

    def record() -> Record:
        if (settings.out / RECORD).is_file():
            return read_record(settings.out)
        return measure(make(), settings.trust, settings.trust_study, settings.out, anyway=settings.trust_anyway)

    return join().shared(record)


def trusted(reward: Reward, record: Record, run: Run) -> Reward:
    """Weight the reward by `record`, which is saved in the run; unchanged if it is empty. Collective over ranks."""
    if not record:
        return reward
    run.ranks.shared(lambda: keep_record(record, run.path))
    return weighed(reward, record)


def keep_record(record: Record, run: Path) -> None:
    """Write the record into the folder of a run."""
    write_atomically(run / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read_record(run: Path) -> Record:
    """Read the record in the folder of a run."""
    record: Record = json.loads((run / RECORD).read_text(encoding="utf-8"))
    return record


def weighed(reward: Reward, record: Record) -> Reward:
    """Scale the reward to people's preferences: a difference of 1 is a log-odds of 1 that they prefer an answer.

    A reward that people contradict has no such scale and is unchanged.
    """
    columns = record.get("columns", ())
    assert isinstance(columns, list | tuple)
    return MeasuredReward.of(reward, columns).weighted(float(str(record["weight"])))

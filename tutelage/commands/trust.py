"""Trust in a reward by its agreement with the votes of a study: its record and weight."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from tutelage.base.config.bases import TrustSettings
from tutelage.base.config.files import write_atomically
from tutelage.engines.ranks.processes import join
from tutelage.rewards.composite import MeasuredReward
from tutelage.rewards.reward import Reward
from tutelage.train.run.folder import Run

RECORD = "trust.json"
"""File in a run directory: agreement of the reward with the study's votes, and the resulting weight."""


Record: TypeAlias = Mapping[str, object]
"""Record of a run: the study and the moment, the figures, and the weight."""


def measure_first(settings: TrustSettings, out: Path, make: Callable[[], Reward]) -> Record:
    """Check the reward that `make` returns against --trust before a run begins, and return the record; empty without
    --trust.

    A run in `out` with a record keeps it. Collective over ranks. Raises TutelageError as `measure` does.
    """
    if not settings.trust:
        return {}
    from tutelage.commands.trust_measurement import measure  # imported here: other runs need no database

    def record() -> Record:
        if (out / RECORD).is_file():
            return json.loads((out / RECORD).read_text(encoding="utf-8"))
        return measure(make(), settings.trust, settings.trust_study, out, anyway=settings.trust_anyway)

    return join().shared(record)


def trusted(reward: Reward, record: Record, run: Run) -> Reward:
    """Scale the reward to people's preferences, by `record`, which is saved in the run: a difference of 1 is a log-odds
    of 1 that they prefer an answer. A reward that people contradict has no such scale and is unchanged, as without a
    record. Collective over ranks."""
    if not record:
        return reward
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    run.ranks.shared(lambda: write_atomically(run.path / RECORD, text))
    columns = record.get("columns", ())
    assert isinstance(columns, list | tuple)
    return MeasuredReward.of(reward, columns).weighted(float(str(record["weight"])))

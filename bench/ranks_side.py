"""One rank of a job: `python -m bench.ranks_side JOB WORLD OUT` writes OUT/rank-N.json. See `bench.ranks`."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bench.clock import replaced
from bench.jobs import JOBS
from bench.machine import peak_memory


def main(name: str, world: str, out: str) -> None:
    """Do our side of a job, and write the seconds of its steps, those of the processor, and the peak memory."""
    from tutelage.engines.ranks.processes import world_rank
    from tutelage.train.learner import Learner

    job = JOBS[name]
    spent: list[float] = []

    def update(inner: Callable[..., dict[str, float]], learner: Learner) -> dict[str, float]:
        told = inner(learner)
        spent.append(time.process_time())
        return told

    with replaced(Learner, "update", update):
        measured = job.ours(replace(job.place(Path(world), Path(out)), rated=False))
    told = {
        "seconds": measured.seconds,
        "processor": [now - before for before, now in pairwise(spent)],
        "peak_mb": peak_memory("cpu"),
    }
    (Path(out) / f"rank-{world_rank()}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

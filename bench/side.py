"""One process of a job: `python -m bench.side JOB prepare|ours|theirs|profile|count WORLD OUT`.

Writes OUT/measured.json; with `profile` our side also leaves profile.txt and trace.json in OUT/run. `count` measures no
time: it writes the operations of an update (see `bench.operations`).
"""

import json
import sys
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from bench.jobs import JOBS
from bench.machine import peak_memory


def main(name: str, side: str, world: str, out: str) -> None:
    """Do one side of a job, and write what it measured with its peak memory."""
    job = JOBS[name]
    place = job.place(Path(world), Path(out))
    if side == "prepare":
        job.prepare(place)
        return
    if side == "count":
        from bench.operations import count

        (place.out / "measured.json").write_text(json.dumps(count(name, place), indent=1))
        return
    if side == "profile":
        place = replace(place, profile=True)
    started = time.perf_counter()
    measured = asdict((job.theirs if side == "theirs" else job.ours)(place))
    # much less than the threads in use says that others had the machine too
    measured["processors"] = time.process_time() / (time.perf_counter() - started)
    measured["peak_mb"] = peak_memory(place.device)
    measured["versions"] = {package: version(package) for package in ("torch", "transformers")}
    (place.out / "measured.json").write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])

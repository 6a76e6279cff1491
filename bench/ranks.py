"""How a step grows over ranks: `python -m bench.ranks [JOB ...]`, on the jobs sft, dpo, grpo-6.8M and grpo-134M.

Each rank computes with one thread. One process with as many threads as the machine has processors is measured beside
them. All settings take turns, since a shared machine changes its speed within minutes, and each step is told by its
wall time and by the processor time of the busiest rank: where others use the machine, the second tells how the work was
divided, without the waiting. Writes results/MACHINE/ranks.json and ranks.md.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.job import Job
from bench.jobs import JOBS
from bench.processes import KEPT, machine_folder, machine_now, prepare, revision, run, world_of

MEASURED = ("sft", "dpo", "grpo-6.8M", "grpo-134M")


@dataclass(frozen=True)
class Setting:
    """A number of ranks, and the threads of each."""

    ranks: int
    threads: int = 1

    def __str__(self) -> str:
        return f"{self.ranks} × {self.threads}"

    @classmethod
    def named(cls, name: str) -> "Setting":
        """The setting of which `name` is the text."""
        return cls(*map(int, name.split(" × ")))


def settings() -> list[Setting]:
    """One rank, two and four of a thread each, and one with a thread for each processor."""
    return [Setting(1), Setting(2), Setting(4), Setting(1, os.cpu_count() or 1)]


def main() -> None:
    """Measure the jobs that were asked for, and write the table of all that is known of this machine."""
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__)
    parser.add_argument("jobs", nargs="*", metavar="JOB", choices=[*MEASURED, []], help=", ".join(MEASURED))
    parser.add_argument("--rounds", type=int, default=2, help="turns of each setting")
    parser.add_argument("--data", default="", help="a file of preferences whose texts are used")
    asked = parser.parse_args()
    world, machine = world_of(asked.data), machine_now("cpu", "float32")
    file = machine_folder(machine["name"]) / "ranks.json"
    known = json.loads(file.read_text()) if file.is_file() else {}
    for name in asked.jobs or MEASURED:
        known[name] = {"revision": revision(), "settings": _measured(JOBS[name], world, asked.rounds)}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, indent=1) + "\n")
    file.with_suffix(".md").write_text(table(known))


def _measured(job: Job, world: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """By setting: seconds of each step, processor seconds of the busiest rank, and the peak memory of each rank."""
    prepare(job, world)
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for setting in settings():
            told = _once(job, world, setting)
            print(
                f"{job.name}, {setting}: {median(told['seconds']):.2f} s, "
                f"{median(told['processor']):.2f} s of a processor, {max(told['peak_mb']):.0f} MB a rank",
                flush=True,
            )
            kept = found.setdefault(str(setting), {name: [] for name in told})
            for name, values in told.items():
                kept[name] += values
    return found


def _once(job: Job, world: Path, setting: Setting) -> dict[str, list[float]]:
    """A few steps in so many ranks."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(setting.ranks)]
    with tempfile.TemporaryDirectory(dir=KEPT) as out:
        words = ["-m", "bench.ranks_side", job.name, str(world), out]
        run([sys.executable, *(torchrun if setting.ranks > 1 else []), *words], threads=setting.threads)
        told = [json.loads(path.read_text()) for path in sorted(Path(out).glob("rank-*.json"))]
    return {
        "seconds": told[0]["seconds"],
        "processor": [max(each) for each in zip(*(rank["processor"] for rank in told), strict=True)],
        "peak_mb": [rank["peak_mb"] for rank in told],
    }


HEAD = """| job | ranks × threads | s a step | faster than 1 × 1 | processor s, busiest rank | of 1 × 1 | MB a rank |
|---|---|---|---|---|---|---|
"""


def table(known: Mapping[str, Any]) -> str:
    """The medians of every job and setting, beside one rank of one thread."""
    lines = []
    for name, told in known.items():
        alone = told["settings"][str(Setting(1))]
        for setting, each in told["settings"].items():
            wall, processor = median(each["seconds"]), median(each["processor"])
            lines.append(
                f"| {name} | {setting} | {wall:.2f} | {median(alone['seconds']) / wall:.2f} | {processor:.2f} "
                f"| {processor / median(alone['processor']):.2f} | {max(each['peak_mb']):.0f} |\n"
            )
    return HEAD + "".join(lines)


if __name__ == "__main__":
    main()

"""`python -m bench [JOB ...]`: run jobs side by side, then write the table of everything measured so far.

`python -m bench plan [JOB ...]` measures our side alone beside its plans, see `bench.planned`. `python -m bench gpu`
measures one GPU, see `bench.gpu.run`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.growth_curves import draw_growth
from bench.job import Job
from bench.jobs import JOBS
from bench.planned import SETTINGS, check
from bench.processes import KEPT, RESULTS, machine_now, prepare, result_file, revision, run, world_of
from bench.table import write_table


def main() -> None:
    """Measure the jobs that were asked for."""
    if sys.argv[1:2] == ["gpu"]:
        from bench.gpu.run import main as measure_gpu

        measure_gpu(sys.argv[2:])
        return
    asked = _arguments()
    world = world_of(asked.data)
    if asked.jobs[:1] == ["plan"]:
        sys.exit(check(asked.jobs[1:], world))
    for job in _jobs(asked):
        print(f"{job.name}: {job.about}", flush=True)
        result = _measure(job, world, asked)
        if asked.only != "operations":
            result |= {
                "needs": _needs(job, world, result["machine"]),
                "date": datetime.now(UTC).date().isoformat(),
                "data": Path(asked.data).name or "generated",
                "revision": revision(),
            }
        file = result_file(job, result["machine"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1) + "\n")
    write_table(RESULTS, RESULTS.with_name("RESULTS.md"))
    draw_growth(RESULTS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "jobs",
        nargs="*",
        metavar="JOB",
        help=f"of {', '.join(JOBS)}; the beginning of names stands for all of them; or plan, with or without JOBs",
    )
    parser.add_argument("--data", default="", help="a file of preferences whose texts are used")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--only",
        choices=("ours", "theirs", "operations"),
        help="measure one side or count the operations of our updates, and keep what is known of the rest",
    )
    return parser.parse_args()


def _jobs(asked: argparse.Namespace) -> list[Job]:
    from bench.shapes import SHAPES

    here = [job for job in JOBS.values() if SHAPES[job.shape].device == asked.device]
    names = {job.name for job in here}
    chosen = [
        job
        for job in here
        if not asked.jobs
        or any(job.name == name or (name not in names and job.name.startswith(name)) for name in asked.jobs)
    ]
    if not chosen:
        sys.exit(f"No job is called {' or '.join(asked.jobs)}; there are {', '.join(job.name for job in here)}.")
    return [job for job in chosen if _has_peer(job, asked)]


def _has_peer(job: Job, asked: argparse.Namespace) -> bool:
    """Whether the job can be measured. Where its peer's environment is not there it is left out, and this is said; a
    job that was asked for by name ends the program."""
    if asked.only in ("ours", "operations") or (KEPT / job.environment / "bin" / "python").exists():
        return True
    told = f"{job.name}: there is no environment of its peer, .bench/{job.environment} (see the Makefile)"
    if asked.jobs:
        sys.exit(told)
    print(f"{told}; left out", flush=True)
    return False


def _measure(job: Job, world: Path, asked: argparse.Namespace) -> dict[str, Any]:
    prepare(job, world)
    # Before and after each of our processes, whose share of the machine is told.
    measured = partial(machine_now, asked.device, job.place(world, world).dtype)
    machines = [measured()]
    known = result_file(job, machines[0])
    result: dict[str, Any] = json.loads(known.read_text()) if known.is_file() and asked.only else {}
    sides = [side for side in ("ours", "theirs") if asked.only in (None, side)]
    rounds: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(job.rounds):
        for side in sides:
            if side == "ours" and rounds[side]:
                machines.append(measured())
            rounds[side].append(_one_side(job, side, world))
            if side == "ours":
                machines.append(measured())
    if "ours" in sides:
        result["machine"] = _mean(machines)
    if asked.only != "theirs" and job.name in SETTINGS:
        result["operations"] = _process(job, "count", sys.executable, world) | {"revision": revision()}
    return {"machine": machines[0]} | result | {side: _together(told) for side, told in rounds.items()}


def _mean(machines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One machine at several times: what others do on it changes its rates by a third within minutes."""
    return machines[0] | {rate: fmean(told[rate] for told in machines) for rate in ("flops", "bandwidth")}


def _one_side(job: Job, side: str, world: Path) -> dict[str, Any]:
    """One process of one side, and a line about it."""
    python = sys.executable if side == "ours" else str(KEPT / job.environment / "bin" / "python")
    told = _process(job, side, python, world)
    seconds = ", ".join(f"{value:.2f}" for value in told["seconds"])
    print(f"  {side}: {seconds} s, {told['peak_mb']:.0f} MB, {told['processors']:.1f} processors", flush=True)
    return told


def _process(job: Job, side: str, python: str, world: Path) -> dict[str, Any]:
    """What a process of its own tells about a job."""
    with tempfile.TemporaryDirectory(dir=KEPT) as out:
        run([python, "-m", "bench.side", job.name, side, str(world), out])
        told: dict[str, Any] = json.loads((Path(out) / "measured.json").read_text())
    return told


def _together(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The steps of all rounds one behind the other, with the highest peak and the mean of the processors."""
    first = rounds[0]
    return first | {
        "seconds": [value for told in rounds for value in told["seconds"]],
        "parts": {name: [value for told in rounds for value in told["parts"][name]] for name in first["parts"]},
        "rates": [rate for told in rounds for rate in told["rates"]],
        "peak_mb": max(told["peak_mb"] for told in rounds),
        "processors": fmean(told["processors"] for told in rounds),
    }


def _needs(job: Job, world: Path, machine: dict[str, Any]) -> dict[str, Any]:
    """What a step needs at least; for decoding the seconds that this machine needs at least."""
    needs = job.needs(job.place(world, world))
    floor = needs.decoding.floor(machine["flops"], machine["bandwidth"]) if needs.decoding else 0.0
    told = {name: getattr(needs, name) for name in ("update", "kept", "updating", "sampling", "tokens")}
    return told | {"floor": floor}


if __name__ == "__main__":
    main()

"""`python -m bench [JOB ...]`: run jobs side by side, then write the table of everything measured so far."""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.charts import draw_growth
from bench.job import Job
from bench.jobs import JOBS
from bench.table import result_file, write_table

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".bench"
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure the jobs that were asked for."""
    asked = _arguments()
    world = _world(asked.data)
    for job in _jobs(asked):
        print(f"{job.name}: {job.about}", flush=True)
        result = _measure(job, world, asked)
        result |= {
            "needs": _needs(job, world, result["machine"]),
            "date": datetime.now(UTC).date().isoformat(),
            "data": Path(asked.data).name or "generated",
            "revision": _revision(),
        }
        file = result_file(job, result["machine"], RESULTS)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1) + "\n")
    write_table(RESULTS, Path(__file__).parent / "RESULTS.md")
    draw_growth(RESULTS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "jobs",
        nargs="*",
        metavar="JOB",
        help=f"of {', '.join(JOBS)}; the beginning of names stands for all of them",
    )
    parser.add_argument("--data", default="", help="a file of preferences whose texts are used")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--only", choices=("ours", "theirs"), help="measure one side, keep what is known of the other"
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
        sys.exit(
            f"No job is called {' or '.join(asked.jobs)}; there are {', '.join(job.name for job in here)}."
        )
    return chosen


def _world(data: str) -> Path:
    """The folder of texts, models and the jobs' data: one for each file that was ever given."""
    path = str(Path(data).resolve()) if data else ""
    name = f"world-{hashlib.sha256(path.encode()).hexdigest()[:8]}" if path else "world"
    world = KEPT / name
    world.mkdir(parents=True, exist_ok=True)
    (world / "world.json").write_text(json.dumps({"data": path}))
    return world


def _measure(job: Job, world: Path, asked: argparse.Namespace) -> dict[str, Any]:
    place = job.place(world, world)
    if not (place.job / "facts.json").is_file():
        place.job.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "bench.side", job.name, "prepare", str(world), str(world)])
    # Before and after each of our processes, whose share of the machine is told.
    machines = [_machine(asked.device)]
    known = result_file(job, machines[0], RESULTS)
    result: dict[str, Any] = json.loads(known.read_text()) if known.is_file() and asked.only else {}
    sides = [side for side in ("ours", "theirs") if asked.only in (None, side)]
    rounds: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(job.rounds):
        for side in sides:
            if side == "ours" and rounds[side]:
                machines.append(_machine(asked.device))
            rounds[side].append(_one_side(job, side, world))
            if side == "ours":
                machines.append(_machine(asked.device))
    if "ours" in sides:
        result["machine"] = _mean(machines)
    return {"machine": machines[0]} | result | {side: _together(told) for side, told in rounds.items()}


def _mean(machines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One machine at several times: what others do on it changes its rates by a third within minutes."""
    return machines[0] | {rate: fmean(told[rate] for told in machines) for rate in ("flops", "bandwidth")}


def _one_side(job: Job, side: str, world: Path) -> dict[str, Any]:
    """One process of one side, and a line about it."""
    python = sys.executable if side == "ours" else str(KEPT / job.environment / "bin" / "python")
    with tempfile.TemporaryDirectory(dir=KEPT) as out:
        _run([python, "-m", "bench.side", job.name, side, str(world), out])
        told: dict[str, Any] = json.loads((Path(out) / "measured.json").read_text())
    seconds = ", ".join(f"{value:.2f}" for value in told["seconds"])
    print(f"  {side}: {seconds} s, {told['peak_mb']:.0f} MB, {told['processors']:.1f} processors", flush=True)
    return told


def _together(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The steps of all rounds one behind the other, with the highest peak and the mean of the processors."""
    first = rounds[0]
    return first | {
        "seconds": [value for told in rounds for value in told["seconds"]],
        "parts": {
            name: [value for told in rounds for value in told["parts"][name]] for name in first["parts"]
        },
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


def _revision() -> str:
    """The commit that is measured; "+" marks changes that are not in it."""
    head = _git("rev-parse", "--short", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no", "tutelage") else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()


def _machine(device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "machine.json"
        _run([sys.executable, "-m", "bench.machine", device, str(told)])
        machine: dict[str, Any] = json.loads(told.read_text())
    return machine


def _run(command: list[str]) -> None:
    """Run a process of its own, so that its peak memory is its own: this one stays small."""
    told = {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count())),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    done = subprocess.run(command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    main()

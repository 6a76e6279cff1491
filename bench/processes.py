"""The processes that the bench starts, and the folders that it keeps."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.job import Job

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".bench"
RESULTS = Path(__file__).parent / "results"
"""A folder for each machine, since what two machines say is never put side by side."""


def machine_folder(name: str, results: Path = RESULTS) -> Path:
    """The folder of a machine by its name."""
    return results / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def result_file(job: Job, machine: Mapping[str, Any], results: Path = RESULTS) -> Path:
    """Where the result of a job on a machine is kept."""
    return machine_folder(machine["name"], results) / f"{job.name}.json"


def world_of(data: str) -> Path:
    """The folder of texts, models and the jobs' data: one for each file that was ever given."""
    path = str(Path(data).resolve()) if data else ""
    name = f"world-{hashlib.sha256(path.encode()).hexdigest()[:8]}" if path else "world"
    world = KEPT / name
    world.mkdir(parents=True, exist_ok=True)
    (world / "world.json").write_text(json.dumps({"data": path}))
    return world


def prepare(job: Job, world: Path) -> None:
    """Write the data and the model of a job, unless they are there."""
    place = job.place(world, world)
    if not (place.job / "facts.json").is_file():
        place.job.mkdir(parents=True, exist_ok=True)
        run([sys.executable, "-m", "bench.side", job.name, "prepare", str(world), str(world)])


def revision() -> str:
    """The commit that is measured; "+" marks changes that are not in it. "unknown" without git or its history."""
    if shutil.which("git") is None or not (head := _git("rev-parse", "--short", "HEAD")):
        return "unknown"
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no", "tutelage") else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()


def machine_now(device: str, precision: str) -> dict[str, Any]:
    """The machine's name and its rates at this moment, products in a precision, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "machine.json"
        run([sys.executable, "-m", "bench.machine", device, precision, str(told)])
        machine: dict[str, Any] = json.loads(told.read_text())
    return machine


def run(command: list[str], *, threads: int | None = None) -> None:
    """Run a process of its own, so that its peak memory is its own: this one stays small."""
    told = {
        "OMP_NUM_THREADS": str(threads or os.environ.get("OMP_NUM_THREADS", os.cpu_count())),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    openmp = Path(command[0]).parents[1] / "lib" / "libiomp5.so"  # vLLM's environment has it, and wants it first
    if openmp.is_file():
        told["LD_PRELOAD"] = str(openmp)
    done = subprocess.run(command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")

"""Where results are kept: a folder for each machine, since what two machines say is never put side by side."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.job import Job

RESULTS = Path(__file__).parent / "results"


def machine_folder(name: str, results: Path = RESULTS) -> Path:
    """The folder of a machine by its name."""
    return results / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def result_file(job: Job, machine: Mapping[str, Any], results: Path = RESULTS) -> Path:
    """Where the result of a job on a machine is kept."""
    return machine_folder(machine["name"], results) / f"{job.name}.json"

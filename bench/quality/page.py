"""docs/results.md: a section for each experiment that has a result."""

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from bench.quality.experiment import Experiment, Result

HEAD = dedent(
    """\
    <!-- written by python -m bench.quality -->
    # Results

    What the trainers do to a real model, beside what others published. Each section names its claim, its data, its
    command and its seeds; intervals are of 95 % and tell the uncertainty that they name. `python -m bench.quality`
    makes all of them anew, and `bench/quality/results` has every number. Data are read when an experiment runs, and are
    not part of this repository."""
)


def write_page(results: Path, docs: Path, experiments: Mapping[str, Experiment]) -> None:
    """Write results.md and its drawings into the folder `docs`, from the results that there are, if any."""
    parts, folder = [HEAD], docs / "results"
    if not any(results.glob("*.json")):
        return
    folder.mkdir(exist_ok=True)
    for name, experiment in experiments.items():
        file = results / f"{name}.json"
        if file.is_file():
            result = json.loads(file.read_text())
            parts.append(f"{experiment.section(result).strip()}\n\n{_source(result)}")
            (folder / f"{name}.svg").write_text(experiment.figure(result), encoding="utf-8")
    (docs / "results.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _source(result: Result) -> str:
    """How a result was made."""
    minutes, worked = result["seconds"] / 60, result["processor_seconds"] / 60
    return (
        f"`{result['command']}`, {result['date']}, {result['machine']}, {result['threads']} "
        f"thread{'s' * (result['threads'] != 1)}: {minutes:.0f} minutes, of which the processor worked {worked:.0f}."
    )

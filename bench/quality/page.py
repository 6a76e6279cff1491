"""docs/results.md: a section for each experiment of which enough parts are finished."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent, fill

from bench.quality.experiment import Experiment, Line, read_lines

HEAD = dedent(
    """\
    <!-- written by python -m bench.quality -->
    # Results

    Effects of the trainers, on a real model, beside published results. Each section names its claim, its data and its
    seeds; intervals are of 95 %, over the stated source of uncertainty. `make quality ARGS="--data FILE"` repeats all
    experiments, and `bench/quality/results` has every number, with the settings and the CPU seconds of each part. Data
    are read when an experiment runs, and are not part of this repository: here the test file of hh-rlhf's helpful-base
    (MIT). The model is SmolLM2-135M-Instruct, in float32, except where a section names another."""
)


def write_page(results: Path, docs: Path, experiments: Mapping[str, Experiment]) -> None:
    """Write results.md and its drawings into the folder `docs`, from the results that there are, if any."""
    parts, folder = [HEAD], docs / "results"
    for name, experiment in experiments.items():
        found = experiment.current(read_lines(results / f"{name}.jsonl"))
        if not found or not experiment.enough(found):
            continue
        parts.append(f"{experiment.section(found).strip()}\n\n{_source(name, found)}")
        folder.mkdir(exist_ok=True, parents=True)
        for drawing, svg in experiment.figures(found).items():
            (folder / f"{drawing}.svg").write_text(svg, encoding="utf-8")
    if len(parts) > 1:
        (docs / "results.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _source(name: str, found: Sequence[Line]) -> str:
    """How a section was made."""
    worked = sum(line.processor_seconds for line in found) / 60
    machines = ", ".join(dict.fromkeys(line.machine for line in found))
    threads = ", ".join(dict.fromkeys(str(line.threads) for line in found))
    seeds = len({line.seed for line in found})
    return fill(
        f"`python -m bench.quality {name} --seeds {seeds}`, {max(line.date for line in found)}, {machines}, threads: "
        f"{threads}; {worked:.0f} CPU minutes for all parts together.",
        120,
        break_on_hyphens=False,
        break_long_words=False,
    )

"""The table of what was measured: bench/RESULTS.md."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench.growth_curves import growth_table
from bench.jobs import JOBS

Result = Mapping[str, Any]

WASTE = 1.25
"""Operations of an update over those that it needs at least: the most that is aimed at."""

HEAD = """# Benchmarks against other tools

Written by `make bench`, with tables for each machine. Seconds are medians of the steps after the first, with the
minimum and the maximum in brackets; memory is the peak of the whole process; *faster* is the peer's time over ours,
*memory* our memory over the peer's, *CPUs* the mean number of CPUs that each side used: a number well below the threads
means that other programs used the machine too. Both sides have the same model with random weights, the same data in the
same batches and order, seed and precision, and separate processes on one machine, which has a C++ compiler (see
`--engine`).

The second table of a machine shows the efficiency of our side. Updates: the operations that are needed if no token is
computed twice, at the measured rate of a matrix product (GRPO: before and after each update, elsewhere before and after
each process), the median of all steps; activations kept from sampling are not counted again. Decoding: the larger of
arithmetic and reading, at the measured rates. The rate is that of the fastest library of the machine; shares with a
star are older and refer to torch's own product (MKL), which reaches half of it on some CPUs. *Performed*: the
operations of the products that an update really makes, counted in a separate run without a clock, over those that it
needs, and for each token of the step. The ratio can be less than 1: the needed ones have every layer compute every
token, but of the last layer only the states that are read need its second half.
"""


def write_table(results: Path, place: Path) -> None:
    """Write the tables of every result, a folder of them for each machine."""
    parts, everywhere = [HEAD], {}
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        if both := _both_sides(folder):
            parts += [*_machine(both), _times(both), _efficiency(both), *growth_table(folder)]
            everywhere |= both
    place.write_text("\n".join([*parts, _settings(everywhere)]), encoding="utf-8")


def _both_sides(folder: Path) -> dict[str, Result]:
    """What was measured of both sides on a machine, by job."""
    files = {name: file for name in JOBS if (file := folder / f"{name}.json").is_file()}
    known = {name: json.loads(file.read_text()) for name, file in files.items()}
    return {name: told for name, told in known.items() if {"ours", "theirs"} <= told.keys()}


def _machine(results: Mapping[str, Result]) -> list[str]:
    """Its name, and rates, versions and date of the results, a line for each combination."""
    lines: dict[str, list[str]] = {}
    for name, told in results.items():
        machine, ours = told["machine"], told["ours"]["versions"]
        line = (
            f"{told['date']}: {machine['flops'] / 1e9:.0f} GFLOP/s in a matrix product, "
            f"{machine['bandwidth'] / 1e9:.1f} GB/s read; Python {machine['python']}, torch {ours['torch']}, "
            f"transformers {ours['transformers']}; texts: {told['data']}; revision {told['revision']}"
        )
        lines.setdefault(line, []).append(name)
    machine = next(iter(results.values()))["machine"]
    head = f"## {machine['name']}, {machine['threads']} threads"
    return [head, "", *(f"- {line} ({', '.join(names)})" for line, names in lines.items()), ""]


def _times(results: Mapping[str, Result]) -> str:
    rows = [
        "| job | peer | its step | ours | faster | its memory | ours | memory | CPUs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, told in results.items():
        job, theirs, ours = JOBS[name], told["theirs"], told["ours"]
        if "points" in ours["facts"]:
            continue
        ratio = median(theirs["seconds"]) / median(ours["seconds"])
        memory = ours["peak_mb"] / theirs["peak_mb"]
        rows.append(
            f"| {job.about} | {job.peer} | {_spread(theirs)} | {_spread(ours)} | {_aimed(ratio, job.faster, '≥')} | "
            f"{theirs['peak_mb'] / 1024:.2f} GiB | {ours['peak_mb'] / 1024:.2f} GiB | "
            f"{_aimed(memory, job.leaner, '≤')} | {theirs['processors']:.1f}, {ours['processors']:.1f} |"
        )
    return "\n".join(rows) + "\n"


def _spread(told: Result) -> str:
    seconds = told["seconds"]
    return f"{_seconds(median(seconds))} ({_seconds(min(seconds))}–{_seconds(max(seconds))})"


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.2f} s"


def _aimed(value: float, target: float | None, sign: str) -> str:
    """The value, and where a target was set whether it is met."""
    shown = f"{value:.2f}"
    if target is None:
        return shown
    met = value >= target if sign == "≥" else value <= target
    return f"**{shown}** (aim {sign} {target:g}: {'met' if met else 'not met'})"


def _efficiency(results: Mapping[str, Result]) -> str:
    """How near our side comes to what the machine could do."""
    columns = ("job", "tokens per second", "needed in the update", "performed", "a token")
    columns += ("of the matrix rate", "of the bound in decoding")
    rows = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, told in results.items():
        needs, ours = told["needs"], told["ours"]
        if not needs["tokens"]:
            continue
        rate = needs["tokens"] / median(ours["seconds"])
        update = needs["update"] - needs.get("kept", 0.0) * median(ours["facts"].get("tokens/kept", [0.0]))
        gflop = f"{update / 1e9:.0f} GFLOP" if update else "–"
        rates = ours.get("rates") or [told["machine"]["flops"]]
        mark = "" if "rate" in told["machine"] else "\\*"
        share = _share([update / rate for rate in rates], ours, needs["updating"], mark)
        reached = _share([needs["floor"]], ours, needs["sampling"], mark)
        waste, each = _performed(told)
        rows.append(f"| {name} | {rate:,.0f} | {gflop} | {waste} | {each} | {share} | {reached} |")
    return "\n".join(rows) + "\n"


def _performed(result: Result) -> tuple[str, str]:
    """Operations of the update over those that it needs, and for each token; dashes where they were not counted."""
    if "operations" not in result:
        return "–", "–"
    counted = result["operations"]
    ratio, each = counted["done"] / counted["needed"], counted["done"] / counted["tokens"]
    return _aimed(ratio, WASTE, "≤"), f"{each / 1e9:.3f} GFLOP"


def _share(least: list[float], told: Result, part: str, mark: str) -> str:
    """What was needed at least, once or in each step, over what it took, with a mark; a dash where nothing was."""
    if not any(least):
        return "–"
    took = told["parts"][part] if part else told["seconds"]
    least = least if len(least) == len(took) else least * len(took)
    return f"{median(need / spent for need, spent in zip(least, took, strict=True)):.0%}{mark}"


def _settings(results: Mapping[str, Result]) -> str:
    told: dict[tuple[str, str], list[str]] = {}
    for name in results:
        told.setdefault((JOBS[name].peer, JOBS[name].settings), []).append(name)
    lines = [f"- {', '.join(names)}: {peer}, {settings}" for (peer, settings), names in told.items()]
    return "\n".join(["## How the peers are set", "", *lines, ""])

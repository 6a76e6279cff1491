"""Plans beside steps that are measured now: `python -m bench plan [JOB ...]`.

Seconds are those of one processor, for the plan's rates as for the steps, so that other work on the machine hardly
counts. A process of its own plans before the steps and again behind them, as `tutelage plan` does; the mean of both is
compared. It must come within 25 % of the median step and within 10 % of the peak memory.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.clock import replaced, timed
from bench.job import Place
from bench.jobs import JOBS, dpo, grpo, ppo, reward, sft
from bench.machine import peak_memory
from bench.plan import MEMORY, TIME
from bench.processes import prepare, run

SETTINGS: dict[str, tuple[str, Callable[[Place], Any]]] = {
    "sft": ("sft", sft.settings),
    "dpo": ("dpo", dpo.settings),
    "reward": ("reward", reward.settings),
    "grpo-6.8M": ("improve", partial(grpo.settings, size=grpo.SMALL)),
    "grpo-134M": ("improve", partial(grpo.settings, size=grpo.LARGE)),
    "grpo-134M-lora": ("improve", partial(grpo.settings, size=grpo.LARGE, rank=grpo.RANK)),
    "ppo": ("improve", ppo.with_networks),
}
"""The command of each job that is planned, and its settings."""


@dataclass(frozen=True)
class Figures:
    """Of a step: processor seconds, and bytes at the peak."""

    seconds: float
    peak: float


@dataclass(frozen=True)
class Row:
    """A plan beside its measurement."""

    job: str
    planned: Figures
    measured: Figures

    @property
    def time_ratio(self) -> float:
        """Planned over measured seconds."""
        return self.planned.seconds / self.measured.seconds

    @property
    def memory_ratio(self) -> float:
        """Planned over measured bytes."""
        return self.planned.peak / self.measured.peak

    @property
    def holds(self) -> bool:
        """Whether the plan is near enough in both."""
        return abs(self.time_ratio - 1) <= TIME and abs(self.memory_ratio - 1) <= MEMORY


def check(names: Sequence[str], world: Path) -> int:
    """Measure jobs, all without names, and print the table. Returns 1 where a plan is too far off, 0 otherwise."""
    rows = []
    print("| job | step, processor s | planned | ratio | peak | planned | ratio | |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names or SETTINGS:
        row = _row(name, world)
        rows.append(row)
        one, other = row.measured, row.planned
        print(
            f"| {name} | {one.seconds:.2f} | {other.seconds:.2f} | {row.time_ratio:.2f} | {one.peak / 2**30:.2f} GiB | "
            f"{other.peak / 2**30:.2f} GiB | {row.memory_ratio:.2f} | {'' if row.holds else 'off'} |",
            flush=True,
        )
    return int(not all(row.holds for row in rows))


def _row(name: str, world: Path) -> Row:
    prepare(JOBS[name], world)
    told = [_told(side, name, world) for side in ("plan", "steps", "plan")]
    before, measured, behind = (Figures(**figures) for figures in told)
    planned = Figures(fmean((before.seconds, behind.seconds)), fmean((before.peak, behind.peak)))
    return Row(name, planned, measured)


def _told(side: str, name: str, world: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=world) as out:
        run([sys.executable, "-m", "bench.planned", side, name, str(world), out], threads=1)
        figures: dict[str, float] = json.loads((Path(out) / "figures.json").read_text())
    return figures


def plan_of(name: str, place: Place) -> Figures:
    """The plan of a job by the rates of one processor, as they are now."""
    from tutelage.commands.plan import run as plan
    from tutelage.engines.device_rates import this_device

    def by_processor(measure: Callable[..., Any], *given: Any) -> Any:
        return this_device(*given, clock=time.process_time)

    _, settings = SETTINGS[name]
    with replaced(plan, "this_device", by_processor):
        (estimate,) = plan.plan(settings(place)).plan.estimates
    return Figures(estimate.seconds, estimate.memory.peak)


def steps_of(name: str, place: Place) -> Figures:
    """The median step of a job after its first, with the step's share of what is computed before it (the reference of
    preferences), and the peak memory of this process."""
    import tutelage
    from bench.ours import step_ends
    from tutelage.commands.dpo import run as preference_files

    command, settings = SETTINGS[name]
    with timed(preference_files, "refer", time.process_time) as referring, step_ends(time.process_time) as ends:
        getattr(tutelage, command)(settings(place))
    steps = [behind - before for before, behind in pairwise(ends)]
    return Figures(median(steps) + sum(referring) / len(ends), peak_memory("cpu") * 2**20)


def main(side: str, name: str, world: str, out: str) -> None:
    """One process: write the figures of a plan or of steps to OUT/figures.json."""
    place = JOBS[name].place(Path(world), Path(out))
    found = plan_of(name, place) if side == "plan" else steps_of(name, place)
    (place.out / "figures.json").write_text(
        json.dumps({"seconds": found.seconds, "peak": found.peak}), encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

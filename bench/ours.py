"""Our side of a job: the workflows as users run them, measured by what they log."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from bench.clock import Beside, measured_beside, replaced, timed
from bench.job import Measurement, Place

Told = TypeVar("Told")
PARTS = {"sampling": "collect", "judging": "score_rollout", "update": "gradient_update"}
"""Functions of `tutelage.train.rl.improve`, by the part of a step that each is."""


def run_workflow(workflow: Callable[[Any], object], settings: Any) -> list[dict[str, float]]:
    """Run a workflow to its end; the lines of metrics.jsonl, one for each step."""
    workflow(settings)
    lines = (Path(settings.out) / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["step"] > 0]


def durations(rows: list[dict[str, float]]) -> list[float]:
    """Seconds from the end of each step to the end of the next: the first step is not measured."""
    return [now["seconds"] - before["seconds"] for before, now in pairwise(rows)]


@contextmanager
def step_ends(clock: Callable[[], Told]) -> Iterator[list[Told]]:
    """Inside, what a clock tells at the end of every step of a run is noted in the list."""
    from tutelage.train.run.folder import Run

    noted: list[Told] = []

    def log(inner: Callable[..., None], run: Run, step: int, metrics: dict[str, float]) -> None:
        inner(run, step, metrics)
        if step > 0:
            noted.append(clock())

    with replaced(Run, "log", log):
        yield noted


def improved(settings: Any, rate: Callable[[], float] | None = None) -> Measurement:
    """Run `tutelage improve`, and note how long each step sampled, judged what it sampled, and updated.

    The machine's `rate`, if any, is measured around each update; that time is no part of the steps.
    """
    from tutelage.commands.improve.run import improve
    from tutelage.train.rl import improve as loop

    beside: list[Beside] = []
    with ExitStack() as noting:
        parts = {name: noting.enter_context(timed(loop, by)) for name, by in PARTS.items()}
        if rate:
            beside = noting.enter_context(measured_beside(loop, "gradient_update", rate))
        rows = run_workflow(improve, settings)
    steps = durations(rows)
    if beside:
        steps = [step - told.seconds for step, told in zip(steps, beside[1:], strict=True)]
    shown = ("length/mean", "ended", "score/mean", "kl/reference", "tokens/kept", "seconds")
    return Measurement(
        steps,
        {name: spent[1:] for name, spent in parts.items()},
        [told.rate for told in beside[1:]],
        {name: [row[name] for row in rows] for name in shown if name in rows[0]},
    )


def common(place: Place) -> dict[str, Any]:
    """Settings that every training command gets."""
    from tutelage.base import config

    return {
        "model": config.Model(place.model, dtype=place.dtype, device=place.device),  # type: ignore[arg-type]
        "out": place.out / "run",
        "seed": place.seed,
        "quiet": True,
        "profile": place.profile,
        "checkpoints": config.Checkpoints(every=0, keep=1),
    }

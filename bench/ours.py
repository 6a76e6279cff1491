"""Running our side of a job: the verbs as anybody would run them, read by what they log."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.clock import timed
from bench.job import Measured, Place


def run_verb(main: Callable[[Any], int], settings: Any) -> list[dict[str, float]]:
    """Run a verb to its end; the lines of metrics.jsonl, one for each step."""
    if main(settings):
        raise RuntimeError(f"{settings} did not succeed")
    lines = (Path(settings.out) / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["step"] > 0]


def durations(rows: list[dict[str, float]]) -> list[float]:
    """Seconds from the end of each step to the end of the next: the first step is not measured."""
    return [now["seconds"] - before["seconds"] for before, now in pairwise(rows)]


def improved(settings: Any) -> Measured:
    """Run `tutelage improve`, and note how long each step sampled, judged what it sampled, and updated."""
    from tutelage.train import improve as loop
    from tutelage.verbs import improve

    parts = {
        name: timed(loop, function)
        for name, function in (("sampling", "collect"), ("judging", "judged"), ("update", "gradient_steps"))
    }
    rows = run_verb(improve.main, settings)
    shown = ("length/mean", "ended", "score/mean", "kl/reference", "tokens/kept", "seconds")
    return Measured(
        durations(rows),
        {name: spent[1:] for name, spent in parts.items()},
        {name: [row[name] for row in rows] for name in shown if name in rows[0]},
    )


def common(place: Place) -> dict[str, Any]:
    """Settings that every training verb gets."""
    from tutelage import config

    return {
        "model": config.Model(place.model, dtype=place.dtype, device=place.device),  # type: ignore[arg-type]
        "out": place.out / "run",
        "seed": place.seed,
        "quiet": True,
        "profile": place.profile,
        "checkpoints": config.Checkpoints(every=0, keep=1),
    }

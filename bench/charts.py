"""Drawings of how the cost of a step grows: growth-AXIS.svg beside the results of a machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.jobs.growth import AXES, BASE
from tutelage.figures import Axis, Chart, Series, draw, standalone

NAMES = {"samples": "samples to a prompt", "prompt": "tokens of a prompt", "response": "tokens of a response"}
SIDES = {"ours": "Tutelage", "theirs": "TRL 1.16.0"}


def draw_growth(results: Path) -> None:
    """Write a drawing for each axis and each machine on which the growth was measured."""
    for path in results.glob("*/growth.json"):
        growth = json.loads(path.read_text())
        for axis in AXES:
            drawing = standalone(draw(chart(growth, axis)))
            (path.parent / f"growth-{axis}.svg").write_text(drawing, encoding="utf-8")


def chart(growth: Mapping[str, Any], axis: str) -> Chart:
    """The seconds of a step over one axis of the growth, one line for each side that was measured."""
    lines = []
    for colour, (side, label) in enumerate(SIDES.items()):
        if side in growth:
            points = [point for point in growth[side]["facts"]["points"] if point["axis"] == axis]
            x, y = (
                tuple(float(point["value"]) for point in points),
                tuple(point["seconds"] for point in points),
            )
            lines.append(Series(x, y, label, colour=colour))
    title = f"A GRPO step from {BASE}, 6.8M"
    return Chart(title, tuple(lines), Axis(NAMES[axis], low=0), Axis("seconds", low=0))

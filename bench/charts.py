"""How the cost of a step grows, drawn: growth-AXIS.svg beside the results of a machine."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from bench.jobs.growth import AXES, BASE
from tutelage.report.charts import Axis, Chart, Series
from tutelage.report.drawing import draw

NAMES = {
    "samples": "samples to a prompt",
    "prompt": "tokens of a prompt",
    "response": "tokens of a response",
}


def draw_growth(results: Path) -> None:
    """A drawing for each axis, of every machine on which the growth was measured."""
    for known in results.glob("*/growth.json"):
        _draw(json.loads(known.read_text()), known.parent)


def _draw(told: Mapping[str, Any], folder: Path) -> None:
    for axis in AXES:
        lines = [
            _line(told[side]["facts"]["points"], axis, label, colour)
            for colour, (side, label) in enumerate((("ours", "Tutelage"), ("theirs", "TRL 1.16.0")))
            if side in told
        ]
        chart = Chart(
            title=f"A GRPO step from {BASE}, 6.8M",
            series=tuple(lines),
            x=Axis(NAMES[axis], low=0),
            y=Axis("seconds", low=0),
        )
        (folder / f"growth-{axis}.svg").write_text(_alone(draw(chart)), encoding="utf-8")


def _line(points: list[dict[str, Any]], axis: str, label: str, colour: int) -> Series:
    there = [(float(point["value"]), point["seconds"]) for point in points if point["axis"] == axis]
    x, y = zip(*there, strict=True)
    return Series(x, y, label, colour=colour)


def _alone(drawing: str) -> str:
    """The drawing with its colours, so that it stands outside a page of the report."""
    templates = files("tutelage.report") / "templates"
    style = "".join((templates / name).read_text() for name in ("palette.css", "charts.css"))
    head, end, rest = drawing.partition(">")
    namespace = "" if "xmlns=" in head else ' xmlns="http://www.w3.org/2000/svg"'
    return f"{head}{namespace}{end}<style>{style}</style>{rest}\n"

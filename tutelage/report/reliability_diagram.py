"""Reliability diagram: predicted against observed shares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tutelage.base.config.files import write_atomically
from tutelage.base.nouns import counted
from tutelage.report.figures import Axis, Chart, Series, draw, standalone
from tutelage.report.json_files import Object, number, objects
from tutelage.stats.calibration import Calibration
from tutelage.stats.intervals import wilson


@dataclass(frozen=True)
class Bin:
    """A bin of a reliability diagram: comparisons with a predicted probability in [low, high], their mean prediction,
    observed share and number (at least one)."""

    low: float
    high: float
    predicted: float
    observed: float
    n: int


def bins(summary: Object) -> list[Bin]:
    """The non-empty bins of the calibration in a summary."""
    keys = ("low", "high", "predicted", "observed", "n")
    rows = [[number(row, key) for key in keys] for row in objects(summary, "calibration")]
    whole = [[value for value in row if value is not None] for row in rows]
    return [Bin(a, b, mean, share, int(n)) for a, b, mean, share, n in (r for r in whole if len(r) == 5) if n]


def reliability(bins: Sequence[Bin]) -> Chart:
    """Predicted against observed shares: disc sizes show counts, whiskers Wilson's 95 % intervals, and the diagonal
    perfect calibration. The axes start at a half if no prediction is below it."""
    most = max((b.n for b in bins), default=1)
    start = 0.5 if all(b.predicted >= 0.5 for b in bins) else 0.0
    spread = [wilson(b.observed * b.n, b.n) for b in bins]
    discs = Series(
        x=tuple(b.predicted for b in bins),
        y=tuple(b.observed for b in bins),
        label="bins of comparisons",
        mark="points",
        low=tuple(math.nan if s.low is None else s.low for s in spread),
        high=tuple(math.nan if s.high is None else s.high for s in spread),
        size=tuple(b.n / most for b in bins),
        notes=tuple(
            f"{counted(b.n, 'prediction')} of {b.low:.0%} to {b.high:.0%}\nmean {b.predicted:.1%}, came true "
            f"{b.observed:.1%}"
            for b in bins
        ),
    )
    diagonal = Series((start, 1.0), (start, 1.0), style="dashed", colour=5)
    x = Axis("predicted", percent=True, low=start, high=1.0)
    y = Axis("came true", percent=True, low=start, high=1.0)
    return Chart("Calibration: predicted against observed shares", (diagonal, discs), x, y)


def write_diagram(path: str, calibration: Calibration) -> None:
    """Write a reliability diagram as an SVG file. Raises TutelageError if it cannot be written."""
    chart = reliability(bins({"calibration": calibration.rows()}))
    write_atomically(Path(path), standalone(draw(chart)))

"""Figures for a paper: charts whose lines and points are named where they are, as SVG for a page and as files.

The charts, scales and marks are those of the report; here the names move from a legend to the ends of the lines.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from tutelage.lab.measuring import Z95
from tutelage.report import marks, svg
from tutelage.report.charts import Chart, Frame, Series, frame
from tutelage.report.drawing import axes, rule_line
from tutelage.report.plots import smoothed

LETTER, LINE = 6.2, 13.0
"""Width of a letter and height of a line of a name, in pixels."""
GAP = 7.0


@dataclass(frozen=True)
class Box:
    """Where a name stands: its left end, its baseline, its width."""

    x: float
    y: float
    width: float

    def meets(self, other: "Box") -> bool:
        """Whether two names overlap."""
        apart = self.x >= other.x + other.width or other.x >= self.x + self.width
        return not apart and abs(self.y - other.y) < LINE


def draw_named(chart: Chart, *, beside: bool = True, hover: bool = True) -> str:
    """The chart with every labelled series named at its last point, in its colour.

    `beside` keeps room at the right, where lines that all end there are named in a column; otherwise names stand near
    their points wherever there is room. Series of points are named at every point by their `notes`' first words.
    """
    at = _placed_frame(chart, beside)
    return svg.document(
        chart.width,
        chart.height,
        chart.title,
        axes(chart, at),
        *(marks.MARKS[series.mark](series, chart, at) for series in chart.series),
        *(rule_line(rule, chart, at) for rule in chart.rules),
        *_names(chart, at, beside),
        marks.slices(chart, at) if hover else "",
    )


def _placed_frame(chart: Chart, beside: bool) -> Frame:
    """The report's frame without room for a legend, and with room for names at the right."""
    at = frame(chart)
    widest = max((LETTER * len(series.label) for series in chart.series), default=0.0) if beside else 0.0
    top = 12.0 + (18.0 if chart.y.label else 0.0)
    return Frame(replace(at.x, end=chart.width - 14.0 - widest), replace(at.y, end=top))


def _names(chart: Chart, at: Frame, beside: bool) -> list[str]:
    """A name for every labelled series, at its last point that can be drawn."""
    ends = []
    for series in chart.series:
        known = marks.drawable(series, at)
        if series.label and known:
            ends.append((at.x(series.x[known[-1]]), at.y(series.y[known[-1]]), series))
    placed = column(ends, at) if beside else scattered(ends, at, chart)
    return [_name(box, end) for box, end in zip(placed, ends, strict=True)]


End = tuple[float, float, Series]


def _name(box: Box, end: End) -> str:
    x, y, series = end
    words = svg.text(box.x, box.y, series.label, f"end c{series.colour}")
    if abs(box.y - 4 - y) < LINE and abs(box.x - x) < 2 * GAP:
        return words
    edge = min(max(x, box.x), box.x + box.width)
    leader = svg.polyline([(x, y), (edge - (3 if edge == box.x else 0), box.y - 4)])
    return svg.tag("path", d=leader, class_=f"leader c{series.colour}") + words


def column(ends: Sequence[End], at: Frame) -> list[Box]:
    """Names at the right of the plot at the heights of their lines' ends, moved apart where they would overlap."""
    order = sorted(range(len(ends)), key=lambda i: ends[i][1])
    heights = _apart([ends[i][1] for i in order], at.y.end, at.y.start)
    boxes: dict[int, Box] = {}
    for i, y in zip(order, heights, strict=True):
        boxes[i] = Box(at.x.end + GAP, y + 4, LETTER * len(ends[i][2].label))
    return [boxes[i] for i in range(len(ends))]


def _apart(wanted: Sequence[float], top: float, foot: float) -> list[float]:
    """The heights nearest to the wanted ones (least squares) that keep their order, stay a line apart and, as long as
    there is room, inside the plot. Less the lines above it each height may only rise with the order, so that this is
    isotonic regression between bounds: pooled neighbours, cut at the bounds (Barlow et al. 1972).
    """
    blocks: list[tuple[float, int]] = []
    for rank, y in enumerate(wanted):
        mean, size = y - rank * LINE, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (other * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    last = max(top, foot - (len(wanted) - 1) * LINE)
    eased = [min(max(mean, top), last) for mean, size in blocks for _ in range(size)]
    return [y + rank * LINE for rank, y in enumerate(eased)]


def scattered(ends: Sequence[End], at: Frame, chart: Chart) -> list[Box]:
    """Names near their points: the first of some places around each where nothing stands yet."""
    taken: list[Box] = [Box(x - 4, y + 4, 8.0) for x, y, _ in ends]
    placed = []
    for number, (x, y, series) in enumerate(ends):
        width = LETTER * len(series.label)
        choices = [
            box for box in _around(x, y, width) if box.x >= at.x.start and box.x + width <= chart.width
        ]
        others = [box for i, box in enumerate(taken) if i != number]
        free = [box for box in choices if not any(box.meets(other) for other in others)]
        box = (free or choices or [Box(x + GAP, y + 4, width)])[0]
        taken.append(box)
        placed.append(box)
    return placed


def _around(x: float, y: float, width: float) -> Iterable[Box]:
    """Right, left, above, below, then the same further away."""
    for reach in (0.0, 14.0, 28.0, 44.0):
        yield Box(x + GAP + reach, y + 4, width)
        yield Box(x - GAP - reach - width, y + 4, width)
        for side in (-1, 1):
            for shift in (-width / 2, GAP, -width - GAP):
                yield Box(x + shift, y + 4 + side * (LINE + 1 + reach), width)


def averaged(
    x: Sequence[float], y: Sequence[float], error: Sequence[float], label: str, colour: int, *, window: int
) -> Series:
    """A running average with the 95 % band that the errors of its points give it. All [T]"""
    line, spread = smoothed(y, window), smoothed([e * e for e in error], window)
    half = [Z95 * (max(s, 0.0) / window) ** 0.5 for s in spread]
    low = tuple(a - h for a, h in zip(line, half, strict=True))
    high = tuple(a + h for a, h in zip(line, half, strict=True))
    return Series(tuple(x), line, label, colour=colour, low=low, high=high)


@cache
def style() -> str:
    """The colours and strokes of drawings, for light and dark."""
    report = files("tutelage.report").joinpath("templates")
    own = files("tutelage.lab").joinpath("templates", "figures.css")
    return "".join(
        [
            report.joinpath("palette.css").read_text(),
            report.joinpath("charts.css").read_text(),
            own.read_text(),
        ]
    )


def standalone(drawing: str) -> str:
    """A drawing as a file of its own: what only answers a pointer is left out, style and background come along."""
    still = re.sub(r'<rect[^>]*class="slice"[^>]*>.*?</rect>|<title>.*?</title>', "", drawing, flags=re.S)
    ground = "svg { background: var(--panel); font-family: system-ui, -apple-system, 'Segoe UI', Arial, sans-serif; }"
    opened, rest = still.split(">", 1)
    width, height = re.findall(r'viewBox="0 0 (\S+) (\S+)"', opened)[0]
    named = opened.replace(
        "<svg", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"', 1
    )
    return f"{named}><style>{style()}{ground}</style>{rest}\n"

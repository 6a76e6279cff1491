"""Series names next to their last points, moved apart to avoid overlaps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tutelage.report.figures import svg
from tutelage.report.figures.charts import Chart
from tutelage.report.figures.scales import NAME_LETTER, Frame

LINE, GAP = 13.0, 7.0
"""Height of a name, and its distance from its point, in pixels."""


@dataclass(frozen=True)
class End:
    """The last drawable point of a series, in pixels, and the label of the series."""

    x: float
    y: float
    label: str
    colour: int

    @property
    def width(self) -> float:
        """The width of the label."""
        return NAME_LETTER * len(self.label)


@dataclass(frozen=True)
class Box:
    """The position of a name: left end, baseline, width."""

    x: float
    y: float
    width: float

    def meets(self, other: "Box") -> bool:
        """Whether two names overlap."""
        beside = self.x >= other.x + other.width or other.x >= self.x + self.width
        return not beside and abs(self.y - other.y) < LINE


def labels(chart: Chart, at: Frame) -> str:
    """The names of all labelled series in their colours; empty for a chart with a legend."""
    if chart.names == "legend":
        return ""
    ends = [
        End(*at.place(series, indices[-1]), series.label, series.colour)
        for series in chart.series
        if series.label and (indices := at.drawable(series))
    ]
    boxes = column(ends, at) if chart.names == "ends" else scattered(ends, at, chart.width)
    return "".join(_label(box, end) for box, end in zip(boxes, ends, strict=True))


def _label(box: Box, end: End) -> str:
    """A name, with a leader line if it is away from its point."""
    words = svg.text(box.x, box.y, end.label, f"end c{end.colour}")
    if abs(box.y - 4 - end.y) < LINE and abs(box.x - end.x) < 2 * GAP:
        return words
    edge = min(max(end.x, box.x), box.x + box.width)
    leader = [(end.x, end.y), (edge - (3 if edge == box.x else 0), box.y - 4)]
    return svg.path(leader, f"leader c{end.colour}") + words


def column(ends: Sequence[End], at: Frame) -> list[Box]:
    """Names to the right of the plot at the heights of their lines' ends, at least one line apart."""
    order = sorted(range(len(ends)), key=lambda i: ends[i].y)
    heights = _spread([ends[i].y for i in order], at.y.end, at.y.start)
    boxes = [(i, Box(at.x.end + GAP, y + 4, ends[i].width)) for i, y in zip(order, heights, strict=True)]
    return [box for _, box in sorted(boxes, key=lambda numbered: numbered[0])]


def _spread(heights: Sequence[float], top: float, foot: float) -> list[float]:
    """The heights nearest to these (least squares) that keep their order, stay a line apart and, as long as
    there is room, inside the plot. A height less the lines above it may only rise with the order, so that this is
    isotonic regression between bounds: pooled neighbours, cut at the bounds (Barlow et al. 1972).
    """
    blocks: list[tuple[float, int]] = []
    for rank, y in enumerate(heights):
        mean, size = y - rank * LINE, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (other * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    last = max(top, foot - (len(heights) - 1) * LINE)
    eased = [min(max(mean, top), last) for mean, size in blocks for _ in range(size)]
    return [y + rank * LINE for rank, y in enumerate(eased)]


def scattered(ends: Sequence[End], at: Frame, width: float) -> list[Box]:
    """Names near their points: for each, the first candidate position that is free of names and points."""
    points = [Box(end.x - 4, end.y + 4, 8.0) for end in ends]
    boxes: list[Box] = []
    for index, end in enumerate(ends):
        inside = [box for box in _around(end) if box.x >= at.x.start and box.x + box.width <= width]
        others = [*points[:index], *points[index + 1 :], *boxes]
        free = (box for box in inside if not any(box.meets(other) for other in others))
        boxes.append(next(free, inside[0] if inside else Box(end.x + GAP, end.y + 4, end.width)))
    return boxes


def _around(end: End) -> Iterator[Box]:
    """Candidate positions right, left, above and below the point, then the same further away."""
    x, y, width = end.x, end.y, end.width
    for reach in (0.0, 14.0, 28.0, 44.0):
        yield Box(x + GAP + reach, y + 4, width)
        yield Box(x - GAP - reach - width, y + 4, width)
        for side in (-1, 1):
            for shift in (-width / 2, GAP, -width - GAP):
                yield Box(x + shift, y + 4 + side * (LINE + 1 + reach), width)

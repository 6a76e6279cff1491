"""Drawings of how costs grow: growth-AXIS.svg beside the results of a machine, both axes logarithmic."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from bench.curves import Curve, curves
from tutelage.report.figures import Axis, Chart, Series, draw, standalone


def draw_growth(results: Path) -> None:
    """Write a drawing for each axis and each machine on which growth was measured."""
    for folder in filter(Path.is_dir, results.iterdir()):
        for axis, group in groupby(curves(folder), lambda curve: curve.axis):
            drawing = standalone(draw(chart(list(group))))
            (folder / f"growth-{axis}.svg").write_text(drawing, encoding="utf-8")


def chart(group: Sequence[Curve]) -> Chart:
    """The curves of one axis with their exponents. A curve that stands alone has its peer beside it, and the needed
    work as a line through our last point."""
    first = group[0]
    lines = _beside_work(first) if len(group) == 1 else _together(group)
    title = first.what if len(group) == 1 else f"Growth over {first.label}"
    return Chart(title, lines, Axis(first.label, log=True), Axis("seconds", log=True), height=280)


def _beside_work(curve: Curve) -> tuple[Series, ...]:
    lines = [Series(curve.values, curve.ours, f"Tutelage: exponent {curve.of_ours}")]
    if curve.theirs:
        lines.append(Series(curve.values, curve.theirs, f"{curve.peer}: {curve.of_theirs}", colour=1))
    scale = curve.ours[-1] / curve.work[-1]
    work = tuple(scale * each for each in curve.work)
    return *lines, Series(curve.values, work, f"needed work: {curve.of_work}", colour=2, style="dashed")


def _together(group: Sequence[Curve]) -> tuple[Series, ...]:
    return tuple(
        Series(each.values, each.ours, f"{each.what}: exponent {each.of_ours}", colour=number)
        for number, each in enumerate(group)
    )

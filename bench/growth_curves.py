"""Measured growth as curves: the cost at each value of an axis, beside the work that is needed there; their exponents,
their table, and their drawings, growth-AXIS.svg beside the results of a machine."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from statistics import median
from typing import TypeAlias

from bench.jobs.growth import AXES
from bench.ranks import Setting
from tutelage.report.figures import Axis, Chart, Series, draw, standalone

MARGIN = 0.1
"""How much larger an exponent may be than that of the work before it is said to grow faster: what is measured twice
differs by about half of it."""
RANKS = "ranks"
PEOPLE = "people_growth.json"
"""The file with the growth of what people wait for."""
SERVED, ACCEPTED, SURVEYED = "a question served", "a vote accepted", "a survey"
EPISODES = "episodes_growth.json"
"""The file with the growth of rollouts of episodes."""
KEPT, AGAIN = "a rollout with kept contexts", "a rollout turn by turn"
LABELS = {
    "turns": "turns of an episode",
    "items": "items of a study",
    "votes": "votes on an item",
    "raters": "raters at once",
}
Work: TypeAlias = Callable[[float], float]


def constant(value: float) -> float:
    """Work that does not depend on the value."""
    return 1.0


def linear(value: float) -> float:
    """Work that is proportional to the value."""
    return value


FLOP, BYTES, TOKENS = 13.7e6, 12_288, 54
"""Operations of a token of 6.8M, bytes of its keys and values, and tokens of a turn of its episodes."""
BALANCE = 4.0
"""Operations of a core in the time in which it reads a byte from memory."""


def of_turns(turns: float) -> float:
    """Time of the tokens of an episode, in that of a token without a past: one of turn t reads the keys and values of
    the t turns before it. So it is linear with few turns, and quadratic with more than some ten."""
    past = BALANCE * BYTES * TOKENS / FLOP
    return turns + past * turns * (turns - 1) / 2


EXPECTED: dict[str, dict[str, Work]] = {
    "items": {SERVED: constant, ACCEPTED: constant, SURVEYED: linear},
    "votes": {SERVED: constant, ACCEPTED: constant, SURVEYED: constant},
    "raters": {SERVED: constant, ACCEPTED: constant},
    "turns": {KEPT: of_turns, AGAIN: of_turns},
}
"""The work of each measure: a question and a vote concern one item whatever the study, and a survey reads each item
once, with sums of its votes. Episodes have as many new tokens as turns, each of which reads its past."""


@dataclass(frozen=True)
class Exponents:
    """Over all points, and over the upper half of them, which constant costs flatten less."""

    whole: float
    upper: float

    def __str__(self) -> str:
        return f"{self.whole:.2f}, upper half {self.upper:.2f}"


def exponents(values: Sequence[float], costs: Sequence[float]) -> Exponents:
    """The exponents of costs over ascending values. The upper half has the middle one of an odd number of points, and
    two points at least."""
    half = min(len(values) // 2, len(values) - 2)
    return Exponents(exponent(values, costs), exponent(values[half:], costs[half:]))


def exponent(values: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost over log value by least squares. Raises ValueError where all values are the same."""
    x, y = ([math.log(each) for each in numbers] for numbers in (values, costs))
    if len(set(x)) < 2:
        raise ValueError("an exponent needs two different values")
    middle, height = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - middle) ** 2 for a in x)
    return sum((a - middle) * (b - height) for a, b in zip(x, y, strict=True)) / spread


@dataclass(frozen=True)
class Curve:
    """Seconds at each value. `axis` names the drawing, `label` what grows, `what` whose cost it is. `work` is what is
    needed at each value, in whatever unit: its exponent alone says something."""

    axis: str
    label: str
    what: str
    values: tuple[float, ...]
    ours: tuple[float, ...]
    work: tuple[float, ...]
    theirs: tuple[float, ...] = ()
    peer: str = ""

    @property
    def of_ours(self) -> Exponents:
        """By which our seconds grow."""
        return exponents(self.values, self.ours)

    @property
    def of_theirs(self) -> Exponents | None:
        """By which the peer's seconds grow; None where there is no peer."""
        return exponents(self.values, self.theirs) if self.theirs else None

    @property
    def of_work(self) -> Exponents:
        """By which the needed work grows."""
        return exponents(self.values, self.work)

    @property
    def excess(self) -> float:
        """By how much our exponent is larger than that of the work, over the upper half."""
        return self.of_ours.upper - self.of_work.upper

    @property
    def grows_faster(self) -> bool:
        """Whether our seconds grow faster than the work."""
        return self.excess > MARGIN


def curves(folder: Path) -> list[Curve]:
    """All curves of a machine: training, episodes, people, ranks."""
    points = (folder / name for name in (EPISODES, PEOPLE))
    return [*_of_jobs(folder), *chain.from_iterable(map(_of_points, points)), *_of_ranks(folder / "ranks.json")]


def _of_jobs(folder: Path) -> Iterator[Curve]:
    for axis in AXES:
        file = folder / f"growth-{axis.name}.json"
        told = json.loads(file.read_text()) if file.is_file() else {}
        if "ours" not in told:
            continue
        points = told["ours"]["facts"]["points"]
        values = [point["value"] for point in points]
        theirs = told["theirs"]["facts"]["points"] if "theirs" in told else []
        yield Curve(
            axis.name,
            axis.label,
            axis.about,
            tuple(values),
            tuple(point["seconds"] for point in points),
            tuple(point["work"] for point in points),
            tuple(p["seconds"] for p in theirs) if [p["value"] for p in theirs] == values else (),
            axis.at(axis.values[0]).peer,
        )


def _of_points(file: Path) -> Iterator[Curve]:
    told = json.loads(file.read_text())["axes"] if file.is_file() else {}
    for axis, points in told.items():
        values = tuple(point["value"] for point in points)
        for what, work in EXPECTED[axis].items():
            seconds = tuple(point["seconds"][what] for point in points)
            yield Curve(axis, LABELS[axis], what, values, seconds, tuple(map(work, values)))


def _of_ranks(file: Path) -> Iterator[Curve]:
    """Processor seconds of the busiest rank, since ranks may be more than processors; the work is shared by all."""
    told = json.loads(file.read_text()) if file.is_file() else {}
    for job, each in told.items():
        settings = {Setting.named(name): measured for name, measured in each["settings"].items()}
        found = {one.ranks: median(of["processor"]) for one, of in settings.items() if one.threads == 1}
        if len(found) > 1:
            work = tuple(1 / ranks for ranks in found)
            yield Curve(RANKS, "ranks", f"{job}, busiest rank", tuple(found), tuple(found.values()), work)


# The table -----------------------------------------------------------------------------------------------------------

HEAD = f"""Growth of costs: exponents of a power law fitted to all points and to the upper half, which constant costs
flatten less. The needed work is that of `bench/flops.py`; a question and a vote need the same in every study, a survey
reads every item once, and ranks share the work. *Faster*: our exponent over the upper half is more than {MARGIN:g}
above that of the work.

| over | of | from – to | ours | upper half | peer | upper half | work | upper half | faster than the work |
|---|---|---|---|---|---|---|---|---|---|
"""


def growth_table(folder: Path) -> list[str]:
    """The table of a machine, as parts of a page; none where no growth was measured."""
    rows = [_row(curve) for curve in curves(folder)]
    return [HEAD + "\n".join(rows) + "\n"] if rows else []


def _row(curve: Curve) -> str:
    ends = " – ".join(f"{value:,.0f}" for value in (curve.values[0], curve.values[-1]))
    fits = " | ".join(map(_cells, (curve.of_ours, curve.of_theirs, curve.of_work)))
    verdict = f"**yes, by {curve.excess:.2f}**" if curve.grows_faster else "no"
    return f"| {curve.label} | {curve.what} | {ends} | {fits} | {verdict} |"


def _cells(found: Exponents | None) -> str:
    return "– | –" if found is None else f"{found.whole:.2f} | {found.upper:.2f}"


# Drawings ------------------------------------------------------------------------------------------------------------


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

"""Measured growth as curves: the cost at each value of an axis, beside the work that is needed there."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TypeAlias

from bench.exponents import Exponents, exponents
from bench.jobs.growth import AXES
from bench.ranks import Setting

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

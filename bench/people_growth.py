"""How what people wait for grows with items, votes and raters: `python -m bench.people_growth [AXIS ...]`.

A study of each size is made on SQLite, and a new rater answers questions of it; over raters at once, all of them answer
for some seconds, each thinking for a while after every vote. Writes results/MACHINE/people_growth.json, its drawings,
and the table of all results.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median

from bench.growth_curves import ACCEPTED, EXPECTED, LABELS, PEOPLE, SERVED, SURVEYED
from bench.processes import RESULTS, machine_folder, revision

VALUES = {"items": (1_000, 2_000, 4_000, 8_000, 16_000), "votes": (1, 2, 4, 8, 16), "raters": (2, 4, 8, 16, 32, 64)}
ITEMS, VOTES, RATERS = 1_000, 2, 32
"""Of a study where they do not grow; raters are those who voted before."""
TIMES, SECONDS, PAUSE = 60, 8.0, 2.0
"""Questions of a point, seconds of a point with many raters at once, and seconds between a vote and a question."""


def study_point(items: int, votes: int, times: int = TIMES) -> dict[str, float]:
    """Median seconds of each measure in a study of so many items with so many votes on each."""
    from bench.people_load import Answer, add_rater, built, next_assignment, submit, survey

    with tempfile.TemporaryDirectory() as folder, built(folder, items, votes, RATERS) as (store, study):
        rater = add_rater(store, study.id, "new", kind="simulated").id
        spent: dict[str, list[float]] = {name: [] for name in EXPECTED["items"]}
        for _ in range(times):
            question = _timed(spent[SERVED], lambda: next_assignment(store, rater))
            assert question is not None
            _timed(spent[ACCEPTED], lambda number=question.id: submit(store, number, Answer("left", 2)))  # type: ignore[misc]
        for _ in range(max(2, times // 2)):
            _timed(spent[SURVEYED], lambda: survey(store, study.id))
        return {name: median(seconds) for name, seconds in spent.items()}


def _timed(spent: list[float], action: Callable[[], object]) -> object:
    started = time.perf_counter()
    told = action()
    spent.append(time.perf_counter() - started)
    return told


def raters_point(raters: int, seconds: float = SECONDS) -> dict[str, float]:
    """Median seconds of each measure while so many raters answer at once. Raises the first error of any of them."""
    from bench.people_load import add_rater, built, crowd

    with tempfile.TemporaryDirectory() as folder, built(folder, ITEMS, VOTES, RATERS) as (store, study):
        names = [add_rater(store, study.id, f"new {n}", kind="simulated").id for n in range(raters)]
        told = crowd(store, names, seconds, PAUSE)
        if told.failures:
            raise told.failures[0]
        return {SERVED: median(told.asked), ACCEPTED: median(told.answered)}


POINTS: dict[str, Callable[[int], dict[str, float]]] = {
    "items": lambda value: study_point(value, VOTES),
    "votes": lambda value: study_point(ITEMS, value),
    "raters": raters_point,
}


def main() -> None:
    """Measure the axes that were asked for, all without names, and keep what is known of the others."""
    parser = argparse.ArgumentParser(prog="python -m bench.people_growth", description=__doc__)
    parser.add_argument("axes", nargs="*", metavar="AXIS", choices=[*VALUES, []], help=", ".join(VALUES))
    asked = parser.parse_args().axes or VALUES
    write_points(PEOPLE, {axis: VALUES[axis] for axis in asked}, POINTS)


def write_points(
    name: str, values: Mapping[str, Sequence[int]], points: Mapping[str, Callable[[int], dict[str, float]]]
) -> None:
    """Measure the points of some axes, keep what a file of this machine has of others, and write the tables anew."""
    from bench.growth_curves import draw_growth
    from bench.machine import name_of
    from bench.table import write_table

    file = machine_folder(name_of("cpu")) / name
    known = json.loads(file.read_text())["axes"] if file.is_file() else {}
    for axis in values:
        known[axis] = []
        for value in values[axis]:
            known[axis].append({"value": value, "seconds": points[axis](value)})
            shown = ", ".join(f"{what} {s * 1e3:.2f} ms" for what, s in known[axis][-1]["seconds"].items())
            print(f"{value:,} {LABELS[axis]}: {shown}", flush=True)
    told = {"date": datetime.now(UTC).date().isoformat(), "revision": revision(), "axes": known}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told, indent=1) + "\n")
    write_table(RESULTS, RESULTS.with_name("RESULTS.md"))
    draw_growth(RESULTS)


if __name__ == "__main__":
    main()

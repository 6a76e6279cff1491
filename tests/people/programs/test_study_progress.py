"""What is waited for: when a condition holds, and what a look at a study finds."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.transport import Unanswered
from tutelage.people import Store, Unavailable
from tutelage.people.programs.study_progress import Condition, DatabaseSource, Progress, looks

from ..worlds import raters_of, study_of, work

PARTS = st.one_of(st.none(), st.integers(1, 9))
SHARES = st.one_of(st.none(), st.floats(0.01, 1.0))


class Script:
    """A study that goes on as it is written, errors included."""

    def __init__(self, *course: Progress | Exception) -> None:
        self.course: Iterator[Progress | Exception] = iter(course)

    def look(self, *, agreement: bool) -> Progress:
        step = next(self.course)
        if isinstance(step, Exception):
            raise step
        return step


@given(PARTS, PARTS, SHARES, st.integers(0, 9), st.integers(0, 9), SHARES)
@settings(max_examples=40, deadline=None)
def test_a_condition_holds_when_each_of_its_parts_does(
    votes: int | None, done: int | None, share: float | None, said: int, complete: int, found: float | None
) -> None:
    if votes is None and done is None and share is None:
        return
    progress = Progress(said, 9, complete, found)
    parts = [Condition(votes)] if votes is not None else []
    parts += [Condition(items_done=done)] if done is not None else []
    parts += [Condition(agreement=share)] if share is not None else []
    assert Condition(votes, done, share).holds(progress) == all(part.holds(progress) for part in parts)
    if len(parts) == 1 and votes is not None:
        assert parts[0].holds(progress) == (said >= votes)


def test_all_items_are_those_that_there_are_and_none_are_not_all() -> None:
    condition = Condition(items_done="all")
    found = [condition.holds(Progress(9, items, done)) for items, done in ((0, 0), (3, 2), (3, 3))]
    assert found == [False, False, True]


@for_each(
    [
        ({}, "condition"),
        ({"votes": 0}, "at least one"),
        ({"items_done": 0}, "all"),
        ({"items_done": "most"}, "all"),
        ({"agreement": 0.0}, "share"),
        ({"agreement": 70.0}, "share"),
        ({"agreement": float("nan")}, "share"),
    ]
)
def test_conditions_that_make_no_sense_are_refused(condition: dict[str, object], complaint: str) -> None:
    with pytest.raises(TutelageError, match=complaint):
        Condition(**condition)  # type: ignore[arg-type]


def test_looking_goes_on_until_the_condition_holds_whatever_fails_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    course = (Progress(1, 5, 0), Unavailable("locked"), Unanswered("away"), Progress(3, 5, 1), Progress(4, 5, 2))
    slept: list[float] = []
    with caplog.at_level(logging.WARNING, "tutelage"):
        found = list(looks(Script(*course), Condition(3), every=7.0, sleep=slept.append))
    assert found == [Progress(1, 5, 0), Progress(3, 5, 1)]
    assert slept == [7.0] * 3
    assert "locked" in caplog.text
    assert "away" in caplog.text
    with pytest.raises(TutelageError, match="revoked"):
        next(looks(Script(TutelageError("revoked")), Condition(3), every=7.0, sleep=slept.append))


def test_a_look_at_a_database_finds_what_the_study_has(store: Store) -> None:
    study = study_of(store, 3)
    source = DatabaseSource(store, study.id)
    assert source.look(agreement=True) == Progress(0, 3, 0, None)
    work(store, raters_of(store, study, 2))
    assert source.look(agreement=True) == Progress(6, 3, 3, 1.0)
    assert source.look(agreement=False) == Progress(6, 3, 3, None)

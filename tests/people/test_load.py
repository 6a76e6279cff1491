"""That nothing a rater waits for grows with the study. Full size: bench/people_load.py."""

import re
import statistics
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tutelage.people import (
    Answer,
    Store,
    add_items,
    add_rater,
    create_study,
    next_assignment,
    open_store,
    replan,
    submit,
    survey,
)
from tutelage.people.rater_progress import rater_progress
from tutelage.people.settings import Plan, Policy
from tutelage.people.store.bulk import AnswerRecord, write_answers

from .worlds import records

GROWING = ("item", "item_response", "prompt", "response", "assignment", "judgement", "event")
ITEMS, VOTES, RATERS = 2_000, 3, 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A study in which every item has its votes and room for one more."""
    store = open_store(tmp_path_factory.mktemp("large") / "study.sqlite")
    study = create_study(store, "large", plan=Plan(overlap=VOTES, gold_rate=0.0, repeat_rate=0.0))
    add_items(store, study.id, *records(ITEMS))
    names = [add_rater(store, study.id, f"rater {n}").name for n in range(RATERS)]
    told = [
        AnswerRecord(f"c{n}", names[(n + k * 7) % RATERS], (n % 2, 1 - n % 2), Answer("left", 1 + k, key=f"{n}/{k}"), n)
        for n in range(ITEMS)
        for k in range(VOTES)
    ]
    write_answers(store, study.id, told, source="test")
    yield store
    store.close()


def test_asking_and_answering_never_reads_a_table_through(large: Store) -> None:
    """Every statement on the way finds its rows by an index, in the order that it wants, whatever the policy: one that
    sorts reads all that it could have found."""
    statements: dict[str, object] = {}

    @sa.event.listens_for(large.engine, "before_cursor_execute")
    def remember(_: object, __: object, statement: str, parameters: object, *___: object) -> None:
        statements[statement] = parameters

    policies: tuple[Policy, ...] = ("finish_first", "random", "priority")
    for policy in policies:
        replan(large, 1, Plan(overlap=VOTES + 1, policy=policy, gold_rate=0.05, repeat_rate=0.2))
        statements.clear()
        for _ in range(20):
            question = next_assignment(large, 3)
            assert question is not None
            submit(large, question.id, Answer("left", 1))
        large.hints.clear()
        assert rater_progress(large, 3).left
        seen = dict(statements)
        assert len(seen) > 20
        with large.engine.connect() as connection:
            for statement, parameters in seen.items():
                if statement.startswith(("SELECT", "UPDATE")):
                    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()  # type: ignore[arg-type]
                    steps = [row[-1] for row in plan]
                    read_through = [s for s in steps if re.fullmatch(rf"SCAN ({'|'.join(GROWING)})\b.*", s)]
                    assert not read_through, (policy, statement, steps)
                    assert not [s for s in steps if "FOR ORDER BY" in s], (policy, statement, steps)


def test_the_next_question_takes_milliseconds_for_old_and_new_raters(large: Store) -> None:
    """Processor time, so that a busy machine makes no difference; the bound has room for a slow one."""
    replan(large, 1, Plan(overlap=VOTES + 1, gold_rate=0.0, repeat_rate=0.0))
    for rater in (add_rater(large, 1, "new").id, 5):
        spent = []
        for _ in range(15):
            start = time.thread_time()
            question = next_assignment(large, rater)
            spent.append(time.thread_time() - start)
            assert question is not None
            submit(large, question.id, Answer("left", 1))
        assert statistics.median(spent) < 0.025


def test_the_numbers_of_a_study_need_no_texts(large: Store) -> None:
    start = time.thread_time()
    seen = survey(large, 1)
    assert time.thread_time() - start < 0.1
    assert (seen.counts.items, seen.counts.started) == (ITEMS, ITEMS)
    assert seen.counts.answered >= ITEMS * VOTES

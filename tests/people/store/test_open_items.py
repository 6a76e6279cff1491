"""The search for an item and its statements in each database; counts of what is left against the questions asked."""

from dataclasses import replace

import pytest
from sqlalchemy.dialects import postgresql, sqlite

from tutelage.people import (
    Answer,
    Item,
    Store,
    Study,
    add_items,
    exclude,
    list_questions,
    next_assignment,
    release,
    set_overlap,
    submit,
)
from tutelage.people.store import open_items, schema
from tutelage.people.store.open_items import count_left, count_practice_left

from ..worlds import QUIET, asked, better, item_rows, novice_of, raters_of, records, study_of, work


def test_the_queue_repeats_the_condition_of_its_index_word_for_word_where_there_is_no_likely() -> None:
    """What SQLite makes of `likely` is seen by its plans in tests/people/test_load.py."""
    condition = str(schema.STARTED.compile(dialect=postgresql.dialect()))
    assert condition == "item.started = 1 AND item.room > 0"
    assert condition in str(open_items._NEXT_STARTED.compile(dialect=postgresql.dialect()))
    assert "likely(item.room > 0) AND" in str(open_items._NEXT_STARTED.compile(dialect=sqlite.dialect()))


def left(store: Store, study: Study, rater: int) -> int:
    with store.read() as connection:
        return count_left(connection, study.id, rater)


@pytest.mark.parametrize("policy", ["finish_first", "random", "priority"])
def test_so_many_questions_are_asked_when_nobody_else_is_there(store: Store, policy: str) -> None:
    study = study_of(store, 12, replace(QUIET, overlap=2, policy=policy))  # type: ignore[arg-type]
    prompts, completions, comparisons = records(4, start=12)
    rows = [replace(Item.of(each), round=2) for each in comparisons]
    add_items(store, study.id, prompts, completions, rows)  # type: ignore[arg-type]
    known = [replace(row, key=f"gold {row.key}") for row in item_rows(3, pool="gold", gold="b")]
    add_items(store, study.id, prompts, completions, known)
    anna, berta, cem, dora = raters_of(store, study, 4)
    assert left(store, study, anna) == 16
    for rater in (berta, cem, berta, cem, berta, anna, anna):
        submit(store, asked(store, rater).id, Answer("tie"))
    submit(store, asked(store, anna).id, Answer("skip", reason="no idea"))
    held = [asked(store, dora).id]
    held.append(next_assignment(store, dora, besides=held).id)  # type: ignore[union-attr]
    mine = asked(store, anna)
    free = next(q.key for q in list_questions(store, study.id) if q.key.startswith("c") and not q.leased)
    exclude(store, study.id, "item", free, "no good")
    expected = {rater: left(store, study, rater) for rater in (anna, dora)}
    release(store, dora)
    freed = left(store, study, anna) - expected[anna]
    assert 0 <= freed <= 2
    questions = work(store, [anna])
    assert mine.id in {question.id for question in questions}
    assert len(questions) == expected[anna] + freed
    assert left(store, study, anna) == 0


def test_what_others_complete_is_left_no_more(store: Store) -> None:
    study = study_of(store, 5)
    set_overlap(store, study.id, 1, [f"c{n}" for n in range(5)])
    anna, berta = raters_of(store, study, 2)
    question = asked(store, anna)
    assert (left(store, study, anna), left(store, study, berta)) == (5, 4)
    work(store, [berta])
    assert (left(store, study, anna), left(store, study, berta)) == (1, 0)
    submit(store, question.id, better(question))
    assert left(store, study, anna) == 0


def test_practice_is_counted_by_itself(store: Store) -> None:
    study = study_of(store, 3)
    novice = novice_of(store, study)

    def practice_left() -> int:
        with store.read() as connection:
            return count_practice_left(connection, study.id, novice)

    for count in (2, 1):
        question = asked(store, novice)
        assert (practice_left(), left(store, study, novice)) == (count, 3)
        submit(store, question.id, better(question))
    assert (practice_left(), left(store, study, novice)) == (0, 3)

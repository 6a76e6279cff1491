"""What a rater is told of the way that lies behind and ahead."""

import pytest
import sqlalchemy as sa

from tutelage.people import (
    Answer,
    Store,
    add_items,
    add_rater,
    create_study,
    get_rater,
    set_overlap,
    set_state,
    submit,
)
from tutelage.people.progress import COUNT_AGAIN_MS, PracticeProgress, RaterProgress, rater_progress
from tutelage.people.store.live_models import LiveModels, set_live_models

from .worlds import QUIET, Clock, asked, better, novice_of, raters_of, records, study_of


def test_answers_come_off_what_is_left_at_once_and_those_of_others_later(store: Store, clock: Clock) -> None:
    study = study_of(store, 9)
    set_overlap(store, study.id, 1, [f"c{n}" for n in range(9)])
    anna, berta = raters_of(store, study, 2)
    assert rater_progress(store, anna) == RaterProgress(0, None, 9)
    submit(store, asked(store, anna).id, Answer("tie"))
    submit(store, asked(store, anna).id, Answer("tie"))
    assert rater_progress(store, anna) == RaterProgress(2, None, 7)
    for _ in range(3):
        submit(store, asked(store, berta).id, Answer("tie"))
    assert rater_progress(store, anna) == RaterProgress(2, None, 7)
    clock.seconds += COUNT_AGAIN_MS / 1000
    assert rater_progress(store, anna) == RaterProgress(2, None, 9 - 2 - 3)


def test_a_count_serves_many_requests(store: Store, clock: Clock) -> None:
    study = study_of(store, 9)
    (anna,) = raters_of(store, study, 1)
    statements: list[str] = []

    @sa.event.listens_for(store.engine, "before_cursor_execute")
    def remember(_: object, __: object, statement: str, *___: object) -> None:
        statements.append(statement)

    for _ in range(5):
        assert rater_progress(store, anna).left == 9
    assert sum("count(" in statement for statement in statements) == 1
    clock.seconds += COUNT_AGAIN_MS / 1000
    rater_progress(store, anna)
    assert sum("count(" in statement for statement in statements) == 2


def test_practice_has_a_progress_of_its_own(store: Store) -> None:
    study = study_of(store, 3)
    novice = novice_of(store, study)
    for done in range(2):
        assert rater_progress(store, novice) == RaterProgress(0, None, None, PracticeProgress(done, 2))
        question = asked(store, novice)
        submit(store, question.id, better(question))
    assert get_rater(store, novice).state == "active"
    assert rater_progress(store, novice) == RaterProgress(0, None, 3)


def test_with_a_quota_only_the_answers_count(store: Store) -> None:
    study = study_of(store, 5)
    rater = add_rater(store, study.id, "anna", quota=2).id
    submit(store, asked(store, rater).id, Answer("skip", reason="no idea"))
    assert rater_progress(store, rater) == RaterProgress(0, 2)
    submit(store, asked(store, rater).id, Answer("tie"))
    assert rater_progress(store, rater) == RaterProgress(1, 2)


def test_a_quota_that_the_questions_cannot_fill_tells_what_is_left(store: Store) -> None:
    study = study_of(store, 3)
    rater = add_rater(store, study.id, "anna", quota=3).id
    submit(store, asked(store, rater).id, Answer("tie"))
    assert rater_progress(store, rater) == RaterProgress(1, 3)
    submit(store, asked(store, rater).id, Answer("skip", reason="no idea"))
    assert rater_progress(store, rater) == RaterProgress(1, 3, 1)
    submit(store, asked(store, rater).id, Answer("tie"))
    assert rater_progress(store, rater) == RaterProgress(2, 3, 0)


@pytest.mark.parametrize("why", ["live", "paused"])
def test_nobody_says_what_is_left_where_it_is_not_known(store: Store, why: str) -> None:
    study = create_study(store, "talk", plan=QUIET)
    add_items(store, study.id, *records(3))
    (anna,) = raters_of(store, study, 1)
    assert rater_progress(store, anna).left == 3
    if why == "live":
        set_live_models(store, study.id, LiveModels("first", "second"))
    else:
        set_state(store, study.id, "paused")
    assert rater_progress(store, anna) == RaterProgress(0, None)

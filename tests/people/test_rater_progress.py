"""What a rater is told of the progress, and quotas that the questions left cannot fill."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from tutelage.people import (
    Answer,
    Store,
    add_items,
    add_rater,
    change_rater,
    create_study,
    exclude,
    get_rater,
    set_overlap,
    set_state,
    submit,
)
from tutelage.people.rater_progress import (
    COUNT_AGAIN_MS,
    PracticeProgress,
    RaterProgress,
    Shortage,
    find_shortage,
    rater_progress,
)
from tutelage.people.recruitment import Recruitment, Visitor
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.store.visits import end_visit, enter, recruit

from .worlds import QUIET, Clock, asked, better, novice_of, raters_of, records, study_of, work


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


def test_a_shortage_is_what_quotas_ask_for_beyond_the_items(store: Store) -> None:
    study = study_of(store, 6)  # of two raters each
    anna, berta = (add_rater(store, study.id, name, quota=5).id for name in ("anna", "berta"))
    assert find_shortage(store, study) is None
    cem = add_rater(store, study.id, "cem", quota=4).id
    assert find_shortage(store, study) == Shortage(14, 12)  # there are places for twelve answers
    submit(store, asked(store, cem).id, Answer("tie"))
    asked(store, anna)  # what lies on a screen is asked for still
    assert find_shortage(store, study) == Shortage(13, 11)
    change_rater(store, cem, state="paused", quota=4)
    assert find_shortage(store, study) is None
    change_rater(store, berta, state="active", quota=9)
    assert find_shortage(store, study) == Shortage(14, 10)  # berta sees five: the sixth is full with anna's
    add_items(store, study.id, *records(6, start=6))
    assert find_shortage(store, study) is None


def test_whoever_is_asked_nothing_has_no_shortage(store: Store) -> None:
    study = study_of(store, 2)
    anna = add_rater(store, study.id, "anna", quota=9)
    assert find_shortage(store, study) == Shortage(9, 2)
    exclude(store, study.id, "rater", "anna", "careless")
    add_rater(store, study.id, "judge", kind="llm", quota=9)
    add_rater(store, study.id, "free")
    assert find_shortage(store, study) is None
    set_live_models(store, study.id, LiveModels("first", "second"))
    add_rater(store, study.id, "talker", quota=9)
    assert find_shortage(store, study) is None
    assert anna.quota == 9


def test_known_answers_and_repeats_are_no_shortage(store: Store) -> None:
    study = study_of(store, 9, replace(QUIET, gold_rate=0.1))
    add_rater(store, study.id, "anna", quota=10)
    assert find_shortage(store, study) is None


def test_a_visit_that_was_left_asks_for_nothing(store: Store) -> None:
    study = study_of(store, 2)
    recruit(store, study.id, Recruitment("sona", return_url="https://x.org/?survey_code=XXXX", answers=9))
    rater, _ = enter(store, study.id, Visitor("worker"))
    assert find_shortage(store, study) == Shortage(9, 2)
    end_visit(store, rater.id, "left")
    assert find_shortage(store, study) is None


@pytest.mark.parametrize("overlap", [1, 3])
def test_the_shortage_is_what_the_raters_are_not_asked(store: Store, overlap: int) -> None:
    study = study_of(store, 7)
    set_overlap(store, study.id, overlap, [f"c{n}" for n in range(7)])
    raters = [add_rater(store, study.id, f"rater {n}", quota=9).id for n in range(2)]
    shortage = find_shortage(store, study)
    assert shortage is not None
    assert shortage.left == len(work(store, raters))
    assert find_shortage(store, study) == Shortage(18 - shortage.left, 0)

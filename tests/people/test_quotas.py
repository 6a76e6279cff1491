"""Quotas that the questions left cannot fill."""

from dataclasses import replace

import pytest

from tutelage.people import Answer, Store, add_items, add_rater, change_rater, exclude, set_overlap, submit
from tutelage.people.platforms import Visitor
from tutelage.people.quotas import Shortage, find_shortage
from tutelage.people.recruiting import Recruitment
from tutelage.people.store.live_models import LiveModels, set_live_models
from tutelage.people.store.recruitments import recruit
from tutelage.people.store.visits import end_visit, enter

from .worlds import QUIET, asked, records, study_of, work


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

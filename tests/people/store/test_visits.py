"""Visits on both databases: who is let in, places that come back, second visits, codes, and the table to pay by."""

import csv
import io
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tutelage.people import Answer, Store, Study, add_items, get_rater, next_assignment, submit
from tutelage.people.recruitment import Recruitment, Visitor
from tutelage.people.remuneration import Finish, finish, payment_csv
from tutelage.people.store.visits import NotAdmitted, end_visit, enter, list_visits, recruit, visit_of, work_in

from ..worlds import Clock, asked, better, item_rows, places_of, records, study_of

TURK = Recruitment("mturk", answers=3, places=2, minutes=10, pay=12, currency="USD")


def person(name: str, submission: str = "") -> Visitor:
    return Visitor(name, "hit", submission or f"s-{name}")


def give(store: Store, rater: int, count: int, active_ms: int = 60_000) -> None:
    for _ in range(count):
        submit(store, asked(store, rater).id, Answer("left", 1, active_ms=active_ms))


def over(store: Store, rater: int) -> Finish:
    told = finish(store, rater)
    assert told is not None
    return told


@pytest.fixture
def study(store: Store) -> Study:
    made = study_of(store, 30)
    recruit(store, made.id, TURK)
    return made


def test_a_visit_is_over_with_its_last_answer_and_not_before(store: Store, study: Study) -> None:
    rater, _ = enter(store, study.id, person("W1"))
    assert rater.name == "mturk 1"
    give(store, rater.id, 2)
    going = over(store, rater.id)
    assert (going.visit.state, going.answered, going.wanted, going.code) == ("active", 2, 3, "")
    last = asked(store, rater.id)
    assert next_assignment(store, rater.id, besides=[last.id]) is None  # no fourth is fetched ahead
    submit(store, last.id, better(last))
    done = over(store, rater.id)
    assert (done.visit.state, done.answered, len(done.code)) == ("complete", 3, 10)
    assert over(store, rater.id).code == done.code


def test_places_are_counted_and_come_back(store: Store, study: Study, clock: Clock) -> None:
    first, _ = enter(store, study.id, person("W1"))
    second, _ = enter(store, study.id, person("W2"))
    with pytest.raises(NotAdmitted, match="taken"):
        enter(store, study.id, person("W3"))
    asked(store, first.id)
    end_visit(store, first.id, "left")
    third, _ = enter(store, study.id, person("W3"))
    assert places_of(store, study) == 2
    with pytest.raises(NotAdmitted, match="taken"):
        enter(store, study.id, person("W1"))
    clock.seconds += 11 * 60  # no sign of life of either
    again, _ = enter(store, study.id, person("W1"))
    assert again.id == first.id
    assert {visit.rater: visit.state for visit in list_visits(store, study.id)} == {
        first.id: "active", second.id: "left", third.id: "left",
    }  # fmt: skip


def test_places_are_never_given_twice(store: Store, study: Study) -> None:
    refused: list[str] = []

    def come(name: str) -> None:
        try:
            enter(store, study.id, person(name))
        except NotAdmitted:
            refused.append(name)

    threads = [threading.Thread(target=come, args=(f"W{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (places_of(store, study), len(refused)) == (2, 6)


def test_a_second_visit_is_refused_unless_it_is_wanted(store: Store, study: Study) -> None:
    rater, _ = enter(store, study.id, person("W1"))
    give(store, rater.id, 3)
    over(store, rater.id)
    assert enter(store, study.id, person("W1"))[0].id == rater.id  # the same submission looks at its code again
    with pytest.raises(NotAdmitted, match="already"):
        enter(store, study.id, person("W1", "another"))
    recruit(store, study.id, Recruitment("mturk", answers=2, again=True))
    assert enter(store, study.id, person("W1", "another"))[0].id == rater.id
    assert (over(store, rater.id).answered, over(store, rater.id).wanted) == (0, 2)
    give(store, rater.id, 2)
    assert over(store, rater.id).visit.state == "complete"
    assert get_rater(store, rater.id).tallies.answered == 5
    assert [visit.base for visit in list_visits(store, study.id)] == [0, 3]


@pytest.mark.parametrize("right", [True, False])
def test_the_practice_screens_out_with_a_code_of_its_own(store: Store, study: Study, right: bool) -> None:
    prompts, completions, _ = records(2, 0)
    practice = [replace(row, key=f"training-{row.key}") for row in item_rows(2, pool="training", gold="b")]
    add_items(store, study.id, prompts, completions, practice)
    recruit(store, study.id, Recruitment("prolific", code="DONE", screened_code="OUT", answers=3))
    rater, _ = enter(store, study.id, person("W1"))
    for _ in range(2):
        question = asked(store, rater.id)
        wrong = "right" if better(question).choice == "left" else "left"
        submit(store, question.id, better(question) if right else Answer(wrong, 1))
    told = over(store, rater.id)
    if right:
        assert (told.visit.state, told.answered, told.wanted) == ("active", 0, 3)
        give(store, rater.id, 3)
        assert over(store, rater.id).link.endswith("cc=DONE")
        return
    assert (told.visit.state, told.code) == ("screened", "OUT")
    assert told.link.endswith("cc=OUT")
    assert places_of(store, study) == 0
    with pytest.raises(NotAdmitted, match="already"):
        enter(store, study.id, person("W1", "another"))


def test_where_nothing_is_left_the_visit_is_complete(store: Store) -> None:
    study = study_of(store, 1)
    recruit(store, study.id, TURK)
    rater, _ = enter(store, study.id, person("W1"))
    give(store, rater.id, 1)
    assert over(store, rater.id).visit.state == "complete"


def test_the_table_to_pay_by_tells_each_visit(store: Store, study: Study) -> None:
    rater, _ = enter(store, study.id, person("=W1"))
    give(store, rater.id, 3)
    code = over(store, rater.id).code
    recruit(store, study.id, Recruitment("mturk", answers=1, again=True, pay=12))
    enter(store, study.id, person("=W1", "second"))
    submit(store, asked(store, rater.id).id, Answer("skip", reason="no"))
    first, second = csv.DictReader(io.StringIO(payment_csv(store, study.id)))
    assert (first["worker"], first["answers"], first["code"], first["state"]) == ("'=W1", "3", code, "complete")
    assert (first["active_minutes"], first["pay"]) == ("3.0", "0.6")  # 3 minutes at 12 an hour
    assert (first["started_utc"], first["ended_utc"]) == tuple(
        datetime.fromtimestamp(each // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for each in (list_visits(store, study.id)[0].started, list_visits(store, study.id)[0].ended or 0)
    )
    assert second["ended_utc"] == ""
    assert (second["answers"], second["skipped"], second["state"], second["code"]) == ("0", "1", "active", "")


def test_the_work_to_be_paid(store: Store, study: Study) -> None:
    whole, left, seconds = work_in(store, study.id)
    assert (whole.votes, left.votes, seconds) == (60, 60, None)
    rater, _ = enter(store, study.id, person("W1"))
    give(store, rater.id, 3)
    assert work_in(store, study.id)[1].votes == 57
    visit = visit_of(store, rater.id)
    assert visit is not None
    assert visit.worker == "W1"


def test_nobody_is_let_in_to_be_asked_nothing(store: Store) -> None:
    study = study_of(store, 2)
    recruit(store, study.id, replace(TURK, places=None, answers=1, again=True))
    for name in ("W1", "W2", "W3"):
        rater, _ = enter(store, study.id, person(name))
        give(store, rater.id, 1)
        assert over(store, rater.id).visit.state == "complete"
    late, _ = enter(store, study.id, person("W4"))
    again, _ = enter(store, study.id, person("W1", "second"))  # one place is left, for each of the two
    give(store, late.id, 1)
    done = over(store, again.id)
    assert (done.visit.state, done.answered, done.wanted) == ("complete", 0, 1)
    for who in (person("W5"), person("W2", "second")):
        with pytest.raises(NotAdmitted, match="question"):
            enter(store, study.id, who)
    assert enter(store, study.id, person("W4"))[0].id == late.id  # to see the code once more

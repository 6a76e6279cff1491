"""The owner's inbox: what comes into it, what takes it out, and what stays out."""

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import (
    Answer,
    Item,
    Plan,
    Store,
    Study,
    add_items,
    add_rater,
    close_notices,
    count_notices,
    count_study,
    list_events,
    list_notices,
    next_assignment,
    release,
    reopen_notice,
    reserve_item,
    submit,
    write_note,
)
from tutelage.people.store.inbox import RECOVERY, Alarm, alarm_of, notice_agreement, notice_round, set_alarm

from ..worlds import asked, item_rows, records, study_of, work

TWO = Plan(overlap=2, gold_rate=0, repeat_rate=0)


def said(store: Store, rater: int, answer: Answer) -> int:
    """Let a rater answer the next question; the assignment."""
    question = asked(store, rater)
    submit(store, question.id, answer)
    return question.id


def kinds(store: Store, study: Study) -> list[str]:
    return [notice.kind for notice in list_notices(store, study.id)]


def test_flags_skips_and_reasons_come_into_the_inbox_with_their_item_and_rater(store: Store) -> None:
    study = study_of(store, 6)
    anna = add_rater(store, study.id, "anna").id
    said(store, anna, Answer("left", 1))
    said(store, anna, Answer("left", 1, flags=("broken", "harmful"), reason="look <b>"))
    said(store, anna, Answer("skip", reason="no idea"))
    said(store, anna, Answer("tie", reason="both say the same"))
    write_note(store, anna, " The guidelines say nothing about code. ")
    note, skip, flag = list_notices(store, study.id)
    (reason,) = list_notices(store, study.id, kind="reason")  # which come only where they are asked for
    assert (flag.kind, flag.flags, flag.text) == ("flag", ("broken", "harmful"), "look <b>")
    assert (skip.kind, skip.text, skip.verdict) == ("skip", "no idea", "skip")
    assert (reason.kind, reason.text) == ("reason", "both say the same")
    assert (note.kind, note.text, note.item) == ("note", "The guidelines say nothing about code.", None)
    assert {each.name for each in (note, reason, skip, flag)} == {"anna"}
    assert flag.item is not None
    assert flag.asked == f"Question {flag.item.removeprefix('c')}?"
    assert dict(count_notices(store, study.id)) == {"flag": 1, "skip": 1, "note": 1, "reason": 1}
    assert list_notices(store, study.id, kind="skip") == (skip,)
    assert list_notices(store, study.id, item=flag.item) == (flag,)
    assert list_notices(store, study.id, rater=anna, limit=1, offset=1) == (skip,)


def test_closing_takes_out_of_the_inbox_and_can_be_undone(store: Store) -> None:
    study, other = study_of(store, 4), study_of(store, 1, name="other")
    anna = add_rater(store, study.id, "anna").id
    for _ in range(3):
        said(store, anna, Answer("skip", reason="no idea"))
    first = list_notices(store, study.id)[-1].id
    assert close_notices(store, other.id, [first]) == 0
    assert close_notices(store, study.id, [first], actor="boss") == 1
    (closed,) = list_notices(store, study.id, closed=True)
    assert (closed.id, closed.closed_by) == (first, "boss")
    assert count_notices(store, study.id)["skip"] == 2
    assert close_notices(store, study.id, kind="flag") == 0
    assert close_notices(store, study.id) == 2
    assert count_notices(store, study.id) == {}
    reopen_notice(store, study.id, first)
    assert kinds(store, study) == ["skip"]


def test_a_changed_answer_changes_its_notice(store: Store) -> None:
    study = study_of(store, 2)
    anna = add_rater(store, study.id, "anna").id
    place = said(store, anna, Answer("skip", reason="no idea"))
    submit(store, place, Answer("left", 1, flags=("broken",)))
    assert kinds(store, study) == ["flag"]
    submit(store, place, Answer("left", 1))
    assert kinds(store, study) == []
    (gone,) = list_notices(store, study.id, closed=True)
    assert gone.closed_by == "anna"
    submit(store, place, Answer("right", 1, reason="rather this one"))
    assert kinds(store, study) == []
    assert count_notices(store, study.id) == {"reason": 1}


@pytest.mark.parametrize(("kind", "role"), [("llm", "rater"), ("simulated", "rater"), ("human", "owner")])
def test_only_answers_of_people_come_into_the_inbox(lite: Store, kind: str, role: str) -> None:
    study = study_of(lite, 2)
    rater = add_rater(lite, study.id, "x", kind=kind, role=role).id  # type: ignore[arg-type]
    said(lite, rater, Answer("left", 1, flags=("broken",), reason="so it is"))
    assert kinds(lite, study) == []


def vote(store: Store, rater: int, choice: str, strength: int) -> None:
    """Vote for the response that the item calls a or b."""
    question = asked(store, rater)
    side = "left" if (question.order[0] == 0) == (choice == "a") else "right"
    submit(store, question.id, Answer(side, strength))


@pytest.mark.parametrize(
    ("votes", "overlap", "undecided"),
    [
        ("a1 b1", 2, True),
        ("a1 a1", 2, False),
        ("a1 b1", 3, False),  # one answer is still to come
        ("a1 a1 b1", 3, False),  # a majority
        ("a3 a1 b3", 3, True),  # much better, both of them
        ("a3 a3 b2", 3, False),
        ("a1 a1 b1 b1", 4, True),
    ],
)
def test_items_that_votes_do_not_decide_come_into_the_inbox_once(
    lite: Store, votes: str, overlap: int, undecided: bool
) -> None:
    study = study_of(lite, 1, Plan(overlap=overlap, gold_rate=0, repeat_rate=0))
    for number, each in enumerate(votes.split()):
        vote(lite, add_rater(lite, study.id, f"r{number}").id, each[0], int(each[1]))
    assert kinds(lite, study) == (["disagreement"] if undecided else [])


def test_an_adjudication_settles_a_disagreement(lite: Store) -> None:
    study = study_of(lite, 1, TWO)
    for name, choice in (("anna", "a"), ("bert", "b")):
        vote(lite, add_rater(lite, study.id, name).id, choice, 1)
    assert kinds(lite, study) == ["disagreement"]
    boss = add_rater(lite, study.id, "boss", role="owner")
    submit(lite, reserve_item(lite, boss.id, "c0").id, Answer("left", 1, reason="it is right"))
    assert kinds(lite, study) == []


def test_failed_practice_waits_for_the_owner(store: Store) -> None:
    study = study_of(store, 1)
    prompts, completions, _ = records(3)
    taught = [row for row in item_rows(3, pool="training", gold="b") if row.key != "c0"]
    add_items(store, study.id, prompts, completions, taught)
    for name, right in (("anna", True), ("bert", False)):
        rater = add_rater(store, study.id, name, training=True).id
        for _ in range(2):
            question = asked(store, rater)
            good = "left" if question.left.startswith("good") else "right"
            bad = "right" if good == "left" else "left"
            submit(store, question.id, Answer(good if right else bad, 1))
    (notice,) = list_notices(store, study.id)
    assert (notice.kind, notice.name, notice.text, notice.item) == ("practice", "bert", "0 of 2 right", None)


@pytest.mark.parametrize("text", ["", "  ", "x" * 2_001, "zero \0"])
def test_a_note_that_cannot_be_kept_is_refused(lite: Store, text: str) -> None:
    study = study_of(lite, 1)
    with pytest.raises(TutelageError):
        write_note(lite, add_rater(lite, study.id, "anna").id, text)
    assert kinds(lite, study) == []


def test_rankings_have_no_disagreements_by_side(lite: Store) -> None:
    from tutelage.people import create_study

    study = create_study(lite, "ranks", kind="ranking", plan=TWO)
    texts = [CompletionRecord(key, "p", key, "m") for key in "xyz"]
    add_items(lite, study.id, [Prompt("p", user("Q"))], texts, [Item("i", "p", ("x", "y", "z"))])
    for name in ("anna", "bert"):
        rater = add_rater(lite, study.id, name).id
        submit(lite, asked(lite, rater).id, Answer("ranked", content={"ranking": (1, 2, 3)}))
    assert kinds(lite, study) == []


@pytest.mark.parametrize("answers", [True, False])
def test_simulated_raters_take_the_place_of_no_person(store: Store, answers: bool) -> None:
    study = study_of(store, 3)
    robots = [add_rater(store, study.id, f"robot {n}", kind="simulated").id for n in range(2)]
    for robot in robots:
        while (question := next_assignment(store, robot)) is not None:
            if not answers:
                release(store, robot)
                break
            submit(store, question.id, Answer("left", 1))
    people = [add_rater(store, study.id, name).id for name in ("anna", "bert")]
    for person in people:
        count = 0
        while (question := next_assignment(store, person)) is not None:
            submit(store, question.id, Answer("left", 1))
            count += 1
        assert count == 3
    late = add_rater(store, study.id, "late robot", kind="simulated").id
    assert next_assignment(store, late) is None  # people have answered everything


def test_simulated_raters_beside_people_take_no_place(store: Store) -> None:
    study = study_of(store, 3)
    people = [add_rater(store, study.id, name).id for name in ("anna", "bert")]
    robots = [add_rater(store, study.id, f"robot {n}", kind="simulated").id for n in range(3)]
    assert [len(work(store, [robot])) for robot in robots] == [3, 3, 3]
    assert count_study(store, study.id).answered == 0
    assert [len(work(store, [person])) for person in people] == [3, 3]
    assert count_study(store, study.id).answered == 6


def texts(store: Store, study: int) -> list[str]:
    return [notice.text for notice in list_notices(store, study)][::-1]


def test_a_round_is_told_once_for_each_number_of_items(store: Store) -> None:
    study = study_of(store, 1).id
    assert [notice_round(store, study, 1, items) for items in (3, 3, 5, 3)] == [True, False, True, False]
    close_notices(store, study)
    assert not notice_round(store, study, 1, 5)
    assert notice_round(store, study, 2, 5)
    assert texts(store, study) == ["round 2 is full: its 5 items have all their answers"]


def test_agreement_is_told_when_it_falls_and_again_after_it_has_risen(store: Store) -> None:
    study = study_of(store, 1).id
    assert not notice_agreement(store, study, 0.1, 30)  # nobody asked
    set_alarm(store, study, 0.7, actor="boss")
    course = [0.8, 0.69, 0.5, 0.7, 0.69, 0.7 + RECOVERY, 0.69]
    assert [notice_agreement(store, study, each, 30) for each in course] == [
        False,
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    assert texts(store, study) == ["agreement is 69.0%, below 70%, on 30 items with two raters or more"] * 2
    assert alarm_of(store, study) == Alarm(0.7, True)
    set_alarm(store, study, None)
    assert alarm_of(store, study) is None
    assert not notice_agreement(store, study, 0.1, 30)
    events = list_events(store, study, action="alarm_set")
    assert [(event.actor, event.detail["bound"]) for event in events] == [("owner", None), ("boss", 0.7)]


@pytest.mark.parametrize("bound", [0.0, -0.1, 1.1, float("nan")])
def test_a_bound_that_is_no_share_is_refused(lite: Store, bound: float) -> None:
    study = study_of(lite, 1).id
    with pytest.raises(TutelageError, match="share"):
        set_alarm(lite, study, bound)
    assert alarm_of(lite, study) is None

"""Answers: what is stored, what is refused, and that nothing is lost, doubled or edited."""

import json
import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Presentation,
    Store,
    Tallies,
    add_items,
    add_rater,
    change_rater,
    count_study,
    create_study,
    feedback,
    get_rater,
    list_events,
    list_judgements,
    list_questions,
    list_votes,
    next_assignment,
    present,
    recent_answers,
    submit,
)
from tutelage.people.kinds import RANKING
from tutelage.people.kinds.kind import Screen
from tutelage.people.kinds.ranking import ranked
from tutelage.people.store import schema

from .worlds import QUIET, SECRET, Clock, asked, better, raters_of, records, study_of, work


def one_question(store: Store, **presentation: object) -> tuple[int, int, Assignment]:
    """The numbers of a study and a rater, and the question on the screen."""
    study = create_study(store, "tutoring", plan=QUIET, secret=SECRET, presentation=Presentation(**presentation))  # type: ignore[arg-type]
    add_items(store, study.id, *records(3))
    (rater,) = raters_of(store, study, 1)
    return study.id, rater, asked(store, rater)


@pytest.mark.parametrize("choice", ["left", "right"])
def test_what_was_displayed_and_what_it_means_are_both_stored(store: Store, choice: str) -> None:
    study_id, _, question = one_question(store, criteria=("clear", "accurate", "engaging"))
    criteria = {"clear": "left", "accurate": "right", "engaging": "tie"}
    answer = Answer(
        choice, 3, criteria=criteria, flags=("identity",), reason="because", active_ms=7, wall_ms=9, changes=2
    )  # type: ignore[arg-type]
    submit(store, question.id, answer)
    (vote,) = list_votes(store, study_id)
    place = 0 if choice == "left" else 1
    said = question.texts[place]
    texts = {"a": "bad", "b": "good"}
    assert said.startswith(texts[vote.verdict])
    assert vote.displayed == {"choice": choice, "strength": 3, "criteria": criteria}
    assert question.texts[0].startswith(texts[vote.criteria["clear"]])
    assert question.texts[1].startswith(texts[vote.criteria["accurate"]])
    assert vote.criteria["engaging"] == "tie"
    assert (vote.strength, vote.flags, vote.reason, vote.active_ms, vote.wall_ms, vote.changes) == (
        3, ("identity",), "because", 7, 9, 2,
    )  # fmt: skip
    (record,) = list_judgements(store, study_id)
    assert question.left.startswith(texts[record.left])
    assert (record.comparison_id, record.rater, record.seconds) == (question.item, vote.pseudonym, 0.007)


@given(order=st.permutations(range(4)), ranks=st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_a_ranking_keeps_every_response_with_its_rank(order: list[int], ranks: list[int]) -> None:
    said = RANKING.canonical(ranked(tuple(ranks)), tuple(order), Screen(4, 3))
    found = said.content["ranking"]
    assert isinstance(found, list)
    assert all(found[response] == ranks[place] for place, response in enumerate(order))


def test_the_same_key_twice_is_one_judgement_and_one_receipt(store: Store) -> None:
    study_id, rater, question = one_question(store)
    answer = better(question)
    first = submit(store, question.id, answer)
    again = submit(store, question.id, answer)
    changed = submit(store, question.id, replace(answer, choice="tie", strength=0))
    assert not first.known
    assert again == changed == replace(first, known=True)
    assert len(list_votes(store, study_id, every_revision=True)) == 1
    assert get_rater(store, rater).tallies.answered == 1


def test_one_answer_sent_by_many_threads_at_once_is_one_judgement(store: Store) -> None:
    study_id, _, question = one_question(store)
    answer, receipts = better(question), []
    threads = [threading.Thread(target=lambda: receipts.append(submit(store, question.id, answer))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({receipt.judgement for receipt in receipts}) == 1
    assert len(receipts) == 8
    assert len(list_votes(store, study_id, every_revision=True)) == 1


def test_a_key_belongs_to_one_question(store: Store) -> None:
    study_id, rater, question = one_question(store)
    answer = better(question)
    submit(store, question.id, answer)
    other = asked(store, rater)
    with pytest.raises(TutelageError, match="used"):
        submit(store, other.id, answer)
    assert len(list_votes(store, study_id)) == 1


def test_a_change_of_mind_is_a_revision_on_top(store: Store) -> None:
    study_id, rater, question = one_question(store)
    submit(store, question.id, Answer("left", 3, reason="first thought"))
    (given_before,) = recent_answers(store, rater)
    assert given_before.assignment.texts == question.texts
    assert (given_before.answer.choice, given_before.answer.reason) == ("left", "first thought")
    receipt = submit(store, given_before.assignment.id, Answer("right", 1))
    assert receipt.revision == 2
    old, new = list_votes(store, study_id, every_revision=True)
    assert (old.latest, new.latest) == (False, True)
    assert (old.reason, old.displayed["choice"], new.displayed["choice"]) == ("first thought", "left", "right")
    assert list_votes(store, study_id) == (new,)
    tallies = get_rater(store, rater).tallies
    assert (tallies.answered, tallies.left_chosen, tallies.right_chosen) == (1, 0, 1)
    assert recent_answers(store, rater)[0].answer.choice == "right"


def test_a_skip_gives_the_item_back_and_can_become_an_answer(store: Store) -> None:
    study_id, rater, question = one_question(store)
    submit(store, question.id, Answer("skip", reason="I do not know the subject"))
    (item,) = list_questions(store, study_id, keys=[question.item])
    assert (item.answered, item.skipped) == (0, 1)
    submit(store, question.id, better(question))
    (item,) = list_questions(store, study_id, keys=[question.item])
    assert (item.answered, item.skipped, item.counts["b"]) == (1, 0, 1)
    submit(store, question.id, Answer("skip", flags=("personal data",)))
    (item,) = list_questions(store, study_id, keys=[question.item])
    assert (item.answered, item.skipped, item.counts["b"]) == (0, 1, 0)
    tallies = get_rater(store, rater).tallies
    assert (tallies.answered, tallies.skipped, tallies.flagged) == (0, 1, 1)
    assert [event.detail["flags"] for event in list_events(store, study_id, action="flagged")] == [["personal data"]]


def test_ties_and_both_bad_are_different_things(store: Store) -> None:
    study_id, rater, question = one_question(store)
    submit(store, question.id, Answer("tie"))
    other = asked(store, rater)
    submit(store, other.id, Answer("both_bad"))
    counts = {item.key: item.counts for item in list_questions(store, study_id)}
    assert counts[question.item] == {"a": 0, "b": 0, "tie": 1, "both_bad": 0}
    assert counts[other.item] == {"a": 0, "b": 0, "tie": 0, "both_bad": 1}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (Answer("left", 0), "strength 0"),
        (Answer("left", 4), "strength 4"),
        (Answer("tie", 1), "strength 1"),
        (ranked((1, 2)), "'ranked'"),
        (Answer("left", 1, {"ranking": (1, 2)}), "'ranking'"),
        (Answer("left", 1, criteria={"beauty": "left"}), "criteria"),
        (Answer("skip"), "reason"),
        (Answer("left", 1, reason="x" * 20_001), "20,001 characters"),
        (Answer("left", 1, key=""), "idempotency"),
        (Answer("left", 1, active_ms=-1), "negative"),
        (Answer("left", 1, flags=("x",) * 21), "20 flags"),
        (Answer("left", 1, flags=("x" * 101,)), "flag.*name"),
        (Answer("nonsense", 1), "'nonsense'"),
    ],
)
def test_impossible_answers_are_refused_and_leave_nothing(lite: Store, answer: Answer, complaint: str) -> None:
    study_id, rater, question = one_question(lite)
    with pytest.raises(TutelageError, match=complaint):
        submit(lite, question.id, answer)
    assert not list_votes(lite, study_id, every_revision=True)
    assert asked(lite, rater).id == question.id


def test_the_scale_is_the_studys(lite: Store) -> None:
    _, _, question = one_question(lite, scale=1)
    with pytest.raises(TutelageError, match="1 to 1"):
        submit(lite, question.id, Answer("left", 2))
    submit(lite, question.id, Answer("left", 1))


def test_nobody_answers_for_another(store: Store) -> None:
    study_id, _, question = one_question(store)
    stranger = add_rater(store, study_id, "stranger").id
    with pytest.raises(TutelageError, match="exist"):
        submit(store, question.id, better(question), rater_id=stranger)
    with pytest.raises(TutelageError, match="exist"):
        submit(store, 999_999, better(question))


def test_an_answer_belongs_to_the_version_that_was_shown(store: Store) -> None:
    study_id, rater, question = one_question(store)
    present(store, study_id, Presentation(question="Which one is kinder?"))
    submit(store, question.id, better(question))
    later = asked(store, rater)
    submit(store, later.id, better(later))
    assert [vote.version for vote in list_votes(store, study_id)] == [1, 2]
    assert present(store, study_id, Presentation(question="Which one is kinder?")).version == 2


def test_training_explains_after_the_answer_and_only_then(store: Store) -> None:
    study = create_study(store, "school", plan=QUIET)
    prompts, completions, comparisons = records(1)
    golds = [replace(Item.of(comparisons[0]), pool="training", gold="b", explanation="The other one is wrong.")]
    add_items(store, study.id, prompts, completions, golds)  # type: ignore[arg-type]
    rater = add_rater(store, study.id, "novice", training=True).id
    question = asked(store, rater)
    assert feedback(store, question.id) is None
    submit(store, question.id, better(question))
    told = feedback(store, question.id)
    assert told is not None
    assert (told.expected, told.right) == (better(question).choice, True)
    assert told.explanation == "The other one is wrong."


def test_practice_is_no_part_of_the_counts_of_a_rater_nor_of_the_quota(store: Store) -> None:
    study = study_of(store, 3)
    prompts, completions, comparisons = records(2, start=5)
    practice = [replace(Item.of(each), pool="training", gold="b") for each in comparisons]
    add_items(store, study.id, prompts, completions, practice)  # type: ignore[arg-type]
    rater = add_rater(store, study.id, "novice", training=True, quota=2).id
    for _ in range(2):
        submit(store, asked(store, rater).id, Answer("left", 1, flags=("other",), reason="x", active_ms=100))
    assert get_rater(store, rater).tallies == Tallies()
    change_rater(store, rater, state="active", quota=2)
    for _ in range(2):
        submit(store, asked(store, rater).id, Answer("tie", active_ms=100))
    assert get_rater(store, rater).tallies == Tallies(answered=2, ties=2, timed=2, active_ms=200)
    assert next_assignment(store, rater) is None


def test_nothing_that_was_said_is_ever_changed(store: Store, clock: Clock) -> None:
    """Whatever else happens, a judgement's row stays as it was written, but for being superseded or excluded."""
    study_id, _, question = one_question(store)
    submit(store, question.id, better(question))

    def said() -> list[dict[str, object]]:
        with store.read() as connection:
            rows = connection.execute(sa.select(schema.judgement).order_by(schema.judgement.c.id)).mappings().all()
        return [{k: v for k, v in row.items() if k not in ("latest", "excluded")} for row in rows]

    before = said()
    submit(store, question.id, Answer("both_bad"))
    work(store, [add_rater(store, study_id, "other").id])
    clock.seconds += 10_000
    assert said()[: len(before)] == before


def test_counters_equal_what_they_count(store: Store) -> None:
    study = study_of(store, 6, replace(QUIET, overlap=2))
    raters = raters_of(store, study, 3)
    answers = iter(("left", "right", "tie", "both_bad", "skip", "left") * 6)

    def mixed(question: Assignment) -> Answer:
        choice = next(answers)
        return Answer(choice, 1 if choice in ("left", "right") else 0, reason="why", active_ms=100)  # type: ignore[arg-type]

    work(store, raters, mixed)
    votes = list_votes(store, study.id)
    for question in list_questions(store, study.id):
        mine = [vote.verdict for vote in votes if vote.item == question.key and not vote.extra]
        assert dict(question.counts) == {name: mine.count(name) for name in ("a", "b", "tie", "both_bad")}
        assert question.skipped == mine.count("skip")
        assert question.answered == len(mine) - mine.count("skip")
    for rater_id in raters:
        rater = get_rater(store, rater_id)
        own = [vote for vote in votes if vote.rater == rater.name]
        left = [v for v in own if v.verdict in "ab" and v.sides[0] == "ab".index(v.verdict)]
        assert rater.tallies.left_chosen == len(left)
        assert rater.tallies.longer_chosen == sum(vote.verdict == "a" for vote in own)
        assert rater.tallies.ties == sum(vote.verdict == "tie" for vote in own)
        assert rater.tallies.skipped == sum(vote.verdict == "skip" for vote in own)
        assert rater.tallies.active_ms == 100 * len(own)
    counts = count_study(store, study.id)
    assert (counts.judgements, counts.items) == (len(votes), 6)
    assert counts.answered == sum(question.answered for question in list_questions(store, study.id))


def test_assignments_tell_nothing_that_a_rater_must_not_know(lite: Store) -> None:
    study = study_of(lite, 2, replace(QUIET, gold_rate=0.5))
    prompts, completions, comparisons = records(1, start=9)
    add_items(lite, study.id, prompts, completions, [replace(Item.of(comparisons[0]), pool="gold", gold="b")])
    questions = work(lite, raters_of(lite, study, 3))
    assert "c9" in {question.item for question in questions}
    for question in questions:
        told = json.dumps(vars(question), default=str)
        assert "model" not in told
        assert "gold" not in told


@pytest.mark.parametrize("text", ["zero \x00 byte", "half \ud800 a pair"])
def test_texts_that_cannot_be_stored_are_refused_in_a_sentence(store: Store, text: str) -> None:
    study_id, _, question = one_question(store)
    for answer in (replace(better(question), reason=text), replace(better(question), flags=(text,))):
        with pytest.raises(TutelageError, match="remove"):
            submit(store, question.id, answer)
    prompts, completions, comparisons = records(1, start=7)
    with pytest.raises(TutelageError, match=r"p7a.*remove"):
        add_items(store, study_id, prompts, [replace(completions[0], text=text), completions[1]], comparisons)


@pytest.mark.parametrize(
    "text", ["日本語", "🙂" * 50, "<script>alert(1)</script>", "a\u0301 \u200f\r\n\t", "'; DROP TABLE vote"]
)
def test_any_text_comes_back_as_it_was(store: Store, text: str) -> None:
    study = create_study(store, text, plan=QUIET)
    prompts, completions, comparisons = records(1)
    add_items(store, study.id, prompts, [replace(c, text=text + c.id) for c in completions], comparisons)
    rater = raters_of(store, study, 1)[0]
    question = asked(store, rater)
    assert sorted(question.texts) == [text + "p0a", text + "p0b"]
    submit(store, question.id, Answer("left", 1, reason=text, client=text[:90]))
    assert list_votes(store, study.id)[0].reason == text

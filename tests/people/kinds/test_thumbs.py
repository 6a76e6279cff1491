"""Single responses and pairs in one study: what an answer says, what raters make of it, and what is exported."""

import json
from pathlib import Path
from random import Random

import pytest
from offenders import for_each

from tests.people.worlds import QUIET
from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_unpaired
from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import (
    Answer,
    Item,
    Selection,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    get_rater,
    list_questions,
    next_assignment,
    submit,
)
from tutelage.people.answers import Canonical
from tutelage.people.export import export_study
from tutelage.people.kinds.kind import PairVerdict, ResponseValues, Screen
from tutelage.people.kinds.pair import PAIR
from tutelage.people.kinds.thumbs import THUMBS
from tutelage.people.simulated_raters import ReliableRater
from tutelage.people.statistics.cache import Keeper
from tutelage.people.training_data import label_study

SINGLE, TWO = Screen(1, 1), Screen(2, 1)


@pytest.mark.parametrize(("choice", "verdict"), [("good", "a"), ("bad", "b")])
def test_an_answer_about_one_response_is_a_verdict_on_it(choice: str, verdict: str) -> None:
    THUMBS.check(Answer(choice), SINGLE)
    said = THUMBS.canonical(Answer(choice), (0,), SINGLE)
    assert list(THUMBS.pairs(said, 1)) == [PairVerdict(0, 0, verdict, 0)]
    assert said.verdict == verdict
    assert THUMBS.words(said) == THUMBS.pressed({"choice": choice}) == choice
    read = THUMBS.read({"verdict": verdict}, SINGLE)
    assert read is not None
    assert read.choice == choice


@for_each([Answer("left", 1), Answer("tie"), Answer("right", 1), Answer("both_bad")])
def test_an_answer_about_two_is_that_of_a_pair(answer: Answer) -> None:
    THUMBS.check(answer, TWO)
    said = THUMBS.canonical(answer, (1, 0), TWO)
    assert said == PAIR.canonical(answer, (1, 0), TWO)
    assert list(THUMBS.pairs(said, 2)) == list(PAIR.pairs(said, 2))
    with pytest.raises(TutelageError, match=answer.choice):
        THUMBS.check(answer, SINGLE)


def test_nothing_follows_from_a_skipped_question() -> None:
    for screen in (SINGLE, TWO):
        said = THUMBS.canonical(Answer("skip", reason="?"), tuple(range(screen.places)), screen)
        assert said == Canonical("skip", 0, {}, {})
        assert not list(THUMBS.pairs(said, screen.places))
    with pytest.raises(TutelageError, match="good"):
        THUMBS.check(Answer("good"), TWO)


def test_simulated_raters_find_good_what_has_a_high_utility() -> None:
    rater, rng = ReliableRater("anna", 1.0), Random(0)
    choices = [THUMBS.simulate(ResponseValues((gold,), (3,)), SINGLE, rater, rng, 0).choice for gold in (4.0, -4.0) * 5]
    assert choices == ["good", "bad"] * 5


def mixed(store: Store) -> Study:
    """A study with a single response that is good, another that is bad, and a pair of them."""
    study = create_study(store, "use", kind="thumbs", plan=QUIET, secret="5a" * 32)
    completions = [CompletionRecord(name, "p", f"{name} text", "m") for name in ("good", "bad")]
    items = [Item("one", "p", ("good",)), Item("two", "p", ("bad",)), Item("pair", "p", ("bad", "good"))]
    add_items(store, study.id, [Prompt("p", user("?"))], completions, items)
    return study


def answer_well(store: Store, rater: int) -> None:
    while (question := next_assignment(store, rater)) is not None:
        if len(question.texts) == 1:
            submit(store, question.id, Answer(question.texts[0].partition(" ")[0]))
        else:
            submit(store, question.id, Answer("left" if question.left.startswith("good") else "right", 1))


def test_raters_are_asked_both_and_the_rows_are_of_both_kinds(lite: Store, folder: Path) -> None:
    study = mixed(lite)
    for name in ("anna", "ben"):
        answer_well(lite, add_rater(lite, study.id, name).id)
    labelled = label_study(lite, study.id, Selection())
    assert [row.preference.chosen for row in labelled.rows] == ["good text"]
    assert {row.question.key: row.answer.label for row in labelled.rated} == {"one": True, "two": False}
    assert {row.question.key: row.label.counts["a" if row.answer.label else "b"] for row in labelled.rated} == {
        "one": 2,
        "two": 2,
    }
    assert labelled.fates["used"] == len(labelled.votes) == 6
    statistics = Keeper(lite).whole(study).value
    assert statistics is not None
    assert statistics.statistics.agreement.value == 1
    tallies = get_rater(lite, 1).tallies
    assert tallies.answered == 3
    assert tallies.left_chosen + tallies.right_chosen == 1  # a single response has no side
    assert [question.counts["a"] for question in list_questions(lite, study.id)] == [2, 0, 0]

    export_study(lite, study.id, folder / "out")
    rows = [json.loads(line) for line in (folder / "out" / "unpaired.jsonl").read_text().splitlines()]
    assert {row["item_id"]: row["label"] for row in rows} == {"one": True, "two": False}
    assert all((row["p_good"] > 0.5) == row["label"] for row in rows)
    read = load_unpaired(folder / "out" / "unpaired.jsonl").records
    assert {each.completion: each.label for each in read} == {"good text": True, "bad text": False}

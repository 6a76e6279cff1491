"""Better responses and marked words: stored as they were meant, refused where they cannot be, revised on top."""

from dataclasses import asdict, replace

import pytest

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Assignment,
    Presentation,
    Store,
    add_items,
    create_study,
    list_votes,
    present,
    recent_answers,
    submit,
)
from tutelage.people.answers import (
    Correction,
    Span,
    as_displayed,
    canonical,
    check_categories,
    correction_from,
    correction_row,
    span_rows,
    spans_from,
)

from .worlds import QUIET, SECRET, asked, raters_of, records

SHOWN = Presentation(corrections=True, spans=("fact", "tone"))


def one_question(store: Store, shown: Presentation = SHOWN) -> tuple[int, int, Assignment]:
    """The numbers of a study and a rater, and the question on the screen."""
    study = create_study(store, "tutoring", plan=QUIET, secret=SECRET, presentation=shown)
    add_items(store, study.id, *records(3))
    (rater,) = raters_of(store, study, 1)
    return study.id, rater, asked(store, rater)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 0, 1)])
def test_displayed_and_canonical_are_inverse(order: tuple[int, ...]) -> None:
    for place, response in enumerate(order):
        span = Span(place, 2, 5, "fact")
        assert canonical(span, order).response == response
        assert as_displayed(canonical(span, order), order) == span
    assert canonical(Correction("new"), order) == as_displayed(Correction("new"), order) == Correction("new")


def test_what_was_said_is_about_the_response_wherever_it_stood(store: Store) -> None:
    study_id, rater, question = one_question(store)
    good = [text.startswith("good") for text in question.texts].index(True)
    first = Answer("tie", correction=Correction("Better: \U0001f642", good), spans=(Span(good, 0, 4, "tone"),))
    submit(store, question.id, first)
    (vote,) = list_votes(store, study_id)
    assert vote.correction == Correction("Better: \U0001f642", 1)  # the good one is b
    assert vote.spans == (Span(1, 0, 4, "tone"),)
    (past,) = recent_answers(store, rater)
    assert (past.answer.correction, past.answer.spans) == (first.correction, first.spans)
    submit(store, question.id, Answer("both_bad", correction=Correction("Anew")))
    every = list_votes(store, study_id, every_revision=True)
    assert [(each.revision, each.correction, len(each.spans)) for each in every] == [
        (1, vote.correction, 1),
        (2, Correction("Anew"), 0),
    ]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"correction": Correction(" \n")}, "empty"),
        ({"correction": Correction("x" * 60_001)}, "60,001 characters"),
        ({"correction": Correction("half \ud800")}, "surrogate"),
        ({"correction": Correction("x\x00")}, "zero"),
        ({"correction": Correction("x", 2)}, "response 3"),
        ({"correction": Correction(" good 0\r\n", 0)}, "shown"),
        ({"spans": (Span(0, 0, 3, "length"),)}, "length"),
        ({"spans": (Span(0, 3, 3, "fact"),)}, "3 to 3"),
        ({"spans": (Span(1, 0, 99, "fact"),)}, "0 to 99"),
        ({"spans": (Span(2, 0, 1, "fact"),)}, "response 3"),
        ({"spans": (Span(0, 0, 1, "fact"),) * 2}, "once"),
        ({"choice": "skip", "reason": "?", "spans": (Span(0, 0, 1, "fact"),)}, "skipped"),
    ],
)
def test_what_cannot_be_is_refused_and_stores_nothing(lite: Store, said: dict, sentence: str) -> None:
    study_id, _, question = one_question(lite)
    assert {text.split()[1].rstrip(",") for text in question.texts} == {"0"}
    with pytest.raises(TutelageError, match=sentence):
        submit(lite, question.id, Answer(**{"choice": "tie", **said}))
    assert list_votes(lite, study_id) == ()


def test_a_study_that_does_not_ask_takes_none(lite: Store) -> None:
    study_id, _, question = one_question(lite, Presentation())
    for said in ({"correction": Correction("better")}, {"spans": (Span(0, 0, 1, "fact"),)}):
        with pytest.raises(TutelageError, match="collect"):
            submit(lite, question.id, Answer("tie", **said))  # type: ignore[arg-type]
    present(lite, study_id, SHOWN)  # what was on the screen already is answered as it was shown
    with pytest.raises(TutelageError, match="collect"):
        submit(lite, question.id, Answer("tie", correction=Correction("better")))


def test_categories_are_few_and_told_apart() -> None:
    for categories in (tuple("abcdefghij"), ("fact", "fact"), ("",), ("x" * 101,)):
        with pytest.raises(TutelageError, match="categor"):
            check_categories(categories)
    with pytest.raises(TutelageError, match="alike"):
        replace(SHOWN, spans=("fact", "fact"))


def test_json_and_back() -> None:
    correction, spans = Correction("x", 1), (Span(0, 1, 2, "fact"),)
    assert correction_from(correction_row(correction)) == correction
    assert correction_from(correction_row(None)) is None
    assert spans_from(span_rows(spans)) == spans
    bad_correction = ("x", [], {"text": "x"}, {"text": 1, "response": None}, {"text": "x", "response": True})
    for row in bad_correction:
        with pytest.raises(TutelageError, match="correction"):
            correction_from(row)
    whole = asdict(spans[0])
    for rows in ("x", {}, [1], [{}], [whole | {"start": -1}], [whole | {"end": 1.0}], [whole | {"more": 1}]):
        with pytest.raises(TutelageError, match="Spans"):
            spans_from(rows)

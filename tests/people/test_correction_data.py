"""Corrections as training data: every row's weight by hand, what is left out, and files that training reads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_demonstrations, load_preferences
from tutelage.data.records import ALL_ROWS, CompletionRecord, Demonstration, Message, Preference, Prompt, ToolCall, user
from tutelage.people import (
    Answer,
    Item,
    Presentation,
    Selection,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    exclude,
    label_study,
    list_questions,
    list_votes,
    preferences,
    replan,
    reserve_item,
    submit,
)
from tutelage.people.answers import Correction, Span
from tutelage.people.export import export_study
from tutelage.people.restoration import import_export
from tutelage.people.store.studies import list_versions
from tutelage.people.training_data import training_pairs

from .worlds import QUIET, SECRET, asked, records

SHOWN = Presentation(corrections=True, spans=("fact", "tone"))
PRIOR = 4 / 6


def corrected_study(store: Store, pairs: int = 1) -> Study:
    study = create_study(store, "tutoring", plan=replace(QUIET, overlap=5), secret=SECRET, presentation=SHOWN)
    add_items(store, study.id, *records(pairs))
    return study


def says(store: Store, study: Study, name: str, answer: Answer, response: int | None = None) -> None:
    """A new rater gives the answer to the next question; `response` is the canonical index that is corrected."""
    question = asked(store, add_rater(store, study.id, name).id)
    if answer.correction is not None and response is not None:
        place = question.order.index(response)
        answer = replace(answer, correction=replace(answer.correction, response=place))
    submit(store, question.id, answer)


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def test_an_edited_trace_is_rejected_as_its_messages(lite: Store, tmp_path: Path) -> None:
    """One of several messages is in the export, but no text to train on."""
    study = create_study(lite, "traces", plan=QUIET, secret=SECRET, presentation=SHOWN)
    call = Message("assistant", "", calls=(ToolCall("look", "{}", "1"),))
    result, last = Message("tool", "rain", call_id="1"), Message("assistant", "It rains.")
    responses = [
        CompletionRecord("r", "p", "call, result, answer", "m", steps=((call, result), (last,))),
        CompletionRecord("s", "p", "call", "m", steps=((call,),)),
    ]
    add_items(lite, study.id, [Prompt("p", user("q"))], responses, [Item("i", "p", ("r", "s"))])
    says(lite, study, "anna", Answer("both_bad", correction=Correction("It is dry.")), response=1)
    (found,) = label_study(lite, study.id, Selection()).corrections
    assert [pair.rejected for _, pair in found.pairs] == [call]
    says(lite, study, "bert", Answer("both_bad", correction=Correction("It is wet.")), response=0)
    export_study(lite, study.id, tmp_path / "export")
    rejected = [row["rejected"] for row in rows(tmp_path / "export", "corrections.jsonl")]
    assert [[message["role"] for message in each] for each in rejected] == [
        ["assistant"],
        ["assistant", "tool", "assistant"],
    ]
    with pytest.raises(TutelageError, match="'i'"):
        training_pairs(label_study(lite, study.id, Selection()), ALL_ROWS)


def test_an_edited_response_is_better_than_the_one_it_was(store: Store) -> None:
    """A rater without another vote has the prior's reliability 4/6; the one edited is the original."""
    study = corrected_study(store)
    says(store, study, "anna", Answer("both_bad", correction=Correction("good, but true")), response=1)
    (found,) = label_study(store, study.id, Selection()).corrections
    asks = user("Question 0?")
    assert found.demonstration == Demonstration(asks, "good, but true", pytest.approx(PRIOR))
    assert found.pairs == ((1, Preference(asks, "good, but true", "good 0", pytest.approx(PRIOR), 1.0)),)


def test_a_text_written_anew_stands_in_place_of_all_and_a_question_counts_once(store: Store) -> None:
    study = corrected_study(store)
    says(store, study, "anna", Answer("both_bad", correction=Correction("anew")))
    says(store, study, "bert", Answer("both_bad", correction=Correction("better")), response=0)
    labelled = label_study(store, study.id, Selection())
    assert [each.demonstration.weight for each in labelled.corrections] == pytest.approx([PRIOR / 2] * 2)
    pairs = [pair for each in labelled.corrections for pair in each.pairs]
    assert [(index, pair.chosen, pair.weight) for index, pair in pairs] == [
        (0, "anew", 0.25),
        (1, "anew", 0.25),
        (0, "better", 0.5),
    ]
    assert sum(pair.weight for _, pair in pairs) == 1
    assert labelled.rows == ()
    assert labelled.correction_fates == {"used": 2}


def test_what_is_left_out_is_counted(store: Store) -> None:
    study = corrected_study(store)
    for name in ("anna", "bert", "carl"):
        says(store, study, name, Answer("both_bad", correction=Correction(f"by {name}")))
    exclude(store, study.id, "rater", "bert", "a test")
    owner = add_rater(store, study.id, "boss", role="owner").id
    submit(store, reserve_item(store, owner, "c0").id, Answer("both_bad", correction=Correction("by boss")))
    labelled = label_study(store, study.id, Selection())
    assert {each.correction.text: each.demonstration.weight for each in labelled.corrections} == {
        "by anna": pytest.approx(PRIOR / 3),
        "by carl": pytest.approx(PRIOR / 3),
        "by boss": pytest.approx(1 / 3),
    }
    assert labelled.correction_fates == {"used": 3, "excluded": 1}


def test_a_rater_who_is_wrong_more_often_than_right_corrects_nothing(lite: Store) -> None:
    study = corrected_study(lite, pairs=30)
    prompts, completions, comparisons = records(20, start=100)
    golds = [replace(Item.of(each), pool="gold", gold="b") for each in comparisons]
    add_items(lite, study.id, prompts, completions, golds)
    replan(lite, study.id, replace(study.plan, gold_rate=0.5))
    rater, wrong = add_rater(lite, study.id, "anna").id, 0
    while wrong < 8:
        question = asked(lite, rater)
        if int(question.item.removeprefix("c")) >= 100:
            submit(lite, question.id, Answer("left" if question.left.startswith("bad") else "right", 1))
            wrong += 1
        else:
            submit(lite, question.id, Answer("both_bad", correction=Correction("worse")))
    labelled = label_study(lite, study.id, Selection())
    assert labelled.labels.accuracy["anna"] == pytest.approx(4 / (8 + 6))
    assert labelled.corrections == ()
    assert list(labelled.correction_fates) == ["unreliable"]


def test_an_empty_response_is_no_side_of_a_pair(lite: Store) -> None:
    study = create_study(lite, "tutoring", plan=QUIET, secret=SECRET, presentation=SHOWN)
    completions = [CompletionRecord("a", "p", "  ", "m"), CompletionRecord("b", "p", "some", "m")]
    add_items(lite, study.id, [Prompt("p", user("Why?"))], completions, [Item("i", "p", ("a", "b"))])
    says(lite, study, "anna", Answer("both_bad", correction=Correction("anew")))
    (found,) = label_study(lite, study.id, Selection()).corrections
    assert [(index, pair.weight) for index, pair in found.pairs] == [(1, 1.0)]


def test_training_reads_what_was_exported_and_the_study_comes_back(store: Store, folder: Path) -> None:
    study = corrected_study(store, pairs=2)
    talk = (Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Why?"))
    completions = [CompletionRecord(f"t{side}", "t", f"{side}!", "m") for side in "ab"]
    add_items(store, study.id, [Prompt("t", talk)], completions, [Item("talk", "t", ("ta", "tb"))])
    rater = add_rater(store, study.id, "anna").id
    for text in ("=1+1", "zwei\nZeilen \U0001f642", "third"):
        question = asked(store, rater)
        spans = (Span(0, 0, 2, "fact"), Span(1, 1, 2, "tone"))
        submit(store, question.id, Answer("left", 1, correction=Correction(text, 0), spans=spans))
    submit(store, question.id, Answer("right", 2, correction=Correction("fourth")))
    manifest: dict[str, Any] = export_study(store, study.id, folder / "export").manifest
    labelled = label_study(store, study.id, Selection())
    read = load_demonstrations(folder / "export" / "demonstrations.jsonl").records
    assert read == tuple(each.demonstration for each in labelled.corrections)
    pairs = tuple(pair for each in labelled.corrections for _, pair in each.pairs)
    assert load_preferences(folder / "export" / "corrections.jsonl").records == pairs  # reward and dpo
    chosen = load_demonstrations(folder / "export" / "corrections.jsonl").records  # and sft
    assert {record.response for record in chosen} == {pair.chosen for pair in pairs}
    assert any(len(record.messages) == 3 for record in read)
    assert manifest["rows"]["demonstrations"] == manifest["corrections"]["used"] == 3
    assert manifest["corrections"] == {"total": 3, "used": 3}
    texts = {each.id: each.text for question in list_questions(store, study.id) for each in question.completions}
    marked = rows(folder / "export", "spans.jsonl")
    assert len(marked) == manifest["rows"]["spans"] == 4  # the revision took back those of the third
    assert all(row["words"] == texts[row["completion_id"]][row["start"] : row["end"]] for row in marked)
    for load in (load_demonstrations, load_preferences):
        with pytest.raises(TutelageError):
            load(folder / "export" / "spans.jsonl")

    again = import_export(store, folder / "export", name="again")
    assert list_versions(store, again.id) == list_versions(store, study.id)
    for one, other in zip(
        list_votes(store, study.id, every_revision=True), list_votes(store, again.id, every_revision=True), strict=True
    ):
        assert (one.correction, one.spans, one.latest) == (other.correction, other.spans, other.latest)
    assert preferences(store, again.id) == preferences(store, study.id)
    export_study(store, again.id, folder / "second")
    for name in ("demonstrations.jsonl", "corrections.jsonl"):
        same = [
            [
                {k: v for k, v in row.items() if k not in ("judgement", "rater", "study")}
                for row in rows(folder / out, name)
            ]
            for out in ("export", "second")
        ]
        assert same[0] == same[1]


def test_a_study_that_does_not_ask_exports_no_such_files(lite: Store, folder: Path) -> None:
    study = create_study(lite, "plain", plan=QUIET)
    add_items(lite, study.id, *records(1))
    export_study(lite, study.id, folder / "export")
    names = {path.name for path in (folder / "export").iterdir()}
    assert not names & {"demonstrations.jsonl", "corrections.jsonl", "spans.jsonl"}

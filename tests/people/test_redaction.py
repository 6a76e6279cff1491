"""Exports without what looks like personal data in what people wrote: the same votes, the same marked words."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tutelage.data.records import Message, ToolCall
from tutelage.people import (
    Answer,
    Correction,
    Item,
    Plan,
    Presentation,
    Span,
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
    submit,
)
from tutelage.people.export import export_study
from tutelage.people.live_conversation import keep_answer, next_step, say
from tutelage.people.redaction import find_places
from tutelage.people.restoration import import_export
from tutelage.people.selection import Selection
from tutelage.people.store.conversations import LiveModels, Reply, set_live_models

from .test_live_conversation import answered
from .worlds import SECRET, asked, records

MAIL, PHONE, IBAN = "ada@example.org", "+49 30 901820", "DE89 3704 0044 0532 0130 00"
SECRETS = (MAIL, PHONE, IBAN, "Lovelace")


@pytest.fixture
def study(store: Store) -> Study:
    """A conversation in which a rater says too much, with a correction, marked words and an exclusion."""
    shown = Presentation(corrections=True, spans=("fact",))
    made = create_study(store, "talks", plan=Plan(1, "finish_first", 0, 0), secret=SECRET, presentation=shown)
    set_live_models(store, made.id, LiveModels("old", "new"))
    rater = add_rater(store, made.id, "Ada Lovelace").id
    question = answered(store, rater, None, f"Hello, I am at {MAIL}")
    place = question.texts.index(f"new on Hello, I am at {MAIL}")
    at = question.texts[place].index("Hello")
    spans = (Span(place, at, at + 5, "fact"), Span(place, at + 12, at + 12 + len(MAIL) + 3, "fact"))
    said = Answer(
        ("left", "right")[place],
        2,
        reason=f"Call me: {PHONE}.",
        correction=Correction(f"Pay to {IBAN}, Ada Lovelace.", place),
        spans=spans,
    )
    submit(store, question.id, said)
    exclude(store, made.id, "judgement", str(_other(store, made)), f"wrote to {MAIL}")
    return made


def _other(store: Store, study: Study) -> int:
    """The number of a vote by somebody else, to be excluded."""
    other = add_rater(store, study.id, "otto").id
    question = answered(store, other, None, "Why is 6 x 7 = 42?")
    submit(store, question.id, Answer("left", 1))
    return next(vote.id for vote in list_votes(store, study.id) if vote.rater == "otto")


def lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines())


def test_places_are_named_and_counted(store: Store, study: Study) -> None:
    votes = list_votes(store, study.id, every_revision=True)
    hints = find_places(store, study.id, votes, list_questions(store, study.id))
    assert hints.counts == {"email": 4, "phone": 1, "iban": 1, "name": 1}
    assert hints.sentence == "4 e-mail addresses, 1 telephone number, 1 account number (IBAN), 1 name"
    found = {(place.kind, place.what): place for place in hints.places}
    assert set(found) == {
        ("phone", "reason"), ("iban", "better response"), ("name", "better response"), ("email", "message"),
        ("email", "answer"), ("email", "reason of an exclusion"),
    }  # fmt: skip
    place = found["phone", "reason"]
    assert (place.before, place.found, place.after) == ("Call me: ", PHONE, ".")
    assert place.item in {question.key for question in list_questions(store, study.id)}


def test_a_redacted_export_holds_none_of_it_and_the_same_votes(store: Store, study: Study, folder: Path) -> None:
    plain = export_study(store, study.id, folder / "plain").manifest
    clean = export_study(store, study.id, folder / "clean", redact=True).manifest
    assert plain["personal_data"] == {"found": {"email": 4, "phone": 1, "iban": 1, "name": 1}, "redacted": False}
    assert clean["personal_data"] == {**plain["personal_data"], "redacted": True}
    for path in (folder / "clean").iterdir():
        text = path.read_text(encoding="utf-8").replace('"Ada Lovelace"', "the rater").replace(",Ada Lovelace,", "")
        assert not [secret for secret in SECRETS if secret in text], path.name
    assert MAIL not in str(clean["excluded"])
    assert MAIL in (folder / "plain" / "items.jsonl").read_text(encoding="utf-8")
    texts = ("reason", "correction", "spans", "excluded")
    kept = [
        [{key: row[key] for key in row if key not in texts} for row in lines(folder / name, "votes.jsonl")]
        for name in ("plain", "clean")
    ]
    assert kept[0] == kept[1]
    assert [row["words"] for row in lines(folder / "clean", "spans.jsonl")] == ["Hello", "at [email]"]
    assert [row["words"] for row in lines(folder / "plain", "spans.jsonl")] == ["Hello", f"at {MAIL}"]


def test_a_redacted_export_is_a_study_again(store: Store, study: Study, folder: Path) -> None:
    export_study(store, study.id, folder / "clean", redact=True)
    again = import_export(store, folder / "clean", name="again")
    labelled = label_study(store, study.id, Selection())
    (preference,) = preferences(store, again.id)
    assert preference.p_chosen == pytest.approx(labelled.rows[0].preference.p_chosen)
    assert preference.chosen == "new on Hello, I am at [email]"
    (corrected,) = label_study(store, again.id, Selection()).corrections
    assert corrected.correction.text == "Pay to [iban], [name]."


def test_texts_that_the_study_was_made_with_are_left_alone(lite: Store, folder: Path) -> None:
    made = create_study(lite, "ready", plan=Plan(1, "finish_first", 0, 0))
    prompts, completions, comparisons = records(1)
    completions = [replace(each, text=f"{each.text}, {MAIL}") for each in completions]
    add_items(lite, made.id, prompts, completions, [Item.of(each) for each in comparisons])
    submit(lite, asked(lite, add_rater(lite, made.id, "anna").id).id, Answer("left", 1))
    manifest = export_study(lite, made.id, folder / "out", redact=True).manifest
    assert manifest["personal_data"] == {"found": {}, "redacted": True}
    assert MAIL in (folder / "out" / "preferences.jsonl").read_text(encoding="utf-8")


def test_traces_of_conversations_are_redacted_message_by_message(lite: Store, tmp_path: Path) -> None:
    study = create_study(lite, "tools", plan=Plan(1, "finish_first", 0, 0), secret=SECRET)
    set_live_models(lite, study.id, LiveModels("old", "new"))
    rater = add_rater(lite, study.id, "Ada Lovelace").id
    turn = say(lite, rater, None, "Write to me", "k", tools=('{"function": {"name": "send"}}',))
    call = ToolCall(
        "send", json.dumps({"to": [MAIL], "n": 49301234567, "pay": {"card": 4111111111111111, MAIL: None}}), "c"
    )
    trace = Message("assistant", "", calls=(call,)), Message("tool", f"sent to {MAIL}", call_id="c")
    keep_answer(lite, turn, 0, Reply.of((*trace, Message("assistant", f"I wrote to {MAIL}."))), sampling={})
    keep_answer(lite, turn, 1, "No.", sampling={})
    question = next_step(lite, rater)
    place = 0 if question.steps[0] else 1  # type: ignore[union-attr]
    submit(lite, question.id, Answer(("left", "right")[place], 1))  # type: ignore[union-attr]
    found = find_places(lite, study.id, list_votes(lite, study.id), list_questions(lite, study.id))
    assert found.counts == {"email": 4, "card": 1}
    export_study(lite, study.id, tmp_path / "out", redact=True)
    for name in ("preferences.jsonl", "demonstrations.jsonl"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert MAIL not in text
        assert "4111111111111111" not in text
        assert "[email]" in text
    first, _ = (json.loads(line) for line in text.splitlines())
    (sent,) = first["messages"][-1]["tool_calls"] if "messages" in first else first["completion"][-1]["tool_calls"]
    assert sent["function"]["arguments"] == {
        "to": ["[email]"], "n": 49301234567, "pay": {"card": "[card]", "[email]": None},
    }  # fmt: skip

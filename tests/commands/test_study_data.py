"""What training reads of a small study of every kind: votes, orders, ratings, corrections, turns of conversations."""

import json
from dataclasses import replace

import pytest
from offenders import for_each
from people.worlds import add_pictures
from tiny_commands import model

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.commands.study_data import read_demonstrations, read_study
from tutelage.data.records import ALL_ROWS, VOTED, CompletionRecord, Message, Prompt, user
from tutelage.people import (
    Answer,
    Item,
    Plan,
    Presentation,
    Selection,
    add_items,
    add_rater,
    create_study,
    next_assignment,
    open_store,
    submit,
)
from tutelage.people.answers import Correction
from tutelage.people.kinds.likert import rated
from tutelage.people.kinds.ranking import ranked
from tutelage.people.live_conversation import keep_answer, next_step, say
from tutelage.people.store.conversations import LiveModels, set_live_models

PLAN = Plan(overlap=1, gold_rate=0.0, repeat_rate=0.0)
PAIRS = 6


def study_file(folder, kind="pair", pairs=PAIRS, **shown):
    store = open_store(folder / "study.sqlite")
    study = create_study(
        store, "mixed", kind=kind, plan=PLAN, secret="5a" * 32, presentation=Presentation(**shown) if shown else None
    )
    prompts = [Prompt(f"p{n}", user(f"What is thing {n}?")) for n in range(pairs)]
    texts = [
        (f"p{n}{letter}", n, f"{word} {n}")
        for n in range(pairs)
        for letter, word in zip("ab", ("bad", "good"), strict=True)
    ]
    completions = [CompletionRecord(key, f"p{n}", text, "m") for key, n, text in texts]
    add_items(
        store, study.id, prompts, completions, [Item(f"c{n}", f"p{n}", (f"p{n}a", f"p{n}b")) for n in range(pairs)]
    )
    return store, study


def mixed(folder):
    """Six pairs, of which two are corrected, and a conversation of two turns; one rater, whose reliability is the
    model's estimate."""
    store, study = study_file(folder, corrections=True)
    rater = add_rater(store, study.id, "anna", kind="simulated").id
    while (question := next_assignment(store, rater)) is not None:
        place = question.texts.index(next(text for text in question.texts if text.startswith("good")))
        number = question.texts[place].split()[1]
        answer = Answer(("left", "right")[place], 2)
        if number == "0":
            answer = replace(answer, correction=Correction("edited 0", place))
        elif number == "1":
            answer = replace(answer, correction=Correction("anew 1"))
        submit(store, question.id, answer)
    set_live_models(store, study.id, LiveModels("old", "new", turns=2))
    for text in ("one", "two"):
        talk = next_step(store, rater)
        turn = say(store, rater, talk.conversation, text, text)
        for place, word in enumerate(("old", "new")):
            keep_answer(store, turn, place, f"{word} on {text}", sampling={})
        question = next_step(store, rater)
        submit(store, question.id, Answer("left" if question.left.startswith("new") else "right", 2))
    store.close()
    return folder


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return mixed(tmp_path_factory.mktemp("mixed"))


def pairs_of(folder, rows=ALL_ROWS, run="none", **changes):
    given = {"rows": rows, "held_out": 0.0, "seed": 0, "run": folder / run} | changes
    return read_study(str(folder / "study.sqlite"), "", Selection(("simulated",)), **given)


def shown_of(folder, rows, run="none"):
    return read_demonstrations(
        str(folder / "study.sqlite"), "", Selection(("simulated",)), rows=rows, held_out=0.0, seed=0, run=folder / run
    )


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


VOTES = {(f"good {n}", f"bad {n}") for n in range(PAIRS)}
LIVE = {("new on one", "old on one"), ("new on two", "old on two")}
CORRECTED = {("edited 0", "good 0"), ("anew 1", "good 1"), ("anew 1", "bad 1")}
TALK = (Message("user", "one"), Message("assistant", "new on one"), Message("user", "two"))


def test_preferences_come_from_votes_conversations_and_corrections(study):
    read = pairs_of(study)
    assert {(p.chosen, p.rejected) for p in read.train} == VOTES | LIVE | CORRECTED
    assert len(read.train) == PAIRS + 2 + 3
    assert "preferences: 11 = 6 votes + 2 live + 3 corrections" in read.remarks
    by_text = {(p.chosen, p.rejected): p for p in read.train}
    assert by_text["new on two", "old on two"].messages == TALK
    reliability = by_text["edited 0", "good 0"].p_chosen
    assert 0.5 < reliability < 1.0
    assert {pair.p_chosen for key, pair in by_text.items() if key in CORRECTED} == {reliability}
    assert [by_text[key].weight for key in sorted(CORRECTED)] == [0.5, 0.5, 1.0]
    assert set(read.votes) == {p for key, p in by_text.items() if key not in CORRECTED}


@for_each([(("votes",), VOTES), (("live",), LIVE), (("corrections",), CORRECTED), (VOTED, VOTES | LIVE)])
def test_each_part_of_a_study_can_be_read_alone(rows, expected, study):
    assert {(p.chosen, p.rejected) for p in pairs_of(study, rows).train} == expected


def test_demonstrations_are_what_raters_wrote_or_went_on_from(study):
    read = shown_of(study, ("live", "corrections"))
    assert {d.response for d in read.train} == {"edited 0", "anew 1", "new on one", "new on two"}
    assert {d.messages for d in read.train if d.response == "new on two"} == {TALK}
    weights = {d.response: d.weight for d in read.train}
    assert weights["new on one"] == 1.0
    assert 0.5 < weights["edited 0"] == weights["anew 1"] < 1.0
    assert "demonstrations: 4 = 2 live + 2 corrections" in read.remarks


def test_a_question_that_was_corrected_shows_its_corrections_alone(study):
    """Its better answer by votes is what the correction was written against."""
    both = {d.response for d in shown_of(study, ("votes", "corrections")).train}
    assert both == {"edited 0", "anew 1", *(f"good {n}" for n in range(2, PAIRS))}
    assert {d.response for d in shown_of(study, ("votes",)).train} == {f"good {n}" for n in range(PAIRS)}


@pytest.mark.parametrize("kind", ["likert", "ranking"])
def test_ratings_and_orders_become_pairs_and_demonstrations(tmp_path, kind):
    store, study = study_file(tmp_path, kind, pairs=3)
    rater = add_rater(store, study.id, "anna", kind="simulated").id
    while (question := next_assignment(store, rater)) is not None:
        good = question.texts[0].startswith("good")
        answer = (
            rated({"overall": (5, 2) if good else (2, 5)}) if kind == "likert" else ranked((1, 2) if good else (2, 1))
        )
        submit(store, question.id, answer)
    store.close()
    assert {(p.chosen, p.rejected) for p in pairs_of(tmp_path).train} == {(f"good {n}", f"bad {n}") for n in range(3)}
    with pytest.raises(TutelageError, match=r"no demonstration .* --study-rows live corrections votes reads all"):
        shown_of(tmp_path, ("live", "corrections"))
    assert {d.response for d in shown_of(tmp_path, ("votes",)).train} == {f"good {n}" for n in range(3)}


def test_every_command_that_trains_on_rows_reads_a_study(study, tiny_model, tmp_path):
    base = tiny_model("llama", words={"chat": True})
    shared = {"model": model(base), "data": str(study), "epochs": 1.0, "quiet": True, "held_out": 0.2}
    tt.sft(**shared | {"held_out": 0.0}, out=tmp_path / "sft", samples=0, rouge=0, study_rows=ALL_ROWS)
    assert summary(tmp_path / "sft")["rows"] == 8
    assert json.loads((tmp_path / "sft" / "study.json").read_text())["rows"] == list(ALL_ROWS)
    tt.dpo(**shared, out=tmp_path / "dpo", study_rows=("votes", "corrections"))
    figures = summary(tmp_path / "dpo")
    assert figures["pairs"] + figures["held_out_pairs"] == PAIRS + 3
    tt.reward(**shared, out=tmp_path / "reward")
    figures = summary(tmp_path / "reward")
    assert figures["pairs"] + figures["held_out_pairs"] == 11


def test_a_study_with_images_is_refused_by_what_trains_on_text(tmp_path):
    """By the item, whatever the votes say: the words alone would teach what nobody chose."""
    store, study = study_file(tmp_path, pairs=2)
    add_pictures(store, study)
    rater = add_rater(store, study.id, "anna", kind="simulated").id
    while (question := next_assignment(store, rater)) is not None:
        submit(store, question.id, Answer("left", 2))
    store.close()
    with pytest.raises(TutelageError, match="'pictures'"):
        pairs_of(tmp_path)
    with pytest.raises(TutelageError, match="'pictures'"):
        shown_of(tmp_path, ("votes",))


def test_answers_are_those_of_conversations_in_files(study, tiny_model, tmp_path):
    with pytest.raises(TutelageError, match="--answers has no effect"):
        tt.sft(model=model("m"), data=str(study), out=tmp_path / "out", answers="every")


def test_settings_of_a_study_are_refused_where_there_is_none(tiny_model, tmp_path):
    for more in ({"study": "x"}, {"kinds": ("human",)}, {"study_rows": ("votes",)}):
        for command in (tt.sft, tt.dpo, tt.reward):
            with pytest.raises(TutelageError, match="would have no effect"):
                command(model=model("m"), data="rows.jsonl", out=tmp_path / "out", **more)

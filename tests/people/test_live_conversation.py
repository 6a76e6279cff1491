"""Live conversations without HTTP: messages, answers, questions, and what training reads of them, on both databases."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_chat import finished
from served import serving

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_demonstrations, load_preferences
from tutelage.data.records import CompletionRecord, Demonstration, Message, Prompt, ToolCall, spoken, user
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Plan,
    Presentation,
    Store,
    Study,
    add_items,
    add_rater,
    consent,
    create_study,
    label_study,
    list_events,
    list_questions,
    list_votes,
    next_assignment,
    present,
    release,
    replan,
    set_state,
    submit,
)
from tutelage.people.answers import Correction
from tutelage.people.assignment import why_nothing
from tutelage.people.export import export_study
from tutelage.people.live_conversation import (
    EndpointModel,
    Talk,
    end_conversation,
    endpoint_of,
    keep_answer,
    next_step,
    only_endpoints,
    open_turn,
    say,
)
from tutelage.people.selection import Selection
from tutelage.people.settings import Consent
from tutelage.people.store.consents import ask_consent
from tutelage.people.store.conversations import ERASED, LiveModels, Reply, erase_conversations, set_live_models
from tutelage.people.store.rater_erasure import forget
from tutelage.people.training_data import traces_in_talks, training_demonstrations, training_pairs

from .worlds import SECRET, Clock

ALONE = Plan(overlap=1, gold_rate=0.0, repeat_rate=0.0)
MODELS = LiveModels("runs/old", "runs/new", turns=3, openings=("Why?", "How?", "Who?", "When?"))


def talks(store: Store) -> Study:
    study = create_study(store, "talks", plan=ALONE, secret=SECRET)
    set_live_models(store, study.id, MODELS)
    return study


@pytest.fixture
def study(store: Store) -> Study:
    """On both databases."""
    return talks(store)


def rater_of(store: Store, study: Study, name: str = "anna") -> int:
    return add_rater(store, study.id, name).id


def answered(store: Store, rater: int, conversation: int | None, text: str) -> Assignment:
    """Send a message, let both models answer, and return the question that follows."""
    turn = say(store, rater, conversation, text, f"{rater}/{conversation}/{text}")
    assert not keep_answer(store, turn, 1, f"new on {text}", sampling={})
    assert keep_answer(store, turn, 0, f"old on {text}", sampling={"temperature": 1.0})
    question = next_step(store, rater)
    assert isinstance(question, Assignment)
    return question


def new_is_better(question: Assignment) -> Answer:
    return Answer("left" if question.left.startswith("new") else "right", 2)


def shown(step: object) -> tuple[int, tuple[str, ...]]:
    """The question on the screen: its number, and the texts from left to right."""
    assert isinstance(step, Assignment)
    return step.id, step.texts


def talk_of(store: Store, rater: int) -> Talk:
    talk = next_step(store, rater)
    assert isinstance(talk, Talk)
    return talk


def test_a_conversation_goes_on_from_the_better_answer_to_its_last_turn(store: Store, study: Study) -> None:
    rater = rater_of(store, study)
    talk = talk_of(store, rater)
    assert (talk.conversation, talk.turn, talk.turns, talk.messages) == (None, 1, 3, ())
    said: list[Message] = []
    for number, text in enumerate(("Hello", "And then?", "Why?"), 1):
        talk = talk_of(store, rater)
        assert (talk.turn, talk.messages) == (number, tuple(said))
        question = answered(store, rater, talk.conversation, text)
        said.append(Message("user", text))
        assert question.messages == tuple(said)
        assert sorted(question.texts) == [f"new on {text}", f"old on {text}"]
        submit(store, question.id, new_is_better(question))
        said.append(Message("assistant", f"new on {text}"))
    talk = talk_of(store, rater)
    assert (talk.conversation, talk.messages) == (None, ())  # three turns are over


def test_every_turn_is_a_comparison_with_its_whole_conversation(lite: Store, tmp_path: Path) -> None:
    store, study = lite, talks(lite)
    rater, said, expected = rater_of(store, study), [], []
    for text in ("one", "two", "three"):
        question = answered(store, rater, talk_of(store, rater).conversation, text)
        submit(store, question.id, new_is_better(question))
        said.append(Message("user", text))
        expected.append((tuple(said), f"new on {text}", f"old on {text}"))
        said.append(Message("assistant", f"new on {text}"))
    rows = [row.preference for row in label_study(store, study.id, Selection()).rows]
    assert [(p.messages, p.chosen, p.rejected) for p in rows] == expected
    manifest = export_study(store, study.id, tmp_path / "out").manifest
    assert isinstance(manifest["judgements"], dict)
    assert manifest["judgements"]["used"] == 3
    read = load_preferences(str(tmp_path / "out" / "preferences.jsonl")).records
    assert [(p.messages, p.chosen, p.rejected) for p in read] == expected
    shown = load_demonstrations(str(tmp_path / "out" / "demonstrations.jsonl")).records
    assert [(d.messages, d.response) for d in shown] == [(messages, new) for messages, new, _ in expected]
    lines = (tmp_path / "out" / "preferences.jsonl").read_text().splitlines()
    assert {(json.loads(line)["chosen_model"], json.loads(line)["rejected_model"]) for line in lines} == {
        ("runs/new", "runs/old")
    }


def test_sides_and_canonical_places_are_drawn_anew_for_each_turn(lite: Store) -> None:
    """Neither the side on the screen nor the letter in the files tells the model; both repeat with the secret."""
    store, study = lite, talks(lite)
    set_live_models(store, study.id, LiveModels("runs/old", "runs/new", turns=40))
    rater, new_left, new_first, conversation = rater_of(store, study), 0, 0, None
    for number in range(40):
        turn = say(store, rater, conversation, "Hello", f"key {number}")
        conversation = turn.conversation_id
        for model, word in enumerate(("old", "new")):
            keep_answer(store, turn, model, word, sampling={})
        question = next_step(store, rater)
        assert isinstance(question, Assignment)
        # the sides do not change when the question begins
        assert [("old", "new")[model] for model in turn.order] == list(question.texts)
        new_left += question.left.startswith("new")
        submit(store, question.id, new_is_better(question))
    for question in list_questions(store, study.id):
        new_first += question.texts[0].startswith("new")
    assert 10 <= new_left <= 30
    assert 10 <= new_first <= 30
    assert len({(vote.sides, vote.verdict) for vote in list_votes(store, study.id)}) == 4


@pytest.mark.parametrize("choice", ["tie", "both_bad", "skip"])
def test_without_a_better_answer_it_goes_on_from_one_that_is_drawn(lite: Store, choice: str) -> None:
    store, study = lite, talks(lite)
    went = Counter[str]()
    for number in range(8):
        rater = rater_of(store, study, f"rater {number}")
        question = answered(store, rater, None, "Hello")
        submit(store, question.id, Answer(choice, reason="No idea"))
        first, again = talk_of(store, rater), talk_of(store, rater)
        assert first == again
        went[first.messages[-1].content[:3]] += 1
    assert went["new"] + went["old"] == 8
    assert min(went["new"], went["old"]) >= 1


def test_a_changed_answer_counts_until_the_conversation_has_gone_on(lite: Store) -> None:
    store, study = lite, talks(lite)
    rater = rater_of(store, study)
    question = answered(store, rater, None, "Hello")
    better, worse = new_is_better(question), Answer("tie")
    submit(store, question.id, better)
    submit(store, question.id, Answer({"left": "right", "right": "left"}[better.choice], 1))
    talk = talk_of(store, rater)
    assert talk.messages[-1].content == "old on Hello"
    second = answered(store, rater, talk.conversation, "And?")
    submit(store, question.id, worse)  # too late for the conversation, not for the label
    assert shown(next_step(store, rater)) == shown(second)
    submit(store, second.id, new_is_better(second))
    assert [message.content for message in talk_of(store, rater).messages][1] == "old on Hello"


def test_a_conversation_goes_on_from_the_better_response_that_the_rater_wrote(lite: Store, tmp_path: Path) -> None:
    store, study = lite, talks(lite)
    present(store, study.id, Presentation(corrections=True))
    rater = rater_of(store, study)
    question = answered(store, rater, None, "Hello")
    better = new_is_better(question)
    place = ("left", "right").index(better.choice)
    submit(store, question.id, replace(better, correction=Correction("Better by hand", place)))
    talk = talk_of(store, rater)
    assert talk.messages == (Message("user", "Hello"), Message("assistant", "Better by hand"))
    second = answered(store, rater, talk.conversation, "And?")
    submit(store, second.id, new_is_better(second))
    export_study(store, study.id, tmp_path / "out")
    shown = load_demonstrations(str(tmp_path / "out" / "demonstrations.jsonl")).records
    assert {(d.messages[-1].content, d.response) for d in shown} == {
        ("Hello", "Better by hand"),
        ("And?", "new on And?"),
    }


def test_a_message_that_is_sent_again_is_one_message(store: Store, study: Study) -> None:
    rater, other = rater_of(store, study), rater_of(store, study, "otto")
    turn = say(store, rater, None, "Hello", "k1")
    assert say(store, rater, None, "Hello", "k1") == turn
    with pytest.raises(TutelageError, match="used"):
        say(store, rater, None, "Something else", "k1")
    with pytest.raises(TutelageError, match="used"):
        say(store, other, None, "Hello", "k1")
    assert talk_of(store, rater).writing == turn.id


def test_what_cannot_be_said_is_refused_and_changes_nothing(lite: Store) -> None:
    store, study = lite, talks(lite)
    rater, other = rater_of(store, study), rater_of(store, study, "otto")
    for text, why in ((" \n", "empty"), ("x" * 20_001, "20,001 characters"), ("a\x00b", "zero")):
        with pytest.raises(TutelageError, match=why):
            say(store, rater, None, text, "k")
    with pytest.raises(TutelageError, match="idempotency"):
        say(store, rater, None, "Hello", "")
    with pytest.raises(TutelageError, match="window"):
        say(store, rater, 7, "Hello", "k")
    turn = say(store, rater, None, "Hello", "k")
    with pytest.raises(TutelageError, match="better"):
        say(store, rater, turn.conversation_id, "Hello?", "k2")
    with pytest.raises(TutelageError, match="window"):
        say(store, rater, None, "Hello?", "k2")
    with pytest.raises(TutelageError, match=f"Turn {turn.id}"):
        open_turn(store, turn.id, other)
    with pytest.raises(TutelageError, match="ended"):
        end_conversation(store, other, turn.conversation_id)
    set_state(store, study.id, "paused")
    with pytest.raises(TutelageError, match="paused"):
        say(store, other, None, "Hello", "k3")
    assert next_step(store, other) is None
    assert "paused" in why_nothing(store, other)
    assert keep_answer(store, turn, 0, "old", sampling={}) is False  # what was asked for is still kept
    assert keep_answer(store, turn, 1, "new", sampling={}) is True


def test_an_answer_stays_as_it_came_first(lite: Store) -> None:
    store, study = lite, talks(lite)
    rater = rater_of(store, study)
    turn = say(store, rater, None, "Hello", "k")
    assert keep_answer(store, turn, 0, "first", sampling={}) is False
    assert keep_answer(store, turn, 0, "second", sampling={}) is False
    assert open_turn(store, turn.id, rater).replies == (Reply("first"), None)
    assert keep_answer(store, turn, 1, "other", sampling={}, finished=False) is True
    assert keep_answer(store, turn, 1, "again", sampling={}) is True
    (question,) = list_questions(store, study.id)
    assert {(c.text, c.sampler, c.finished) for c in question.completions} == {
        ("first", "runs/old", True),
        ("other", "runs/new", False),
    }


def test_a_turn_waits_for_its_rater(store: Store, study: Study, clock: Clock) -> None:
    """Given back, run out, under a new version of the question: the same sides again, and the answer counts."""
    rater = rater_of(store, study)
    question = answered(store, rater, None, "Hello")
    release(store, rater)
    assert shown(next_step(store, rater)) == shown(question)
    clock.seconds += 3600
    assert next_assignment(store, rater_of(store, study, "otto")) is not None  # meanwhile somebody else may answer
    assert shown(next_step(store, rater)) == shown(question)
    present(store, study.id, Presentation("Which is kinder?"))
    release(store, rater)
    again = next_step(store, rater)
    assert isinstance(again, Assignment)
    assert (again.id, again.texts, again.version) == (question.id, question.texts, 2)
    submit(store, again.id, new_is_better(again))
    assert talk_of(store, rater).messages[-1].content == "new on Hello"
    assert next_step(store, rater, besides=(again.id,)) == talk_of(store, rater)


def test_nothing_comes_before_an_answer_on_its_way(lite: Store) -> None:
    store, study = lite, talks(lite)
    rater = rater_of(store, study)
    question = answered(store, rater, None, "Hello")
    assert next_step(store, rater, besides=(question.id,)) is None


def test_a_conversation_can_be_broken_off_and_another_begun(lite: Store) -> None:
    store, study = lite, talks(lite)
    rater = rater_of(store, study)
    question = answered(store, rater, None, "Hello")
    submit(store, question.id, new_is_better(question))
    talk = talk_of(store, rater)
    assert talk.conversation is not None
    end_conversation(store, rater, talk.conversation)
    fresh = talk_of(store, rater)
    assert (fresh.conversation, fresh.turn) == (None, 1)
    assert set(fresh.openings) < set(MODELS.openings)
    assert len(fresh.openings) == 3
    assert talk_of(store, rater).openings == fresh.openings  # a reload shows the same
    assert len(list_votes(store, study.id)) == 1
    turn = say(store, rater, None, "Hello again", "again")
    end_conversation(store, rater, turn.conversation_id)
    for place in (0, 1):
        keep_answer(store, turn, place, "too late", sampling={})
    assert talk_of(store, rater).conversation is None
    assert len(list_questions(store, study.id)) == 1  # nobody is asked about what was broken off


def test_other_models_are_in_force_from_the_next_message_on(lite: Store) -> None:
    store, study = lite, talks(lite)
    rater = rater_of(store, study)
    first = answered(store, rater, None, "Hello")
    later = LiveModels("http://host/v1#a", "http://host/v1#b", turns=3, round=2)
    assert set_live_models(store, study.id, later)[1]
    assert not set_live_models(store, study.id, later)[1]  # the same again changes nothing
    submit(store, first.id, new_is_better(first))
    second = answered(store, rater, talk_of(store, rater).conversation, "And?")
    submit(store, second.id, new_is_better(second))
    rounds = {
        question.item.round: {c.sampler for c in question.completions} for question in list_questions(store, study.id)
    }
    assert rounds == {1: {"runs/old", "runs/new"}, 2: {"http://host/v1#a", "http://host/v1#b"}}
    told = list_events(store, study.id, action="live_models")
    assert [event.detail["models"] for event in told] == [list(later.names), list(MODELS.names)]


def test_practice_and_known_answers_come_between_conversations_only(lite: Store) -> None:
    store, study = lite, talks(lite)
    replan(store, study.id, Plan(overlap=1, gold_rate=0.5, repeat_rate=0.0))
    prompts = [Prompt(f"p{n}", user(f"Question {n}?")) for n in range(9)]
    completions = [CompletionRecord(f"p{n}{side}", f"p{n}", f"{side} {n}", "m") for n in range(9) for side in "ab"]
    pools = ["training", *["gold"] * 8]
    items = [
        Item(f"i{n}", f"p{n}", (f"p{n}a", f"p{n}b"), pool=pool, gold="a")  # type: ignore[arg-type]
        for n, pool in enumerate(pools)
    ]
    add_items(store, study.id, prompts, completions, items)
    rater = add_rater(store, study.id, "new", training=True).id
    practice = next_step(store, rater)
    assert isinstance(practice, Assignment)
    assert practice.training
    submit(store, practice.id, Answer("left" if practice.left.startswith("a") else "right", 1))
    seen = Counter[str]()
    inside = False
    for number in range(24):
        step = next_step(store, rater)
        assert step is not None
        if isinstance(step, Talk):
            seen["message"] += 1
            inside = step.turn < step.turns
            question = answered(store, rater, step.conversation, f"text {number}")
            assert question.item.startswith("talk-")
            submit(store, question.id, new_is_better(question))
        else:
            assert not inside  # never in the middle of a conversation
            seen["known"] += 1
            submit(store, step.id, Answer("tie"))
    assert seen["known"] >= 2
    assert seen["message"] >= 12


def test_turns_of_others_are_asked_where_they_need_a_second_rater(store: Store, study: Study) -> None:
    replan(store, study.id, Plan(overlap=2, gold_rate=0.0, repeat_rate=0.0))
    first, second = rater_of(store, study), rater_of(store, study, "otto")
    for text in ("a", "b", "c"):
        question = answered(store, first, talk_of(store, first).conversation, text)
        submit(store, question.id, new_is_better(question))
    for _ in range(3):
        question = next_step(store, second)
        assert isinstance(question, Assignment)
        submit(store, question.id, new_is_better(question))
    assert talk_of(store, second).conversation is None
    assert {question.answered for question in list_questions(store, study.id)} == {2}


def test_a_tenth_of_the_turns_gets_a_second_rater_whatever_the_overlap(lite: Store) -> None:
    store, study = lite, talks(lite)
    rater = rater_of(store, study)
    for number in range(40):
        turn = say(store, rater, None, "Hello", f"key {number}")
        for place in (0, 1):
            keep_answer(store, turn, place, f"answer {place}", sampling={})
        end_conversation(store, rater, turn.conversation_id)
    targets = Counter(question.target for question in list_questions(store, study.id))
    assert set(targets) == {1, 2}
    assert 1 <= targets[2] <= 12


def test_only_studies_of_pairs_have_conversations(lite: Store) -> None:
    store = lite
    study = create_study(store, "ranking", kind="ranking")
    with pytest.raises(TutelageError, match=r"ranks.*pairs"):
        set_live_models(store, study.id, MODELS)
    other = create_study(store, "pairs")
    with pytest.raises(TutelageError, match="models"):
        say(store, rater_of(store, other), None, "Hello", "k")


@pytest.mark.parametrize("votes", ["keep", "erase"])
def test_a_forgotten_rater_takes_the_conversations_along_where_the_votes_go(
    store: Store, study: Study, votes: str, tmp_path: Path
) -> None:
    ask_consent(store, study.id, Consent("I agree.", votes=votes))  # type: ignore[arg-type]
    rater, other = rater_of(store, study), rater_of(store, study, "otto")

    consent(store, rater)
    for each in (rater, other):
        question = answered(store, each, None, f"I am {each} and live in Ulm")
        submit(store, question.id, new_is_better(question))
    forget(store, rater)
    texts = [
        text for question in list_questions(store, study.id) for text in (question.messages[0].content, *question.texts)
    ]
    mine = [text for text in texts if f"I am {rater} " in text]
    assert len(mine) == (0 if votes == "erase" else 3)
    assert texts.count(ERASED) == (3 if votes == "erase" else 0)
    assert sum(f"I am {other} " in text for text in texts) == 3
    assert len(label_study(store, study.id, Selection()).rows) == (1 if votes == "erase" else 2)


def test_nothing_is_stored_of_answers_to_a_rater_who_was_forgotten_meanwhile(lite: Store) -> None:
    study = talks(lite)
    ask_consent(lite, study.id, Consent("I agree.", votes="erase"))
    rater = rater_of(lite, study)
    consent(lite, rater)
    turn = say(lite, rater, None, "I live in Ulm", "key")
    keep_answer(lite, turn, 0, "Ulm is on the Danube.", sampling={})
    forget(lite, rater)
    with pytest.raises(TutelageError, match="forgotten"):
        keep_answer(lite, turn, 1, "You live in Ulm.", sampling={})
    reopened = open_turn(lite, turn.id, rater)
    assert ([message.content for message in reopened.turn.messages], reopened.replies) == (
        [ERASED],
        (Reply(ERASED), None),
    )


SCHEMA = json.dumps({"type": "function", "function": {"name": "add", "description": "Adds."}})
CALLED = Message("assistant", "Let me see.", calls=(ToolCall("add", '{"a": 1, "b": 2}', "c1"),))
RESULT = Message("tool", "3", name="add", call_id="c1")
TRACE = (CALLED, RESULT, Message("assistant", "It is 3."))


def with_tools(store: Store, study: Study, rater: int) -> Assignment:
    """A question between a trace of the new model and a text of the old one."""
    turn = say(store, rater, None, "1 + 2?", "first", tools=(SCHEMA,))
    assert turn.messages[0].tools == (SCHEMA,)
    keep_answer(store, turn, 0, "old says 4", sampling={})
    assert keep_answer(store, turn, 1, Reply.of(TRACE), sampling={})
    question = next_step(store, rater)
    assert isinstance(question, Assignment)
    return question


def test_a_response_with_calls_is_a_trace_that_the_conversation_keeps(
    store: Store, study: Study, tmp_path: Path
) -> None:
    rater = rater_of(store, study)
    question = with_tools(store, study, rater)
    place = 0 if question.steps[0] else 1
    assert question.steps[place] == (TRACE[:2], TRACE[2:])
    assert "Let me see." in question.texts[place]
    submit(store, question.id, Answer(("left", "right")[place], 2))
    asked = (Message("user", "1 + 2?", tools=(SCHEMA,)),)
    assert talk_of(store, rater).messages == (*asked, *TRACE)
    assert say(store, rater, talk_of(store, rater).conversation, "Sure?", "second").messages[0].tools == (SCHEMA,)
    labelled = label_study(store, study.id, Selection())
    shown = [row.record for row in training_demonstrations(labelled, ("live",))]
    assert shown == [
        Demonstration((*asked, *TRACE[:place]), spoken(TRACE[place])) for place in (0, 2)
    ]  # what the model wrote, not the result
    assert training_pairs(labelled, ("live",)) == []
    assert len(traces_in_talks(labelled)) == 1
    export_study(store, study.id, tmp_path / "out")
    assert list(load_demonstrations(str(tmp_path / "out" / "demonstrations.jsonl")).records) == shown
    (line,) = (tmp_path / "out" / "preferences.jsonl").read_text().splitlines()
    assert [message["role"] for message in json.loads(line)["chosen"]] == ["assistant", "tool", "assistant"]
    with store.write() as connection:
        erase_conversations(connection, rater, store.now())
    (gone,) = list_questions(store, study.id)
    assert [(each.text, each.steps) for each in gone.completions] == [(ERASED, ())] * 2


def test_a_better_step_branches_the_trace(lite: Store, tmp_path: Path) -> None:
    store, study = lite, talks(lite)
    present(store, study.id, Presentation(corrections=True))
    rater = rater_of(store, study)
    question = with_tools(store, study, rater)
    place = 0 if question.steps[0] else 1
    choice = ("left", "right")[place]
    for wrong in (Correction("3!", place, 2), Correction("3!", 1 - place, 0), Correction("3!", None, 0)):
        with pytest.raises(TutelageError, match="step"):
            submit(store, question.id, Answer(choice, 2, correction=wrong))
    with pytest.raises(TutelageError, match="without a change"):
        submit(store, question.id, Answer(choice, 2, correction=Correction("It is 3.", place, 1)))
    submit(store, question.id, Answer(choice, 2, correction=Correction("Three.", place, 1)))
    asked = (Message("user", "1 + 2?", tools=(SCHEMA,)),)
    said = Message("assistant", "Three.")
    assert talk_of(store, rater).messages == (*asked, *TRACE[:2], said)
    labelled = label_study(store, study.id, Selection())
    (row,) = training_demonstrations(labelled, ("live", "corrections"))
    assert (row.record.messages, row.record.response) == ((*asked, *TRACE[:2]), "Three.")
    (pair,) = training_pairs(labelled, ("live", "corrections"))
    assert (pair.record.messages, pair.record.chosen, pair.record.rejected) == (
        (*asked, *TRACE[:2]), "Three.", "It is 3.",
    )  # fmt: skip
    export_study(store, study.id, tmp_path / "out")
    (read,) = load_preferences(str(tmp_path / "out" / "corrections.jsonl")).records
    assert (read.messages, read.chosen, read.rejected) == ((*asked, *TRACE[:2]), "Three.", "It is 3.")
    (vote,) = list_votes(store, study.id)
    assert vote.correction is not None
    assert vote.correction.step == 1
    submit(store, question.id, Answer(choice, 2, correction=Correction("No need to add: 3.", place, 0)))
    assert talk_of(store, rater).messages == (*asked, Message("assistant", "No need to add: 3."))
    (pair,) = training_pairs(label_study(store, study.id, Selection()), ("corrections",))
    assert (pair.record.messages, pair.record.rejected) == (asked, CALLED)


def test_an_address_names_the_endpoint_and_the_model() -> None:
    endpoint = endpoint_of("http://host:8000/v1#org/model-7b", "sesame")
    assert (endpoint.url, endpoint.model, endpoint.key) == ("http://host:8000/v1", "org/model-7b", "sesame")
    assert endpoint_of("https://host/v1").model == ""


def reply(model: EndpointModel) -> str:
    async def scene() -> str:
        return "".join([piece.text async for piece in model.pieces(user("Hi"))])

    return finished(scene())


def test_the_only_model_of_an_endpoint_need_not_be_named() -> None:
    chunk = {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}

    def answer(body: dict[str, Any], number: int) -> Any:
        return {"data": [{"id": "the-one"}]} if body["path"] == "/v1/models" else f"data: {json.dumps(chunk)}\n\n"

    with serving(answer) as served:
        assert reply(EndpointModel(endpoint_of(served.url))) == "Hello"
    assert [asked.get("model") for asked in served.asked] == [None, "the-one"]


@pytest.mark.parametrize(
    ("listed", "words"),
    [({"data": [{"id": "a"}, {"id": "b"}]}, "serves 2 models \\(a, b\\)"), ({"odd": 1}, "does not list models")],
)
def test_where_there_are_several_the_address_must_name_one(listed: dict[str, Any], words: str) -> None:
    with serving(lambda body, number: listed) as served, pytest.raises(TutelageError, match=f"{words}.*#MODEL"):
        reply(EndpointModel(endpoint_of(served.url)))


def test_a_folder_needs_somebody_to_serve_it() -> None:
    with pytest.raises(TutelageError, match="runs/ppo"):
        only_endpoints("runs/ppo")

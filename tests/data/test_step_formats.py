"""Rated steps, in the format of the product and as published."""

import json
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_preferences, load_prompts, load_steps, load_traces
from tutelage.data.records import Message, RatedSteps, ToolCall, user

Row = dict[str, Any]
ASKED = user("How far is it?")


def write(folder: Path, *rows: Row) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def stepwise(*labels: object, **more: object) -> Row:
    steps = [f"Step {number}." for number, _ in enumerate(labels, 1)]
    return {"prompt": "How far is it?", "completions": steps, "labels": list(labels)} | more


def candidate(text: str, rating: int | None, flagged: bool | None = None) -> Row:
    return {"text": text, "rating": rating, "flagged": flagged}


def candidates(*completions: Row, chosen: int | None = None, human: Row | None = None) -> Row:
    return {"completions": list(completions), "human_completion": human, "chosen_completion": chosen}


def prm800k(*steps: Row, **more: object) -> Row:
    return {
        "labeler": "e90a",
        "timestamp": "2022-07-17T16:56:51.323252",
        "generation": None,
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
        "question": {"problem": "How far is it?", "ground_truth_answer": "3"},
        "label": {"steps": list(steps), "total_time": 278, "finish_reason": "found_error"} | more,
    }


def test_labels_are_certain_probabilities_or_missing(tmp_path):
    loaded = load_steps(write(tmp_path, stepwise(True, False, 0.25, None, 1, 0)))
    assert loaded.records[0].labels == (1.0, 0.0, 0.25, None, 1.0, 0.0)
    assert loaded.records[0].messages == ASKED
    assert loaded.records[0].steps[2] == "Step 3."


def test_a_step_of_messages_is_the_assistants_with_what_it_read_then(tmp_path):
    call = {"type": "function", "function": {"name": "map", "arguments": {"to": "b"}}, "id": "1"}
    steps = [
        [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "3 km", "tool_call_id": "1"},
        ],
        [{"role": "assistant", "content": "3 km."}],
    ]
    tool = {"type": "function", "function": {"name": "map"}}
    row = {"prompt": "How far is it?", "tools": [tool], "completions": steps, "labels": [0.9, None]}
    record = load_steps(write(tmp_path, row)).records[0]
    asks = Message("assistant", "", calls=(ToolCall("map", '{"to": "b"}', "1"),))
    assert record.steps == ((asks, Message("tool", "3 km", call_id="1")), (Message("assistant", "3 km."),))
    assert json.loads(record.messages[0].tools[0]) == tool


SAID = {"role": "assistant", "content": "Hm."}
HEARD = {"role": "user", "content": "And?"}


@for_each(
    [
        ({"labels": [1, -1]}, "labels[2]"),
        ({"labels": [1, "good"]}, "labels[2]"),
        ({"labels": [1]}, "labels"),
        ({"labels": "good"}, "labels"),
        ({"completions": ["Step 1.", "  "]}, "completions[2]"),
        ({"completions": ["Step 1.", 2]}, "completions"),
        ({"completions": ["Step 1.", [SAID]]}, "completions"),
        ({"completions": [[HEARD], [SAID]]}, "completions[1]"),
        ({"completions": [[SAID, HEARD, SAID], [SAID]]}, "completions[1]"),
        ({"completions": [[SAID], [SAID]]}, "completions[1]"),
        ({"completions": [], "labels": []}, "completions"),
    ]
)
def test_a_row_that_cannot_be_read_is_named_by_its_column_and_line(changes, place, tmp_path):
    with pytest.raises(TutelageError) as refusal:
        load_steps(write(tmp_path, stepwise(True, False) | changes))
    assert f"{place} " in str(refusal.value)
    assert "line 1" in str(refusal.value)


def test_completions_without_a_rated_step_are_left_out_and_counted(tmp_path):
    loaded = load_steps(write(tmp_path, stepwise(None, None), stepwise(True)))
    assert len(loaded.records) == 1
    assert loaded.places == ("line 2",)
    assert any("1 completion left out" in note for note in loaded.notes)
    with pytest.raises(TutelageError, match="null"):
        load_steps(write(tmp_path, stepwise(None)))


def test_columns_without_a_use_are_said(tmp_path):
    assert any("difficulty" in note for note in load_steps(write(tmp_path, stepwise(True, difficulty=3))).notes)


def test_keys_of_messages_without_a_use_are_said_once(tmp_path):
    steps = [[SAID | {"mood": "calm"}, HEARD], [SAID | {"mood": "calm"}]]
    notes = load_steps(write(tmp_path, stepwise(True, False) | {"completions": steps})).notes
    assert sum("completions.mood" in note for note in notes) == 1


def test_another_kind_of_data_is_named(tmp_path):
    with pytest.raises(TutelageError, match="rated steps"):
        load_preferences(write(tmp_path, stepwise(True)))
    with pytest.raises(TutelageError, match="preferences"):
        load_steps(write(tmp_path, {"prompt": "a", "chosen": "b", "rejected": "c"}))


# PRM800K


def test_every_rating_of_prm800k_counts_once(tmp_path):
    """The chosen steps are one record, and each other candidate is one after the chosen steps before it."""
    row = prm800k(
        candidates(candidate("a", 1), chosen=0),
        candidates(candidate("b", -1), candidate("c", 0), candidate("d", None), chosen=1),
        candidates(candidate("e", -1), candidate("f", 0)),
    )
    loaded = load_steps(write(tmp_path, row))
    assert loaded.records == (
        RatedSteps(ASKED, ("a", "c"), (1.0, 1.0)),
        RatedSteps(ASKED, ("a", "b"), (None, 0.0)),
        RatedSteps(ASKED, ("a", "c", "e"), (None, None, 0.0)),
        RatedSteps(ASKED, ("a", "c", "f"), (None, None, 1.0)),
    )
    assert set(loaded.places) == {"line 1"}
    ratings = [label for record in loaded.records for label in record.labels if label is not None]
    assert sorted(ratings) == [0.0, 0.0, 1.0, 1.0, 1.0]


def test_a_step_that_a_rater_wrote_is_good_and_a_flagged_one_is_not_rated(tmp_path):
    human = {"text": "b", "rating": None, "source": "human", "flagged": False, "corrected_rating": None}
    row = prm800k(
        candidates(candidate("x", 1, flagged=True), chosen=0),
        candidates(candidate("wrong", -1), human=human),
        candidates(candidate("c", 1), chosen=0),
    )
    first, other = load_steps(write(tmp_path, row)).records
    assert first == RatedSteps(ASKED, ("x", "b", "c"), (None, 1.0, 1.0))
    assert other == RatedSteps(ASKED, ("x", "wrong"), (None, 0.0))


@for_each(
    [
        prm800k(candidates(candidate("a", 1), chosen=0)) | {"is_quality_control_question": True},
        prm800k(candidates(candidate("a", 1), chosen=0)) | {"is_initial_screening_question": True},
        prm800k(candidates(candidate("a", 1), chosen=0), finish_reason="bad_problem"),
        prm800k(candidates(candidate("a", 1), chosen=0), finish_reason="give_up"),
        prm800k(),
        prm800k(candidates()),
    ]
)
def test_rows_of_prm800k_that_do_not_rate_a_solution_are_left_out(other, tmp_path):
    path = write(tmp_path, other, prm800k(candidates(candidate("a", 1), chosen=0)))
    for loaded in (load_steps(path), load_traces(path)):
        assert loaded.places == ("line 2",)
        assert any("1 row left out" in note for note in loaded.notes)


@for_each(
    [
        (candidates(candidate("a", 2), chosen=0), "label.steps[1].completions[1].rating"),
        (candidates(candidate("a", 1), chosen=1), "label.steps[1].chosen_completion"),
        (candidates(candidate("", 1), chosen=0), "label.steps[1].completions[1].text"),
        (7, "label.steps[1]"),
    ]
)
def test_a_rating_of_prm800k_that_cannot_be_read_is_named(step, place, tmp_path):
    with pytest.raises(TutelageError) as refusal:
        load_steps(write(tmp_path, prm800k(step)))
    assert f"{place} " in str(refusal.value)
    assert "line 1" in str(refusal.value)


# Math-Shepherd

QUESTION = "How far is it? Step 1: a + b = 3 ки\nStep 2: So it is 4. The answer is: 4 ки"


def test_steps_of_math_shepherd_are_those_before_each_mark(tmp_path):
    row = {"input": QUESTION, "label": QUESTION.replace("ки", "+", 1).replace("ки", "-"), "task": "GSM8K"}
    loaded = load_steps(write(tmp_path, row))
    steps = ("Step 1: a + b = 3", "Step 2: So it is 4. The answer is: 4")
    assert loaded.records == (RatedSteps(ASKED, steps, (1.0, 0.0)),)
    assert not any("not used" in note for note in loaded.notes)


@for_each(
    [
        ({"input": QUESTION + " and more"}, "input"),
        ({"input": QUESTION.replace("Step 1:", "First:")}, "input"),
        ({"label": QUESTION.replace("ки", "?")}, "label"),
        ({"label": QUESTION.replace("ки", "+").replace("a + b", "a - b")}, "label"),
        ({"label": QUESTION.replace("ки", "+") + "\nStep 3: +"}, "label"),
    ]
)
def test_marks_of_math_shepherd_that_do_not_fit_are_refused(changes, column, tmp_path):
    row = {"input": QUESTION, "label": QUESTION.replace("ки", "+"), "task": "GSM8K"} | changes
    with pytest.raises(TutelageError, match=rf"\b{column} "):
        load_steps(write(tmp_path, row))


@for_each(
    [
        stepwise(True, False),
        prm800k(candidates(candidate("a", 1), chosen=0)),
        {"input": QUESTION, "label": QUESTION.replace("ки", "+"), "task": "GSM8K"},
    ]
)
def test_every_format_gives_prompts(row, tmp_path):
    assert load_prompts(write(tmp_path, row)).records[0].messages == ASKED

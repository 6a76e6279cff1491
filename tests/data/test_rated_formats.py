"""Published data sets of rated answers: pairs by the stated rule, and no bad answer as a demonstration."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_demonstrations, load_preferences, load_prompts
from tutelage.data.records import Demonstration, Message, Preference, user

Row = dict[str, Any]


def write(folder: Path, rows: list[Row]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ASPECTS = ("instruction_following", "honesty", "truthfulness", "helpfulness")


def completion(response: str, ratings: list[object], overall: float = 7.0, fine: float | None = None) -> Row:
    found: Row = {
        "annotations": {
            name: {"Rating": rating, "Rationale": "…", "Type": None}
            for name, rating in zip(ASPECTS, ratings, strict=True)
        },
        "custom_system_prompt": "As an AI assistant, be truthful.",
        "model": "alpaca-7b",
        "principle": "truthfulness",
        "response": response,
        "critique": "…",
        "overall_score": overall,
    }
    return found if fine is None else found | {"fine-grained_score": fine}


def ultrafeedback(*completions: Row, instruction: str = "Why?") -> Row:
    return {
        "source": "evol_instruct",
        "instruction": instruction,
        "models": ["alpaca-7b", "gpt-4"],
        "completions": list(completions),
        "correct_answers": ["None"],
        "incorrect_answers": ["None"],
    }


def helpsteer(prompt: str, response: str, helpfulness: int) -> Row:
    return {
        "prompt": prompt,
        "response": response,
        "helpfulness": helpfulness,
        "correctness": 3,
        "coherence": 4,
        "complexity": 2,
        "verbosity": 1,
    }


FOUR = ultrafeedback(
    completion("bad", ["1", "1", "2", "1"], overall=10.0, fine=1.25),
    completion("good", ["5", "4", "5", "5"], overall=8.5, fine=4.75),
    completion("fair", ["3", "3", "3", "3"], overall=8.5, fine=3.0),
    completion("also fair", ["3", "3", "3", "3"], overall=6.0, fine=3.0),
)


def test_every_two_answers_of_a_row_with_different_ratings_are_a_pair(tmp_path: Path) -> None:
    """`overall_score` is not what decides: its 10 for the bad answer is the mistake that the first edition has."""
    loaded = load_preferences(write(tmp_path, [FOUR]))
    order = {"good": 4.75, "fair": 3.0, "also fair": 3.0, "bad": 1.25}
    wanted = {(a, b) for a in order for b in order if order[a] > order[b]}
    assert {(pair.chosen, pair.rejected) for pair in loaded.records} == wanted
    assert len(loaded.records) == len(wanted) == 5
    assert {pair.messages for pair in loaded.records} == {user("Why?")}
    assert loaded.rows == 6
    assert loaded.notes == ("1 pair left out: equal ratings say nothing about which answer is better",)
    assert [prompt.messages for prompt in load_prompts(write(tmp_path, [FOUR])).records] == [user("Why?")]


def test_ratings_are_averaged_where_no_mean_is_given_and_the_overall_score_is_the_last_resort(
    tmp_path: Path,
) -> None:
    rows = [
        ultrafeedback(completion("a", ["4", "N/A", "4", "4"]), completion("b", ["5", "1", "1", "1"])),
        ultrafeedback(completion("c", ["N/A"] * 4, overall=3.0), completion("d", ["N/A"] * 4, overall=9.0)),
        ultrafeedback(completion("e", ["²", *"444"]), completion("f", [*"5555"])),
        ultrafeedback(completion("g", [10**400] * 4), completion("h", [*"5555"])),
    ]
    loaded = load_preferences(write(tmp_path, rows))
    assert [(pair.chosen, pair.rejected) for pair in loaded.records] == [("a", "b"), ("d", "c"), ("f", "e")]


def test_the_best_answer_of_a_row_is_its_demonstration_if_it_is_good(tmp_path: Path) -> None:
    poor = ultrafeedback(
        completion("worse", ["1"] * 4, fine=1.0), completion("poor", ["3"] * 4, fine=3.0), instruction="How?"
    )
    loaded = load_demonstrations(write(tmp_path, [FOUR, poor]))
    assert loaded.records == (Demonstration(user("Why?"), "good"),)
    assert loaded.notes == (
        "4 answers left out: another one to the prompt is rated better",
        "1 prompt left out: no answer is rated above 3",
    )


HELPFUL = [
    helpsteer("Why?", "good", 4),
    helpsteer("How?", "poor", 1),
    helpsteer("Why?", "bad", 0),
    helpsteer("Who?", "alone", 3),
    helpsteer("Why?", "fair", 2),
    helpsteer("How?", "poor too", 1),
]


def test_answers_to_one_prompt_in_several_rows_are_paired(tmp_path: Path) -> None:
    loaded = load_preferences(write(tmp_path, HELPFUL))
    pairs = [("good", "bad"), ("good", "fair"), ("fair", "bad")]
    assert loaded.records == tuple(Preference(user("Why?"), a, b) for a, b in pairs)
    assert loaded.notes == (
        "1 pair left out: equal ratings say nothing about which answer is better",
        "1 answer left out: the only one to its prompt makes no pair",
    )
    assert loaded.rows == len(list(combinations(range(3), 2))) + 1 + 1


def test_bad_answers_are_no_demonstrations(tmp_path: Path) -> None:
    loaded = load_demonstrations(write(tmp_path, HELPFUL))
    assert loaded.records == (Demonstration(user("Why?"), "good"), Demonstration(user("Who?"), "alone"))
    assert sum(int(note.split()[0]) for note in loaded.notes) == 4
    assert any("1 prompt left out: no answer is rated above 2" in note for note in loaded.notes)
    with pytest.raises(TutelageError, match=r"No row of .* \(1 row read as .* no answer is rated above 2"):
        load_demonstrations(write(tmp_path, [HELPFUL[1]]))


def test_the_turns_of_a_helpsteer_prompt_are_told_apart(tmp_path: Path) -> None:
    marked = "Hi\n<extra_id_1>Assistant\nHello.\n\nYes?\n<extra_id_1>User\nWhy?"
    path = write(tmp_path, [helpsteer(marked, "good", 4), helpsteer(marked, "bad", 1)])
    talk = (*user("Hi"), Message("assistant", "Hello.\n\nYes?"), Message("user", "Why?"))
    assert load_preferences(path).records == (Preference(talk, "good", "bad"),)
    assert [prompt.messages for prompt in load_prompts(path).records] == [talk]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ultrafeedback(), "completions is no list of answers"),
        (ultrafeedback(completion("a", ["N/A"] * 4) | {"overall_score": None}), "an answer has no rating"),
        (FOUR | {"instruction": None}, "instruction is missing"),
    ],
)
def test_rows_without_answers_or_ratings_are_skipped(tmp_path: Path, row: Row, reason: str) -> None:
    loaded = load_preferences(write(tmp_path, [FOUR, row, FOUR]), tolerate=0.5)
    assert [skipped.reason for skipped in loaded.skipped] == [reason]
    assert len(loaded.records) == 10

"""Published data sets of compared and of rated answers, in the shape in which they are published."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_demonstrations, load_preferences, load_prompts
from tutelage.data.records import Demonstration, Message, Messages, Preference, user

Row = dict[str, Any]

ASKED = user("Why is it dark?")
TALK: Messages = (*user("Hi"), Message("assistant", "Hello."), Message("user", "Why is it dark?"))


def write(folder: Path, rows: list[Row]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def said(*turns: str) -> list[dict[str, str]]:
    return [{"content": turn, "role": "assistant" if i % 2 else "user"} for i, turn in enumerate(turns)]


def shp(label: int) -> Row:
    return {
        "post_id": "qt3nxl",
        "domain": "askculinary_train",
        "upvote_ratio": 0.98,
        "history": "Why is it dark?",
        "c_root_id_A": "hkh25sc",
        "c_root_id_B": "hkh25lp",
        "created_at_utc_A": 1636822112,
        "created_at_utc_B": 1636822110,
        "score_A": 340,
        "score_B": 166,
        "human_ref_A": "Night.",
        "human_ref_B": "Switch.",
        "labels": label,
        "seconds_difference": 2.0,
        "score_ratio": 2.0481927711,
    }


def webgpt(score: float) -> Row:
    return {
        "question": {"dataset": "eli5", "id": "63x2zd", "full_text": "Why is it dark?"},
        "quotes_0": {"title": ["Dark (example.com)"], "extract": ["It is night."]},
        "answer_0": "Night.",
        "tokens_0": {"prefix": [1, 2], "completion": [3]},
        "score_0": score,
        "quotes_1": {"title": [], "extract": []},
        "answer_1": "Switch.",
        "tokens_1": {"prefix": [1], "completion": [4]},
        "score_1": -score,
    }


def helpsteer2(strength: int) -> Row:
    return {
        "split": "train",
        "prompt": "Hi\n<extra_id_1>Assistant\nHello.\n<extra_id_1>User\nWhy is it dark?",
        "response_1": "Night.",
        "response_2": "Switch.",
        "preference_strength": strength,
        "preference_statement": "Response 1 is better than Response 2.",
        "preference_elaboration": "It is true.",
        "three_most_similar_preferences": [],
        "all_preferences_unprocessed": [],
    }


def helpsteer3(preference: int) -> Row:
    return {
        "domain": "general",
        "language": "english",
        "context": said("Hi", "Hello.", "Why is it dark?"),
        "response1": "Night.",
        "response2": "Switch.",
        "overall_preference": preference,
        "individual_preference": [{"score": preference, "reasoning": "…", "feedback1": "…", "feedback2": "…"}],
    }


def arena(winner: str) -> Row:
    return {
        "question_id": "58210e39b3fd4441a2bd4a518bb44c2d",
        "model_a": "chatglm-6b",
        "model_b": "koala-13b",
        "winner": winner,
        "judge": "arena_user_973",
        "conversation_a": said("Why is it dark?", "Night."),
        "conversation_b": said("Why is it dark?", "Switch."),
        "turn": 1,
        "anony": True,
        "language": "English",
        "tstamp": 1682351654.6681,
        "openai_moderation": {"flagged": False},
        "toxic_chat_tag": {},
    }


def arena_140k(winner: str) -> Row:
    """Contents are lists of parts here."""

    def parts(turns: list[dict[str, str]]) -> list[Row]:
        return [
            {"role": turn["role"], "content": [{"type": "text", "text": turn["content"], "image": None}]}
            for turn in turns
        ]

    row = arena(winner)
    return {
        "id": "c4b9710c",
        "model_a": "a",
        "model_b": "b",
        "winner": winner,
        "evaluation_order": 4,
        "conversation_a": parts(row["conversation_a"]),
        "conversation_b": parts(row["conversation_b"]),
        "conv_metadata": {},
        "category_tag": {},
        "language": "en",
        "is_code": False,
    }


def arena_55k(a: int, b: int, tie: int) -> Row:
    return {
        "id": 30192,
        "model_a": "gpt-4-1106-preview",
        "model_b": "gpt-4-0613",
        "prompt": '["Why is it dark?"]',
        "response_a": '["Night."]',
        "response_b": '["Switch."]',
        "winner_model_a": a,
        "winner_model_b": b,
        "winner_tie": tie,
    }


DATA_SETS: dict[str, tuple[Row, Row, Row | None, Messages]] = {
    "SHP": (shp(1), shp(0), None, ASKED),
    "WebGPT": (webgpt(0.5), webgpt(-1.0), webgpt(0.0), ASKED),
    "HelpSteer2": (helpsteer2(-2), helpsteer2(1), helpsteer2(0), TALK),
    "HelpSteer3": (helpsteer3(-3), helpsteer3(1), helpsteer3(0), TALK),
    "Arena": (arena("model_a"), arena("model_b"), arena("tie (bothbad)"), ASKED),
    "Arena 140k": (arena_140k("model_a"), arena_140k("model_b"), arena_140k("both_bad"), ASKED),
    "Arena 55k": (arena_55k(1, 0, 0), arena_55k(0, 1, 0), arena_55k(0, 0, 1), ASKED),
}
"""Rows of which the first answer is preferred, the second, none; and the prompt."""


@pytest.mark.parametrize(("first", "second", "tie", "asked"), DATA_SETS.values(), ids=DATA_SETS)
def test_the_verdict_says_which_answer_is_chosen(
    tmp_path: Path, first: Row, second: Row, tie: Row | None, asked: Messages
) -> None:
    path = write(tmp_path, [first, second] if tie is None else [first, second, tie])
    loaded = load_preferences(path)
    assert loaded.records == (Preference(asked, "Night.", "Switch."), Preference(asked, "Switch.", "Night."))
    assert loaded.skipped == ()
    shown = load_demonstrations(path)
    assert shown.records == (Demonstration(asked, "Night."), Demonstration(asked, "Switch."))
    if tie is not None:
        assert any("1 row left out: a tie" in note for note in loaded.notes)
        assert any("1 row left out: a tie" in note for note in shown.notes)
    assert [prompt.messages for prompt in load_prompts(path).records] == [asked]


@pytest.mark.parametrize(("first", "second", "tie", "asked"), DATA_SETS.values(), ids=DATA_SETS)
def test_a_file_of_ties_alone_is_refused_with_the_reason(
    tmp_path: Path, first: Row, second: Row, tie: Row | None, asked: Messages
) -> None:
    if tie is None:
        pytest.skip("this data set has no ties")
    with pytest.raises(TutelageError, match=r"No row of .* \(1 row read as .* tie"):
        load_preferences(write(tmp_path, [tie]))


def test_the_answers_of_a_row_stay_columns_of_its_prompt(tmp_path: Path) -> None:
    (prompt,) = load_prompts(write(tmp_path, [shp(1)])).records
    assert prompt.data["human_ref_A"] == "Night."
    assert "history" not in prompt.data


def test_conversations_of_several_turns_are_left_out_of_pairs_and_asked_from_their_start(tmp_path: Path) -> None:
    long = arena("model_a") | {
        "conversation_a": said("Hi", "Hello.", "Why?", "Night."),
        "conversation_b": said("Hi", "Hey.", "Why?", "Switch."),
    }
    listed = arena_55k(1, 0, 0) | {"prompt": '["Hi", "Why?"]', "response_a": '["a", "b"]', "response_b": '["c", "d"]'}
    for row, plain in ((long, arena("model_a")), (listed, arena_55k(1, 0, 0))):
        loaded = load_preferences(write(tmp_path, [row, plain]))
        assert len(loaded.records) == 1
        assert any("1 conversation left out: its turns differ before the last answer" in note for note in loaded.notes)
        asked = load_prompts(write(tmp_path, [row, plain])).records
        assert [prompt.messages for prompt in asked] == [user("Hi"), ASKED]


@for_each(
    [
        (shp(1), {"labels": "A"}, "labels is neither true nor false"),
        (shp(1), {"human_ref_B": ""}, "human_ref_B is empty"),
        (webgpt(1), {"score_0": 2}, r"score_0 is outside \[-1, 1\]"),
        (webgpt(1), {"question": {"full_text": ""}}, "full_text is empty"),
        (helpsteer2(1), {"preference_strength": 7}, "preference_strength is outside"),
        (helpsteer2(1), {"prompt": "Hi\n<extra_id_1>Assistant\nHello."}, "ends with an assistant turn"),
        (helpsteer3(1), {"context": said("Hi", "Hello.")}, "ends with an assistant turn"),
        (arena("model_a"), {"winner": "chatglm-6b"}, "winner is 'chatglm-6b'"),
        (arena("model_a"), {"conversation_b": said("Else?", "No.")}, "ask different things"),
        (arena("model_a"), {"conversation_a": said("Why?")}, "conversation_a is not an answered"),
        (arena("model_a"), {"conversation_b": said("Why is it dark?")}, "conversation_b is not an answered"),
        (arena_55k(1, 0, 0), {"response_a": "Night."}, "response_a is no JSON list"),
        (arena_55k(1, 0, 0), {"response_a": "[null]"}, "response_a is missing"),
    ]
)
def test_a_row_that_cannot_be_read_is_skipped_with_its_reason(
    good: Row, changes: Row, reason: str, tmp_path: Path
) -> None:
    loaded = load_preferences(write(tmp_path, [good, good | changes]))
    assert len(loaded.records) == 1
    (skipped,) = loaded.skipped
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(skipped.reason)


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


def test_ratings_are_averaged_where_no_mean_is_given_and_the_overall_score_is_the_last_resort(tmp_path: Path) -> None:
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


def nectar(*ranks: float, prompt: str = "\n\nHuman: Why is it dark?\n\nAssistant: ") -> dict[str, Any]:
    return {
        "prompt": prompt,
        "answers": [{"answer": f"At rank {rank:g}.", "model": f"model-{rank:g}", "rank": rank} for rank in ranks],
        "turns": 1,
        "num_responses": len(ranks),
        "source": ["lmsys-chat-1m"],
        "good_natured": True,
    }


def test_ranked_answers_are_all_pairs_with_the_better_rank_chosen(tmp_path: Path) -> None:
    loaded = load_preferences(write(tmp_path, [nectar(2.0, 1.0, 3.0, 3.0)]))
    pairs = [("1", "2"), ("2", "3"), ("2", "3"), ("1", "3"), ("1", "3")]
    assert sorted(loaded.records, key=repr) == sorted(
        (Preference(ASKED, f"At rank {one}.", f"At rank {other}.") for one, other in pairs), key=repr
    )
    assert any("1 pair left out" in note for note in loaded.notes)
    assert not any("not used" in note for note in loaded.notes)


def test_the_best_ranked_answer_is_the_demonstration(tmp_path: Path) -> None:
    path = write(tmp_path, [nectar(4.0, 2.0, 7.0)])
    assert load_demonstrations(path).records == (Demonstration(ASKED, "At rank 2."),)


def test_the_turns_of_a_ranked_prompt_are_messages(tmp_path: Path) -> None:
    talk = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Why is it dark?\n\nAssistant: "
    asked = (*user("Hi"), Message("assistant", "Hello."), *ASKED)
    path = write(tmp_path, [nectar(1.0, 2.0, prompt=talk)])
    assert [record.messages for record in load_preferences(path).records] == [asked]
    assert [prompt.messages for prompt in load_prompts(path).records] == [asked]


def test_an_answer_without_a_rank_is_named_with_its_row(tmp_path: Path) -> None:
    broken = nectar(1.0, 2.0)
    broken["answers"][1]["rank"] = None
    loaded = load_preferences(write(tmp_path, [nectar(1.0, 2.0), broken]))
    assert [(item.reason, item.examples) for item in loaded.skipped] == [("rank is missing", ("line 2",))]

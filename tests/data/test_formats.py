"""Every known column set becomes the same records, and every row that does not become one is accounted for."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.formats import (
    LoadedRecords,
    load_completions,
    load_demonstrations,
    load_preferences,
    load_prompts,
    load_texts,
    load_unpaired,
)
from tutelage.data.records import (
    Demonstration,
    ImagePart,
    Message,
    Messages,
    Preference,
    Prompt,
    ToolCall,
    UnpairedAnswer,
    tools_of,
    user,
)

Rows = list[dict[str, object]]


def write(folder: Path, rows: Rows, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def said(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def shared(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": speaker, "value": content} for speaker, content in turns]


ASKED = user("Why?")
BRIEF = (Message("system", "Be brief."), *ASKED)
TALK = (*user("Hi"), Message("assistant", "Hello"), Message("user", "Why?"))
TALKED = [("user", "Hi"), ("assistant", "Hello"), ("user", "Why?")]

DEMONSTRATED: list[tuple[dict[str, object], Messages]] = [
    ({"instruction": "Why?", "context": "", "response": "So."}, ASKED),
    (
        {"instruction": "Why?", "context": "Rain falls.", "response": "So.", "category": "qa"},
        user("Why?\n\nRain falls."),
    ),
    ({"instruction": "Why?", "response": "So."}, ASKED),
    ({"instruction": "Why?", "input": "Rain.", "output": "So.", "text": "Why? Rain. So."}, user("Why?\n\nRain.")),
    ({"instruction": "Why?", "output": "So.", "system": "Be brief."}, BRIEF),
    ({"prompt": "Why?", "completion": "So."}, ASKED),
    ({"prompt": said(*TALKED), "completion": said(("assistant", "So."))}, TALK),
    ({"prompt": "Why?", "response": "So.", "system": ""}, ASKED),
    ({"question": "Why?", "answer": "So."}, ASKED),
    ({"system_prompt": "Be brief.", "question": "Why?", "response": "So."}, BRIEF),
    ({"messages": said(*TALKED, ("assistant", "So."))}, TALK),
    ({"messages": json.dumps(said(*TALKED, ("assistant", "So.")))}, TALK),
    ({"messages": said(("developer", "Be brief."), ("user", "Why?"), ("assistant", "So."))}, BRIEF),
    ({"conversations": shared(("human", "Hi"), ("gpt", "Hello"), ("human", "Why?"), ("gpt", "So."))}, TALK),
    ({"conversations": shared(("system", "Be brief."), ("human", "Why?"), ("gpt", "So."))}, BRIEF),
    ({"text": "So."}, ()),
    ({"text": "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nSo.<|im_end|>\n"}, ASKED),
    ({"text": json.dumps(said(("user", "Why?"), ("assistant", "So.")))}, ASKED),
    ({"question": json.dumps(said(*TALKED)), "answer": repr(said(("assistant", "So.")))}, TALK),
    ({"chat": "USER: Why?\n\n\nASSISTANT: So. <|endoftext|>", "system": "SYSTEM: Be brief."}, BRIEF),
    ({"system": "Be brief.", "messages": said(("user", "Why?"), ("assistant", "So."))}, BRIEF),
    ({"prompt": "Why?", "completion": "So.", "label": True}, ASKED),
    ({"prompt": "Why?", "completion": "So.", "label": "physics"}, ASKED),
]


@for_each(DEMONSTRATED)
def test_demonstrations_of_every_shape(row: dict[str, object], messages: Messages, tmp_path: Path) -> None:
    loaded = load_demonstrations(write(tmp_path, [row]))
    assert loaded.records == (Demonstration(messages, "So."),)
    assert loaded.skipped == ()
    assert set(loaded.columns) <= set(row)


@for_each([case for case in DEMONSTRATED if case[1]])
def test_demonstrations_serve_as_prompts(row: dict[str, object], messages: Messages, tmp_path: Path) -> None:
    assert [prompt.messages for prompt in load_prompts(write(tmp_path, [row])).records] == [messages]


def transcript(*turns: str) -> str:
    speakers = ("Human", "Assistant")
    return "".join(f"\n\n{speakers[i % 2]}: {turn}" for i, turn in enumerate(turns))


PREFERRED: list[tuple[dict[str, object], Messages]] = [
    ({"prompt": "Why?", "chosen": "Yes.", "rejected": "No."}, ASKED),
    ({"prompt": said(*TALKED), "chosen": said(("assistant", "Yes.")), "rejected": said(("assistant", "No."))}, TALK),
    ({"prompt": said(*TALKED), "chosen": "Yes.", "rejected": "No."}, TALK),
    (
        {
            "prompt": "Why?",
            "chosen": said(("user", "Why?"), ("assistant", "Yes.")),
            "rejected": said(("user", "Why?"), ("assistant", "No.")),
            "messages": said(("user", "Why?"), ("assistant", "Yes.")),
        },
        ASKED,
    ),
    ({"instruction": "Why?", "input": "", "output": "No.", "chosen": "Yes.", "rejected": "No."}, ASKED),
    ({"instruction": "Why?", "input": "Rain.", "chosen": "Yes.", "rejected": "No."}, user("Why?\n\nRain.")),
    ({"system": "Be brief.", "question": "Why?", "chosen": "Yes.", "rejected": "No."}, BRIEF),
    ({"chosen": said(*TALKED, ("assistant", "Yes.")), "rejected": said(*TALKED, ("assistant", "No."))}, TALK),
    ({"chosen": transcript("Hi", "Hello", "Why?", "Yes."), "rejected": transcript("Hi", "Hello", "Why?", "No.")}, TALK),
    ({"prompt": transcript("Hi", "Hello", "Why?", ""), "chosen": "Yes.", "rejected": "No."}, TALK),
    ({"system": "Be brief.", "input": "Why?", "chosen": "Yes.", "rejected": "No.", "rating": [9, 4]}, BRIEF),
    (
        {
            "conversations": shared(("human", "Why?")),
            "chosen": {"from": "gpt", "value": "Yes."},
            "rejected": {"from": "gpt", "value": "No."},
        },
        ASKED,
    ),
    ({"instruction": "Why?", "input": "", "output": ["Yes.", "No."]}, ASKED),
    (
        {
            "input": {"messages": said(("user", "Why?"))},
            "preferred_output": said(("assistant", "Yes.")),
            "non_preferred_output": said(("assistant", "No.")),
        },
        ASKED,
    ),
    ({"messages": said(("user", "Why?"), ("assistant", "Yes.")), "rejected_response": "No."}, ASKED),
    (
        {
            "messages": said(("user", "Why?"), ("assistant", "Yes.")),
            "rejected_messages": said(("user", "Why?"), ("assistant", "No.")),
        },
        ASKED,
    ),
    ({"prompt": repr(said(*TALKED)), "chosen": repr(said(("assistant", "Yes."))), "rejected": "No."}, TALK),
    (
        {
            "prompt": "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
            "chosen": "Yes.<|im_end|>\n",
            "rejected": "No.<|im_end|>",
        },
        ASKED,
    ),
    ({"chosen": "Question: Why? Yes.", "rejected": "Question: Why? No."}, user("Question: Why?")),
    ({"chosen": "Q: Why?\nYes.", "rejected": "Q: Why?\nNo."}, user("Q: Why?")),
]


@for_each(PREFERRED)
def test_preferences_of_every_shape(row: dict[str, object], messages: Messages, tmp_path: Path) -> None:
    path = write(tmp_path, [row])
    assert load_preferences(path).records == (Preference(messages, "Yes.", "No."),)
    assert load_demonstrations(path).records == (Demonstration(messages, "Yes."),)
    assert [prompt.messages for prompt in load_prompts(path).records] == [messages]


def test_preferences_carry_their_labels(tmp_path: Path) -> None:
    row = {"prompt": "Why?", "chosen": "Yes.", "rejected": "No.", "p_chosen": 0.75, "weight": 2, "margin": 0.5}
    assert load_preferences(write(tmp_path, [row])).records == (Preference(ASKED, "Yes.", "No.", 0.75, 2.0, 0.5),)
    path = tmp_path / "rows.csv"
    path.write_text("prompt,chosen,rejected,p_chosen,margin\nWhy?,Yes.,No.,0.75,\n")
    assert load_preferences(path).records == (Preference(ASKED, "Yes.", "No.", 0.75),)


def test_decimal_commas_are_read_and_thousands_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("prompt;chosen;rejected;weight\nWhy?;Yes.;No.;0,750\nHow?;Yes.;No.;1,5\nWho?;Yes.;No.;1,500\n")
    loaded = load_preferences(path)
    assert [one.weight for one in loaded.records] == [0.75, 1.5]
    assert [(item.count, item.examples) for item in loaded.skipped] == [(1, ("line 4",))]


def test_a_shared_beginning_ends_between_words(tmp_path: Path) -> None:
    """Both answers begin with "th"; no word is torn apart."""
    row: dict[str, object] = {"chosen": "Who is it? that one", "rejected": "Who is it? the other"}
    assert load_preferences(write(tmp_path, [row])).records == (
        Preference(user("Who is it?"), "that one", "the other"),
    )


def test_words_with_which_both_answers_begin_stay_with_the_answers(tmp_path: Path) -> None:
    rows: Rows = [
        {"chosen": "Q: Why?\nThe sun sets.", "rejected": "Q: Why?\nThe lamp broke."},
        {"chosen": "Why is it dark? It is night.", "rejected": "Why is it dark? It is broken."},
        {"chosen": "Once there was a cat", "rejected": "Once there was a dog"},
    ]
    loaded = load_preferences(write(tmp_path, rows))
    assert loaded.records == (
        Preference(user("Q: Why?"), "The sun sets.", "The lamp broke."),
        Preference(user("Why is it dark?"), "It is night.", "It is broken."),
        Preference(user("Once there was a"), "cat", "dog"),
    )
    (note,) = loaded.notes
    assert note.startswith("the prompt of each pair is what both texts begin with")
    assert note.endswith("1 pair parts within the first sentence, where every word that both texts have is prompt")


def test_names_of_columns_count_in_any_case(tmp_path: Path) -> None:
    rows: Rows = [{"Prompt": "Why?", "CHOSEN": "Yes.", " Rejected ": "No.", "Topic": "sky"}]
    path = write(tmp_path, rows)
    assert load_preferences(path).records == (Preference(ASKED, "Yes.", "No."),)
    assert load_demonstrations(path).records == (Demonstration(ASKED, "Yes."),)
    (prompt,) = load_prompts(path).records
    assert prompt.messages == ASKED
    assert prompt.data == {"CHOSEN": "Yes.", " Rejected ": "No.", "Topic": "sky"}


def test_the_exact_name_of_a_column_wins_and_two_others_are_a_question(tmp_path: Path) -> None:
    exact: Rows = [{"prompt": "Why?", "Prompt": "Who?", "completion": "So."}]
    assert load_demonstrations(write(tmp_path, exact)).records == (Demonstration(ASKED, "So."),)
    with pytest.raises(TutelageError, match="columns Prompt, PROMPT, completion"):
        load_demonstrations(write(tmp_path, [{"Prompt": "Why?", "PROMPT": "Who?", "completion": "So."}]))


def test_a_speaker_named_twice_goes_on_speaking(tmp_path: Path) -> None:
    chosen = transcript("Why?", "Because.")
    rejected = "\n\nHuman: Why?\n\nAssistant: One.\n\nAssistant: Two."
    loaded = load_preferences(write(tmp_path, [{"chosen": chosen, "rejected": rejected}]))
    assert loaded.records == (Preference(ASKED, "Because.", "One.\n\nTwo."),)


def test_a_missing_rejected_answer_matters_to_preferences_only(tmp_path: Path) -> None:
    for row in ({"prompt": "Why?"} | hh("Yes.", ""), hh(transcript("Why?", "Yes."), transcript("Why?", ""))):
        path = write(tmp_path, [row])
        assert load_demonstrations(path).records == (Demonstration(ASKED, "Yes."),)
        assert [prompt.messages for prompt in load_prompts(path).records] == [ASKED]
        with pytest.raises(TutelageError, match="rejected is empty"):
            load_preferences(path)


def test_every_answer_of_a_conversation_can_be_the_response(tmp_path: Path) -> None:
    talked = said(*TALKED, ("assistant", "So."))
    path = write(tmp_path, [{"messages": talked}, {"messages": talked[2:]}])
    last = load_demonstrations(path)
    assert last.records == (Demonstration(TALK, "So."), Demonstration(ASKED, "So."))
    assert last.notes == ("1 conversation has several answers, of which only the last is the response",)
    every = load_demonstrations(path, answers="every")
    assert every.records == (
        Demonstration(user("Hi"), "Hello"),
        Demonstration(TALK, "So."),
        Demonstration(ASKED, "So."),
    )
    assert "3 in all" in every.describe()


def test_a_completion_may_be_calls_their_results_and_an_answer(tmp_path: Path) -> None:
    call = {"role": "assistant", "tool_calls": [{"name": "weather", "arguments": {}}]}
    completion = [call, {"role": "tool", "content": "22"}, {"role": "assistant", "content": "It is 22."}]
    path = write(tmp_path, [{"prompt": "Rain?", "completion": completion}])
    asked = user("Rain?")
    called = Message("assistant", "", calls=(ToolCall("weather", "{}"),))
    last = Demonstration((*asked, called, Message("tool", "22")), "It is 22.")
    assert load_demonstrations(path).records == (last,)
    assert load_demonstrations(path, answers="every").records == (Demonstration(asked, called), last)
    for wrong in ([*completion, {"role": "user", "content": "So?"}], completion[:2]):
        with pytest.raises(TutelageError, match="completion"):
            load_demonstrations(write(tmp_path, [{"prompt": "Rain?", "completion": wrong}]))


def test_calls_and_schemas_of_a_table_are_those_of_its_rows(tmp_path: Path) -> None:
    """A Parquet file gives each object the keys of all rows, null where a row had none."""

    def row(name: str, arguments: dict[str, object]) -> dict[str, object]:
        properties = {key: {"type": "string"} for key in arguments}
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        tool = {"name": name, "parameters": {"type": "object", "properties": properties}}
        messages = [{"role": "user", "content": "Do."}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        return {"messages": messages, "tools": [{"type": "function", "function": tool}]}

    rows = [row("move", {"x": "1", "at": {"once": "y"}}), row("say", {"text": "hi", "at": {"place": "z"}})]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    exact = load_demonstrations(write(tmp_path, rows))
    loaded = load_demonstrations(tmp_path / "rows.parquet")
    for one, other in zip(loaded.records, exact.records, strict=True):
        assert json.loads(one.response.calls[0].arguments) == json.loads(other.response.calls[0].arguments)
        assert [json.loads(tool) for tool in tools_of(one.messages)] == [
            json.loads(t) for t in tools_of(other.messages)
        ]
    assert sum("null" in note for note in loaded.notes) == 2
    assert not any("null" in note for note in exact.notes)


def test_turns_that_both_sides_have_belong_to_the_prompt(tmp_path: Path) -> None:
    def loaded(one: list[dict[str, str]], other: list[dict[str, str]]) -> Preference:
        sides = {"chosen": [*one, *said(("assistant", "A"))], "rejected": [*other, *said(("assistant", "B"))]}
        return load_preferences(write(tmp_path, [{"prompt": "Hi?", **sides}])).records[0]

    asked, begun, elsewhere = (
        said(("user", "Hi?"), *more)
        for more in ((), (("assistant", "Yes."), ("user", "And?")), (("assistant", "No."), ("user", "And?")))
    )
    for sides, prompt in (((begun, begun), ["Hi?", "Yes.", "And?"]), ((asked, asked), ["Hi?"])):
        record = loaded(*sides)
        assert [message.content for message in record.messages] == prompt
        assert (record.chosen, record.rejected) == ("A", "B")
    for sides in ((begun, elsewhere), (begun, asked), (said(("user", "Else?")), said(("user", "Else?")))):
        with pytest.raises(TutelageError, match="is not one assistant message"):
            loaded(*sides)


def test_answers_of_weight_0_are_not_learnt(tmp_path: Path) -> None:
    talk = said(("user", "2+2?"), ("assistant", "Five."), ("user", "Sure?"), ("assistant", "Four."))
    right = [turn | ({"weight": i // 2} if i % 2 else {}) for i, turn in enumerate(talk)]
    wrong = [turn | ({"trainable": i == 1} if i % 2 else {}) for i, turn in enumerate(talk)]
    path = write(tmp_path, [{"messages": right}, {"messages": wrong}])
    assert [one.response for one in load_demonstrations(path, answers="every").records] == ["Four.", "Five."]
    last = load_demonstrations(path)
    assert [(one.response, one.weight) for one in last.records] == [("Four.", 1.0)]
    assert "1 answer left out: of weight 0" in last.notes
    with pytest.raises(TutelageError, match="weight 0"):
        load_demonstrations(write(tmp_path, [{"prompt": "Why?", "completion": "So.", "weight": 0}]))


# Columns that no record is made of -----------------------------------------------------------------------------------


RATED = [{"response": text, "fine-grained_score": score} for text, score in (("Yes.", 4), ("No.", 2))]
UNREAD: list[tuple[Callable[[Path], LoadedRecords[object]], dict[str, object], str]] = [
    (load_demonstrations, {"messages": said(("user", "Why?"), ("assistant", "So.")), "split": "test"}, "split"),
    (load_demonstrations, {"prompt": "Why?", "completion": "So.", "response": "No."}, "response"),
    (load_preferences, {"prompt": "Why?", "chosen": "Yes.", "rejected": "No.", "messages": said(*TALKED)}, "messages"),
    (load_preferences, {"question": "Why?", "answer_0": "a", "answer_1": "b", "score_0": 1, "topic": 0}, "topic"),
    (load_preferences, {"instruction": "Why?", "completions": RATED, "topic": "sky"}, "topic"),
    (load_demonstrations, {"prompt": "Why?", "response": "So.", "helpfulness": 4, "verbosity": 2, "mood": 1}, "mood"),
    (load_prompts, {"messages": said(*TALKED), "prompt": "Why?"}, "messages"),
    (load_prompts, {"prompt": [{"role": "user", "content": "Why?", "mood": "calm"}]}, "prompt.mood"),
    (load_unpaired, {"prompt": "Why?", "completion": "So.", "label": True, "rating": 3}, "rating"),
    (load_texts, {"text": "So.", "title": "That"}, "title"),
    (load_completions, {"id": "a", "prompt_id": "b", "text": "So.", "sampler": "m", "note": "x"}, "note"),
]


@for_each(UNREAD)
def test_a_column_that_is_not_used_is_said(load, row, column, tmp_path) -> None:
    loaded = load(write(tmp_path, [row | {"source": "web", "row_id": 7, "tags": []}]))
    assert [note for note in loaded.notes if note.startswith("not used")] == [f"not used: {column} (line 1)"]


def test_unused_columns_are_counted_in_one_line(tmp_path: Path) -> None:
    rows: Rows = [GOOD, GOOD | {"topic": "sky", "prompt": "How?"}, GOOD | {"topic": "sea", "prompt": "Who?", "mood": 3}]
    (note,) = load_preferences(write(tmp_path, rows)).notes
    assert note == "not used: mood (line 3), topic (2 rows, from line 2 on)"


def test_a_prompt_is_not_guessed_while_a_column_may_hold_it(tmp_path: Path) -> None:
    rows: Rows = [
        {"query": f"Explain {word} now.", "chosen": f"Sure! {word} is it.", "rejected": f"Sure! I like {word}."}
        for word in ("rain", "snow", "wind")
    ]
    for load in (load_preferences, load_demonstrations, load_prompts):
        with pytest.raises(TutelageError, match="column query"):
            load(write(tmp_path, rows))
    assert len(load_preferences(write(tmp_path, [row | {"query": "-"} for row in rows])).records) == 3


def test_unpaired_labels(tmp_path: Path) -> None:
    rows: Rows = [{"prompt": "Why?", "completion": f"{i}", "label": label} for i, label in enumerate([True, 0, "true"])]
    path = write(tmp_path, rows)
    labels = (True, False, True)
    assert load_unpaired(path).records == tuple(UnpairedAnswer(ASKED, f"{i}", label) for i, label in enumerate(labels))
    shown = load_demonstrations(path)
    assert [record.response for record in shown.records] == ["0", "2"]
    assert shown.notes == ("1 answer left out: labelled bad",)


def test_texts(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("One.\nStill one.\n\nTwo.\n")
    assert load_texts(path).records == ("One.\nStill one.", "Two.")
    assert load_demonstrations(path).records == (Demonstration((), "One.\nStill one."), Demonstration((), "Two."))
    assert [prompt.messages for prompt in load_prompts(path).records] == [user("One.\nStill one."), user("Two.")]


def test_a_text_file_of_prompts_line_by_line_is_not_one_prompt(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("Explain rain.\nExplain snow.\n")
    with pytest.raises(TutelageError, match="blank lines"):
        load_prompts(path)


# Prompts --------------------------------------------------------------------------------------------------------------


def test_prompts_keep_their_ids_and_splits(tmp_path: Path) -> None:
    rows: Rows = [
        {"id": "a", "prompt": "Why?", "split": "train"},
        {"id": 7, "messages": said(*TALKED), "split": "held_out"},
        {"prompt": "How?", "split": "test"},
    ]
    first, second, third = load_prompts(write(tmp_path, rows)).records
    assert (first, second) == (Prompt("a", ASKED), Prompt("7", TALK, "held_out"))
    assert third.split == "held_out"


def test_prompts_without_ids_get_the_same_ones_everywhere(tmp_path: Path) -> None:
    one = load_prompts(
        write(tmp_path, [{"instruction": "Why?", "output": "So."}, {"instruction": "How?", "output": "."}])
    )
    other = load_prompts(write(tmp_path, [{"prompt": "How?"}, {"prompt": "Why?"}], "other.jsonl"))
    assert {prompt.id for prompt in one.records} == {prompt.id for prompt in other.records}
    assert len({prompt.id for prompt in one.records}) == 2


def test_a_repeated_prompt_is_kept_once_and_counted(tmp_path: Path) -> None:
    loaded = load_prompts(write(tmp_path, [{"prompt": "Why?"}] * 9 + [{"prompt": "How?"}]))
    assert len(loaded.records) == 2
    assert loaded.notes == ("8 rows left out: the prompt is in an earlier row, and is kept once",)


def test_an_id_used_for_two_prompts_is_skipped(tmp_path: Path) -> None:
    loaded = load_prompts(write(tmp_path, [{"id": "a", "prompt": "Why?"}, {"id": "a", "prompt": "How?"}]))
    assert [prompt.messages for prompt in loaded.records] == [ASKED]
    assert [(item.reason, item.examples) for item in loaded.skipped] == [
        ("the id of an earlier, different prompt", ("line 2",))
    ]


# Rows that cannot be used --------------------------------------------------------------------------------------------

GOOD: dict[str, object] = {"prompt": "Why?", "chosen": "Yes.", "rejected": "No."}
UNUSABLE: list[tuple[dict[str, object], str]] = [
    (GOOD | {"chosen": "No."}, "chosen equals rejected"),
    (GOOD | {"chosen": " No.\n"}, "chosen equals rejected"),
    (GOOD | {"chosen": ""}, "the answer in chosen is empty"),
    (GOOD | {"chosen": None}, "chosen is missing"),
    ({"prompt": "Why?", "chosen": "Yes."}, "rejected is missing"),
    (GOOD | {"prompt": "  "}, "prompt is empty"),
    (GOOD | {"chosen": "half \ud83d"}, "chosen holds half a character"),
    (GOOD | {"chosen": 3}, "chosen is a number, not text"),
    (GOOD | {"chosen": float("nan")}, "chosen is a number, not text"),
    (GOOD | {"chosen": {"text": "Yes."}}, "chosen is an object, not text"),
    (GOOD | {"p_chosen": 1.2}, "p_chosen is outside [0, 1]"),
    (GOOD | {"p_chosen": -0.1}, "p_chosen is outside [0, 1]"),
    (GOOD | {"p_chosen": float("nan")}, "p_chosen is NaN"),
    (GOOD | {"p_chosen": "likely"}, "p_chosen is not a number"),
    (GOOD | {"p_chosen": True}, "p_chosen is a true/false value, not a number"),
    (GOOD | {"weight": -1}, "weight is below 0"),
    (GOOD | {"margin": -0.5}, "margin is below 0"),
    (GOOD | {"margin": float("inf")}, "margin is infinite"),
    (GOOD | {"prompt": said(("user", "a"), ("assistant", "b"))}, "prompt ends with an assistant turn"),
    (GOOD | {"chosen": said(("user", "Who?"), ("assistant", "Yes."))}, "chosen is not one assistant message"),
    (GOOD | {"prompt": said(("user", "a"), ("bot", "b"))}, "prompt has a turn with the unknown role 'bot'"),
    (GOOD | {"prompt": said(("user", ""))}, "prompt has an empty user turn"),
    (GOOD | {"prompt": ["Why?"]}, "prompt holds a text where a message belongs"),
    (GOOD | {"prompt": [{"role": "user", "content": 3}]}, "prompt has a turn whose content is a number, not text"),
]


@for_each(UNUSABLE)
def test_an_unusable_row_is_skipped_counted_and_named(row: dict[str, object], reason: str, tmp_path: Path) -> None:
    loaded = load_preferences(write(tmp_path, [GOOD, row, GOOD, row]))
    assert len(loaded.records) == 2
    (item,) = loaded.skipped
    assert item.reason.startswith(reason)
    assert (item.count, item.examples) == (2, ("line 2", "line 4"))
    assert f"skipped 2 × {reason}" in loaded.describe()


def hh(chosen: str, rejected: str) -> dict[str, object]:
    return {"chosen": chosen, "rejected": rejected}


UNUSABLE_TRANSCRIPTS = [
    (hh(transcript("Why?", "Yes."), transcript("How?", "No.")), "chosen and rejected differ before the last answer"),
    (hh(transcript("Why?", ""), transcript("Why?", "No.")), "the answer in chosen is empty"),
    (hh(transcript("Why?", "Yes."), transcript("Why?", "No.", "And?")), "rejected does not end with an assistant turn"),
    (hh(transcript("Why?", "", "And?", "Yes."), transcript("Why?", "", "And?", "No.")), "the transcript has an empty"),
    (hh("Yes.", "No."), "the transcript does not begin with a speaker"),
]


@pytest.mark.parametrize(("row", "reason"), UNUSABLE_TRANSCRIPTS)
def test_unusable_transcripts(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    good = hh(transcript("Why?", "Yes."), transcript("Why?", "No."))
    loaded = load_preferences(write(tmp_path, [good, row]))
    assert len(loaded.records) == 1
    assert loaded.skipped[0].reason.startswith(reason)


@pytest.mark.parametrize(("chosen", "rejected"), [("Yes.", "No."), ("Why? Yes", "Why? Yes indeed"), ("a b", "a b ")])
def test_texts_without_a_prompt_in_common_are_skipped(tmp_path: Path, chosen: str, rejected: str) -> None:
    good = hh("Why? Yes", "Why? No")
    loaded = load_preferences(write(tmp_path, [good, hh(chosen, rejected)]))
    assert len(loaded.records) == 1


def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    path = write(tmp_path, [GOOD] * 90 + [row for row, _ in UNUSABLE[:8]])
    path.write_text(path.read_text() + "{broken\n[]\n")
    loaded = load_preferences(path, tolerate=0.2)
    assert loaded.rows == 100
    assert len(loaded.records) + sum(item.count for item in loaded.skipped) == 100
    assert {item.reason for item in loaded.skipped} >= {"not valid JSON", "a list instead of an object"}


@for_each([(5, 1, False), (6, 53, True), (6, 54, False), (11, 99, False)])
def test_too_many_unusable_rows_are_an_error(bad: int, good: int, refused: bool, tmp_path: Path) -> None:
    """More than five and more than a tenth."""
    path = write(tmp_path, [GOOD] * good + [GOOD | {"chosen": "No."}] * bad)
    if not refused:
        assert len(load_preferences(path).records) == good
        return
    with pytest.raises(TutelageError, match=r"6 of the 59 rows .* 10% .*6 × chosen equals rejected \(line 54, line 55"):
        load_preferences(path)
    assert len(load_preferences(path, tolerate=0.2).records) == good


def test_a_file_without_a_single_usable_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match=r"No row of .* \(1 row read as .*chosen equals rejected"):
        load_preferences(write(tmp_path, [GOOD | {"chosen": "No."}]))


# Columns that are not understood -------------------------------------------------------------------------------------

MISTAKEN: list[tuple[Callable[[Path], LoadedRecords[object]], dict[str, object], list[str]]] = [
    (load_preferences, {"prompt": "a", "completion": "b", "label": True}, ["single answers labelled good or bad"]),
    (
        load_preferences,
        {"instruction": "a", "output": "b"},
        ["columns instruction, output", "demonstrations", "Alpaca"],
    ),
    (load_preferences, {"annotator": 1, "item": 2}, ["columns annotator, item", "prompt, chosen, rejected"]),
    (load_demonstrations, {"foo": "a"}, ["columns foo", "Dolly", "messages", "text"]),
    (load_demonstrations, {"prompt": "a"}, ["columns prompt", "It looks like prompts"]),
    (
        load_demonstrations,
        {"foo": "a"},
        ["Understood as demonstrations: preferences of every kind, of which the chosen side · instruction, comp"],
    ),
    (
        load_preferences,
        {"foo": "a"},
        [
            "a beginning) · as published: SHP, WebGPT comparisons, HelpSteer2 preference, HelpSteer3 pref",
            "Arena, Ultra",
        ],
    ),
    (load_unpaired, GOOD, ["It looks like preferences"]),
    (load_texts, {"prompt": "a", "completion": "b"}, ["It looks like demonstrations", "Understood as texts: text"]),
    (
        load_prompts,
        {"foo": "a"},
        ["columns foo", "as prompts: preferences of every kind, of which the prompt · prompt"],
    ),
    (load_completions, {"id": "a", "text": "b"}, ["prompt_id"]),
]


@for_each(MISTAKEN)
def test_unknown_columns_are_answered_with_what_is_known(load, row, words, tmp_path) -> None:
    with pytest.raises(TutelageError) as refusal:
        load(write(tmp_path, [row]))
    for word in words:
        assert word in str(refusal.value)


def test_mixed_rows_are_read_as_what_most_of_them_are(tmp_path: Path) -> None:
    rows: Rows = [{"prompt": "Why?", "completion": "So."}] * 8 + [{"instruction": "Why?", "output": "So."}] * 2
    loaded = load_demonstrations(write(tmp_path, rows))
    assert (loaded.format, len(loaded.records)) == ("prompt, completion", 8)
    assert [(item.reason, item.count) for item in loaded.skipped] == [("prompt is missing", 2)]
    with pytest.raises(TutelageError, match="50 of the 100 rows"):
        load_demonstrations(write(tmp_path, [rows[0], rows[-1]] * 50))


def test_an_empty_column_does_not_change_the_format(tmp_path: Path) -> None:
    """Alpaca files also have a `text` column; rows without output must not turn them into plain text."""
    row: dict[str, object] = {"instruction": "Why?", "output": "So.", "text": "all"}
    loaded = load_demonstrations(write(tmp_path, [row] * 9 + [row | {"output": None}]))
    assert loaded.format == "instruction, input, output (Alpaca)"
    assert [(item.reason, item.examples) for item in loaded.skipped] == [("output is missing", ("line 10",))]


def test_a_blank_column_of_a_table_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('prompt,chosen,rejected\n,"Q: Why?\nYes.","Q: Why?\nNo."\n')
    assert load_preferences(path).records == (Preference(user("Q: Why?"), "Yes.", "No."),)


def test_the_description_says_what_was_read_and_what_was_not(tmp_path: Path) -> None:
    path = write(tmp_path, [GOOD, GOOD | {"chosen": "No."}])
    assert load_preferences(path).describe() == (
        f"{path}: 1 of 2 rows, read as prompt, chosen, rejected\n  skipped 1 × chosen equals rejected (line 2)"
    )


def test_a_completion_id_that_occurs_twice_is_skipped(tmp_path: Path) -> None:
    row: dict[str, object] = {"id": "c", "prompt_id": "p", "text": "So.", "sampler": "m"}
    loaded = load_completions(write(tmp_path, [row, row | {"text": "No."}]))
    assert [completion.text for completion in loaded.records] == ["So."]
    assert [(item.reason, item.examples) for item in loaded.skipped] == [("the id of an earlier row", ("line 2",))]


IMAGE = {"type": "image_url", "image_url": {"url": "a.png"}}
SEEN = [{"role": "user", "content": [IMAGE, {"type": "text", "text": "What?"}]}]
SIDES = {side: [{"role": "assistant", "content": side}] for side in ("chosen", "rejected")}
WITH_IMAGES: list[dict[str, object]] = [
    {"prompt": SEEN, **SIDES},
    {"prompt": "What?", "chosen": "A", "rejected": "B", "images": ["a.png"]},
    {"prompt": "What?", "chosen": "A", "rejected": "B", "image": {"bytes": None, "path": "a.png"}},
]


@for_each(WITH_IMAGES)
def test_every_loader_refuses_a_row_with_an_image_by_its_place(row: dict[str, object], tmp_path: Path) -> None:
    """However few such rows there are: what is asked about an image cannot be learnt without it."""
    words = {"prompt": "How?", "chosen": "C", "rejected": "D"}
    rows = [words | {"prompt": f"How {number}?"} for number in range(50)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, [*rows, row])))
    for load in (load_preferences, load_demonstrations, load_prompts):
        with pytest.raises(TutelageError, match=r"p\.jsonl, line 51: .*collect init"):
            load(tmp_path / "p.jsonl")
    (last,) = load_preferences(tmp_path / "p.jsonl", images=True).records[50:]
    assert last.messages == (Message("user", "What?", images=(ImagePart(0, "a.png"),)),)


def test_single_answers_and_texts_with_images_are_refused_too(tmp_path: Path) -> None:
    unpaired = {"prompt": SEEN, "completion": [{"role": "assistant", "content": "A"}], "label": True}
    for load, row in ((load_unpaired, unpaired), (load_texts, {"text": "A", "image": "a.png"})):
        (tmp_path / "p.jsonl").write_text(json.dumps(row))
        with pytest.raises(TutelageError, match="line 1: "):
            load(tmp_path / "p.jsonl")

"""Inputs and outputs of traces, in the shapes that applications give them."""

import json

import pytest
from offenders import for_each

from tutelage.data.export_values import as_number, asked, said
from tutelage.data.records import Message, user
from tutelage.data.row_values import Unusable

HI = [{"role": "user", "content": "Hi"}]


def serialised(kind: str, content: str) -> dict[str, object]:
    """A message as LangChain's `dumpd` writes it."""
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", kind],
        "kwargs": {"content": content},
    }


@for_each(
    [
        "Hi",
        HI,
        HI[0],
        {"messages": HI},
        {"messages": HI, "model": "gpt", "temperature": 0.5},
        {"messages": [[{"type": "human", "content": "Hi"}]]},
        {"messages": [serialised("HumanMessage", "Hi")]},
        {"question": "Hi", "top_k": 3, "history": []},
        {"input": {"messages": HI}},
        json.dumps({"messages": HI}),
    ]
)
def test_the_prompt_of_an_input(value: object) -> None:
    assert asked(value) == user("Hi")


def test_a_system_text_beside_messages_is_the_first_message() -> None:
    assert asked({"system": "Be brief.", "messages": HI}) == (Message("system", "Be brief."), *user("Hi"))


@for_each(
    [
        "Yes.",
        {"role": "assistant", "content": "Yes."},
        [*HI, {"role": "assistant", "content": "Yes."}],
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}}], "id": "x", "model": "gpt"},
        {"generations": [[{"text": "Yes.", "message": serialised("AIMessage", "Yes.")}]], "llm_output": None},
        {"messages": [serialised("HumanMessage", "Hi"), serialised("AIMessage", "Yes.")]},
        {"output": "Yes.", "tokens": 3},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
    ]
)
def test_the_response_of_an_output(value: object) -> None:
    assert said(value) == "Yes."


def test_structured_text_stays_text() -> None:
    for text in ('{"colour": "red"}', '{"answer": "red"}', "[1, 2]", "{not JSON}"):
        assert said(text) == text
    assert said('{"answer": "red"}', "answer") == "red"


def test_a_part_beside_the_prompt_may_belong_to_it() -> None:
    value = {"question": "Hi", "context": "It is cold."}
    with pytest.raises(Unusable, match=r"question, context.*--prompt"):
        asked(value)
    assert asked(value, "question") == user("Hi")


@for_each([None, "", " ", {}, {"n": 3}, {"question": ""}])
def test_an_empty_input(value: object) -> None:
    with pytest.raises(Unusable, match="empty"):
        asked(value)


def test_an_output_that_calls_tools_is_no_text() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    with pytest.raises(Unusable, match="tools"):
        said({"role": "assistant", "content": None, "tool_calls": [call]})


def test_numbers_of_tables() -> None:
    assert [as_number(value) for value in (1, 0.5, True, "3", "true", "False", "good", None)] == [
        1.0, 0.5, 1.0, 3.0, 1.0, 0.0, None, None,
    ]  # fmt: skip
    assert [as_number(value) for value in (float("nan"), "NaN", "-inf", 1e999, 10**400)] == [None] * 5

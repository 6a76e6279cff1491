"""Conversations of requests: messages, calls of tools and their results, as OpenAI's client sends them."""

import json
from typing import Any

import pytest
from call_templates import SCHEMA
from offenders import for_each

from tutelage.data.records import Message, ToolCall, message_row
from tutelage.rollout.serving.protocol.request_fields import ChatFields, RequestError, read_fields
from tutelage.rollout.serving.protocol.requests import read_conversation

ASKED = {"role": "user", "content": "How far?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"x": [1]}'}}
CALLED = {
    "role": "assistant", "content": None, "refusal": None, "annotations": None, "audio": None, "function_call": None,
    "tool_calls": [CALL],
}  # fmt: skip
"""A message as the client returns it."""
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "6"}]}
TOOLS = {"tools": [json.loads(SCHEMA)]}


def read(*messages: Any, **more: Any) -> Any:
    return read_conversation(read_fields(ChatFields, {"messages": list(messages), **more}))


def test_calls_and_results_are_those_of_the_records() -> None:
    """The result has the name of the tool, which some templates write."""
    assert read(ASKED, CALLED, RESULT, **TOOLS) == (
        Message("user", "How far?", tools=(SCHEMA,)),
        Message("assistant", "", calls=(ToolCall("lookup", '{"x": [1]}', "call_1"),)),
        Message("tool", "6", name="lookup", call_id="call_1"),
    )


def test_messages_may_have_more_than_is_read() -> None:
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]
    message = {"role": "developer", "content": parts, "name": "x", "annotations": [], "tool_calls": [CALL]}
    assert read(message) == (Message("system", "Be kind."),)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_the_thinking_of_an_earlier_turn_is_that_of_the_record(name: str) -> None:
    """Chat templates write it, so a conversation without it would have another completion."""
    message = Message("assistant", "Six.", "Two and four.")
    assert read(ASKED, {"role": "assistant", "content": "Six.", name: "Two and four."}, ASKED)[1] == message
    assert read(ASKED, message_row(message), ASKED)[1] == message
    assert read(ASKED | {name: "x"})[0] == Message("user", "How far?")


def test_no_tool_is_offered_with_the_choice_of_none() -> None:
    assert read(ASKED, tool_choice="none", **TOOLS) == (Message("user", "How far?"),)
    assert read(ASKED, tool_choice="auto", parallel_tool_calls=True, **TOOLS)[0].tools == (SCHEMA,)
    assert read(ASKED, tools=[], tool_choice="auto", parallel_tool_calls=False) == (Message("user", "How far?"),)


NAMED = {"type": "function", "function": {"name": "lookup"}}


@for_each(
    [
        ([ASKED], {"tool_choice": "required"}, "tool_choice", "required"),
        ([ASKED], {"tool_choice": NAMED}, "tool_choice", "lookup"),
        ([ASKED], {"tools": {}}, "tools", "object"),
        ([ASKED], {"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools", "function"),
        ([ASKED], TOOLS | {"parallel_tool_calls": False}, "parallel_tool_calls", "several"),
        ([ASKED, RESULT], {}, "messages[1].tool_call_id", "call_1"),
        ([ASKED, CALLED, RESULT | {"tool_call_id": "x"}], {}, "messages[2].tool_call_id", "'x'"),
        ([ASKED, CALLED | {"tool_calls": []}], {}, "messages[1].content", "missing"),
        ([ASKED, {"role": "assistant", "content": "", "reasoning": {}}], {}, "messages[1].reasoning", "text"),
        ([ASKED, CALLED | {"function_call": {"name": "f"}}], {}, "messages[1].function_call", "tool_calls"),
        ([ASKED, CALLED | {"tool_calls": [{"id": "a"}]}], {}, "messages[1].tool_calls", "without a name"),
        ([ASKED, CALLED | {"tool_calls": "x"}], {}, "messages[1].tool_calls", "JSON"),
        (
            [ASKED, CALLED | {"tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}],
            {},
            "messages[1].tool_calls",
            "list",
        ),
    ]
)
def test_what_cannot_be_read_is_refused_by_its_field(
    messages: list[Any], more: dict[str, Any], param: str, word: str
) -> None:
    with pytest.raises(RequestError) as caught:
        read(*messages, **more)
    assert caught.value.param == param
    assert word in str(caught.value)

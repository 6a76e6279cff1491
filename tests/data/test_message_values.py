"""Messages in every notation become the same messages, and what is no message is named."""

import json
from dataclasses import replace

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.message_values import answer, framed, prompt_column, turns
from tutelage.data.record_files import from_row, to_row
from tutelage.data.record_formats import named_prompt
from tutelage.data.records import ImagePart, Message, Messages, Prompt, ToolCall, message_row, user
from tutelage.data.row_values import Cells, Unusable

ASKED, CALL = Message("user", "Rain?"), ToolCall("weather", '{"city": "Rome"}', "1")
SCHEMA = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
OPENAI_CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
OBJECT_CALL = {"id": "1", "name": "weather", "arguments": {"city": "Rome"}}
RESULT = Message("tool", "22", name="weather", call_id="1")
CITY = {"city": "Rome"}
ANONYMOUS = ToolCall("weather", '{"city": "Rome"}')
HERMES = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>\n'

TURNS: list[tuple[object, Message]] = [
    ({"role": "assistant", "content": "So."}, Message("assistant", "So.")),
    ({"from": "gpt", "value": "So."}, Message("assistant", "So.")),
    ({"role": "assistant", "content": [{"type": "text", "text": "So."}]}, Message("assistant", "So.")),
    ({"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}, Message("assistant", "", calls=(CALL,))),
    ({"role": "assistant", "content": "", "tool_calls": [OBJECT_CALL]}, Message("assistant", "", calls=(CALL,))),
    ({"from": "function_call", "value": json.dumps(OBJECT_CALL)}, Message("assistant", "", calls=(CALL,))),
    ({"role": "tool_call", "content": json.dumps([OBJECT_CALL])}, Message("assistant", "", calls=(CALL,))),
    (
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"city": "Rome"}'}},
        Message("assistant", "", calls=(ANONYMOUS,)),
    ),
    ({"from": "gpt", "value": HERMES}, Message("assistant", "Let me see.", calls=(ANONYMOUS,))),
    (
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Rome"}}],
        },
        Message("assistant", "", calls=(CALL,)),
    ),
    ({"role": "assistant", "content": "2", "reasoning_content": "1 + 1"}, Message("assistant", "2", "1 + 1")),
    (
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "1 + 1"}, {"type": "text", "text": "2"}]},
        Message("assistant", "2", "1 + 1"),
    ),
    (
        {"role": "tool", "content": "22", "tool_call_id": "1", "name": "weather"},
        Message("tool", "22", name="weather", call_id="1"),
    ),
    ({"from": "observation", "value": "22"}, Message("tool", "22")),
    ({"from": "tool", "value": "<tool_response>\n22\n</tool_response>"}, Message("tool", "22")),
    ({"role": "tool", "content": "", "tool_call_id": "1"}, Message("tool", "", call_id="1")),
    ({"role": "tool", "content": None}, Message("tool", "")),
    ({"content": "Rain?", "role": "user"}, ASKED),
]


@for_each(TURNS)
def test_a_turn_in_every_notation(item: object, message: Message) -> None:
    for cell in ([item], json.dumps([item]), repr([item])):
        cells = Cells({"messages": cell})
        assert turns(cells, "messages") == (message,)
        assert not list(cells.unread())


REFUSED: list[tuple[object, str]] = [
    ({"role": "assistant", "content": None}, "content is null"),
    ({"role": "bot", "content": "So."}, "'bot'"),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}, "an image"),
    ({"role": "user", "content": [{"type": "audio", "audio": "a.wav"}]}, "'audio'"),
    ({"role": "user", "content": None, "tool_calls": [OPENAI_CALL]}, "content is null"),
    ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "without a name"),
    ({"role": "assistant", "tool_calls": [{"name": "weather", "arguments": "Rome"}]}, "not JSON"),
    ({"role": "assistant", "tool_calls": [{"name": "weather", "arguments": [1]}]}, "arguments are a list"),
    ({"from": "function_call", "value": "weather(Rome)"}, "not JSON"),
]


@for_each(REFUSED)
def test_a_turn_that_cannot_be_read_is_named(item: object, word: str) -> None:
    with pytest.raises(Unusable) as refusal:
        turns({"messages": [item]}, "messages")
    assert word in str(refusal.value)


def test_images_have_their_places_among_the_texts_where_they_are_read() -> None:
    image = {"type": "image_url", "image_url": {"url": "a.png"}, "alt": "a cat"}
    parts = [
        {"type": "text", "text": "This"},
        image,
        {"type": "text", "text": "or?"},
        {"type": "image", "path": "b.png"},
    ]
    cells = Cells({"messages": [{"role": "user", "content": parts}]}, images=True)
    message = Message("user", "Thisor?", images=(ImagePart(4, "a.png", "a cat"), ImagePart(7, "b.png")))
    assert turns(cells, "messages") == (message,)
    row = message_row(message)
    assert turns(Cells({"messages": [row]}, images=True), "messages") == (message,)
    assert not message.is_text


def test_text_that_only_looks_like_messages_is_no_users_text() -> None:
    """Numpy writes lists of objects without commas."""
    for cell in ("[{'role': 'user', 'content': 'Rain?'}\n {'role': 'assistant'}]", '[{"role": "user", "content": '):
        with pytest.raises(Unusable, match="prompt"):
            prompt_column({"prompt": cell})


@for_each(
    [
        "[1, 2] is a list",
        '{"a": 1}',
        "[{'price': 3}]",
        '{"value": 42, "unit": "cm"}',
        '{"role": "admin", "id": 1}',
        '{"from": "Ann", "to": "Bob"}',
        '[{"value": 1}, {"value": 2}]',
        '[{"from": "Ann", "to": "user"}]',
        '{"content": "hello"} Summarise the JSON above',
        '{"role": "assistant", "content": "a"}',
        r'[{"content": "{\"role\": \"user\"}"}]',
    ]
)
def test_json_that_is_no_list_of_messages_is_text(text: str) -> None:
    assert prompt_column({"prompt": text}) == user(text)
    assert answer({"completion": text}, "completion") == text


def test_calls_in_marks_end_a_text() -> None:
    """Many calls with text after them once took time exponential in their number."""
    calls = [f'<tool_call>\n{{"name": "weather", "arguments": {{"day": {day}}}}}\n</tool_call>\n' for day in range(200)]
    talk = [{"role": "assistant", "content": "Wait.\n" + "".join(calls)}]
    (message,) = turns({"messages": talk}, "messages")
    assert message == Message(
        "assistant", "Wait.", calls=tuple(ToolCall("weather", f'{{"day": {day}}}') for day in range(200))
    )
    talk = [{"role": "assistant", "content": "".join(calls) + "Done."}]
    assert turns({"messages": talk}, "messages") == (Message("assistant", "".join(calls) + "Done."),)


WEIGHTS = [
    ({}, 1.0),
    ({"weight": 0}, 0.0),
    ({"weight": 0.5}, 0.5),
    ({"trainable": False}, 0.0),
    ({"train": True, "weight": None}, 1.0),
    ({"loss": "false"}, 0.0),
    ({"loss": 0.53}, 1.0),
    ({"training": "sft", "train": 0}, 0.0),
]


@for_each(WEIGHTS)
def test_marks_of_what_is_learnt(keys: dict[str, object], weight: float) -> None:
    values = {"messages": [{"role": "assistant", "content": "So."} | keys]}
    assert [turn.weight for turn in turns(values, "messages", weights=True)] == [weight]
    cells = Cells(values)
    assert [turn.weight for turn in turns(cells, "messages")] == [1.0]
    assert set(cells.unread()) == {f"messages.{key}" for key, value in keys.items() if value is not None}


@for_each([{"thinking": True}, {"reasoning": {"effort": "low"}}, {"loss": 0.53}, {"training": "sft"}])
def test_keys_of_another_meaning_are_not_read(keys: dict[str, object]) -> None:
    cells = Cells({"messages": [{"role": "assistant", "content": "So."} | keys]})
    assert turns(cells, "messages", weights=True) == (Message("assistant", "So."),)
    assert list(cells.unread()) == [f"messages.{key}" for key in keys]


FRAMES: list[tuple[dict[str, object], Messages, Messages]] = [
    ({"system": "Be brief."}, (ASKED,), (Message("system", "Be brief."), ASKED)),
    ({"system": "Be brief."}, (Message("system", "Be brief. "), ASKED), (Message("system", "Be brief. "), ASKED)),
    ({"tools": [SCHEMA]}, (ASKED,), (Message("user", "Rain?", tools=(json.dumps(SCHEMA),)),)),
    ({"tools": json.dumps([SCHEMA])}, (ASKED,), (Message("user", "Rain?", tools=(json.dumps(SCHEMA),)),)),
    ({"functions": [SCHEMA["function"]]}, (ASKED,), (Message("user", "Rain?", tools=(json.dumps(SCHEMA),)),)),
    ({"tools": []}, (ASKED,), (ASKED,)),
    (
        {"tools": [SCHEMA]},
        (Message("system", "Use <tools>{}</tools>"), ASKED),
        (Message("system", "Use <tools>{}</tools>"), ASKED),
    ),
]


@for_each(FRAMES)
def test_system_and_tools_of_a_row_are_of_its_conversation(
    values: dict[str, object], messages: Messages, whole: Messages
) -> None:
    assert framed(values, messages) == whole


@for_each([{"tools": "hammer"}, {"tools": ["search"]}, {"functions": {"a": 1}}, {"functions": "none"}, {"tools": 3}])
def test_tools_of_another_meaning_stay_a_column(values: dict[str, object]) -> None:
    cells = Cells(values)
    assert framed(cells, (ASKED,)) == (ASKED,)
    assert list(cells.unread()) == list(values)
    prompt = named_prompt(values | {"prompt": "Rain?"})
    assert prompt.data == values
    assert from_row(Prompt, to_row(prompt)) == prompt
    with pytest.raises(TutelageError, match=next(iter(values))):
        to_row(replace(prompt, messages=(Message("user", "Rain?", tools=(json.dumps(SCHEMA),)),)))


@for_each([{"tools": [{"description": "x"}]}, {"tools": '[{"name": '}])
def test_tools_that_are_no_schemas_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(Unusable, match="tools"):
        framed(values, (ASKED,))


def test_two_different_system_messages_are_refused() -> None:
    with pytest.raises(Unusable, match="twice"):
        framed({"system": "Be brief."}, (Message("system", "Be long."), ASKED))

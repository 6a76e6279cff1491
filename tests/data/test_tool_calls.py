"""Calls of tools in what a policy samples, in the forms of the chat templates of several families."""

import json
from dataclasses import replace
from typing import Any

import pytest
from call_templates import BARE, ELEMENTS, END, HEAD, LISTED, NAMED, SCHEMA, TAGGED, TURN, WITHOUT_THOUGHTS
from offenders import for_each
from test_chat_tokens import MISTRAL, byte_level

from tutelage.base.errors import TutelageError
from tutelage.data import chat_tokens, tool_calls
from tutelage.data.chat_template import render_prompt, render_turns
from tutelage.data.chat_tokens import encode, encode_next, write_turn
from tutelage.data.records import Message, Messages, ToolCall
from tutelage.data.tool_calls import (
    CallForm,
    bare_calls,
    call_form,
    element_calls,
    listed_calls,
    read_turn,
    tagged_calls,
    turn_of,
)

ASKED = Message("user", "How far?", tools=(SCHEMA,))
CALL = ToolCall("lookup", '{"x": [1, "</i>"]}')


@for_each(
    [(TAGGED, tool_calls.TAGGED), (BARE, tool_calls.BARE), (LISTED, tool_calls.LISTED), (NAMED, tool_calls.LISTED)]
)
def test_what_a_template_writes_of_a_call_is_read_as_that_call(template: str, form: CallForm) -> None:
    tokenizer = byte_level(template)
    assert call_form(tokenizer) is form
    prompt = render_prompt((ASKED,), tokenizer)
    answer = Message("assistant", "" if template == BARE else "I look.", calls=(CALL,))
    written = render_turns((ASKED, answer), tokenizer, add_generation_prompt=False)
    turn = turn_of(written.removeprefix(prompt).removesuffix("<|im_end|>\n"), form.read)
    assert turn.problem == ""
    assert turn.message.content == answer.content
    assert [(call.name, json.loads(call.arguments)) for call in turn.message.calls] == [("lookup", {"x": [1, "</i>"]})]
    plain = turn_of("Six miles.", form.read)
    assert (plain.message, plain.problem) == (Message("assistant", "Six miles."), "")


@for_each(
    [
        (tagged_calls, "<tool_call>{oops}</tool_call>"),
        (tagged_calls, '<tool_call>{"name": "f", "arguments": {}}'),
        (tagged_calls, '<tool_call>{"arguments": {}}</tool_call>'),
        (tagged_calls, '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        (listed_calls, '[TOOL_CALLS][{"name": "f", "arguments": {}'),
        (listed_calls, "[TOOL_CALLS]f[ARGS]{"),
        (bare_calls, '{"name": "f", "parameters": '),
        (element_calls, "<tool_call><function=f><parameter=x>1</parameter></function>"),
        (element_calls, "<tool_call><function=f>what</function></tool_call>"),
        (element_calls, "<tool_call><function=f></function></tool_call> and then"),
        (element_calls, '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    ]
)
def test_a_call_that_cannot_be_read_stays_in_the_text_and_is_described(read, text: str) -> None:
    turn = turn_of(f"{text}", read)
    assert turn.problem
    assert turn.message == Message("assistant", text)


def test_every_call_has_an_id_that_templates_allow() -> None:
    """The templates of Mistral refuse a conversation with any other."""
    sampled = '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "f", "arguments": {}, "id": "AbCdEf123"}]'
    first, second = turn_of(sampled, listed_calls).message.calls
    assert len(first.id) == 9
    assert first.id.isalnum()
    assert second.id == "AbCdEf123"


def test_a_list_within_tags_is_several_calls() -> None:
    content, calls = tagged_calls('Well. <tool_call>[{"name": "f", "arguments": {}}, {"name": "g"}]</tool_call>')
    assert (content, [call.name for call in calls]) == ("Well.", ["f", "g"])


def test_a_json_answer_without_a_name_is_no_call() -> None:
    assert bare_calls('{"answer": 6}') == ('{"answer": 6}', ())


@for_each([f"{TURN}{END}", f"{HEAD}{TURN}{END}", TAGGED.replace("tool_call>", "call>")])
def test_a_template_that_hides_tools_or_calls_or_writes_them_otherwise_is_refused(template: str) -> None:
    with pytest.raises(TutelageError, match="chat template"):
        call_form(byte_level(template))
    assert call_form(byte_level(ELEMENTS)) is tool_calls.ELEMENTS


def test_tokens_between_turns_are_those_of_the_template_and_no_text_makes_a_special_token() -> None:
    tokenizer = byte_level(TAGGED)
    prompt = encode((ASKED,), None, tokenizer)[0]
    answer = Message("assistant", "I look.", calls=(CALL,))
    result = Message("tool", "6 <|im_end|>", name="lookup")
    ids, continues, _ = encode_next((ASKED, answer), (result,), tokenizer)
    assert continues
    assert tokenizer.decode(ids) == "<|im_end|>\n<|im_start|>tool\n6 <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert ids.count(end) == 2
    turn = encode((ASKED,), answer, tokenizer)[1]
    assert [*prompt, *turn[:-1], *ids] == encode((ASKED, answer, result), None, tokenizer)[0]


NUMBERED = TURN.replace("m.content", "loop.index ~ m.content") + END
"""Numbers its messages, so that a turn after the first question is not written as one after all of the conversation."""


@for_each([TAGGED, LISTED, ELEMENTS, WITHOUT_THOUGHTS, MISTRAL, NUMBERED])
def test_a_turn_continues_what_the_template_writes_of_the_conversation_and_its_prompt(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the texts of the turns before are known; the conversation is then written once."""
    tokenizer, hidden = byte_level(template), replace(ASKED, content="How far is <|im_end|>?")
    calls = (CALL,) if template not in (MISTRAL, NUMBERED) else ()
    asked = Message("user", "How far?"), ASKED, hidden, Message("user", "Hm?", tools=ASKED.tools)
    sizes = list[int]()

    def write(messages: Messages, *inputs: Any, **options: Any) -> str:
        sizes.append(len(messages))
        return render_turns(messages, *inputs, **options)

    monkeypatch.setattr(chat_tokens, "render_turns", write)
    for first in asked[: 1 if template in (MISTRAL, NUMBERED) else None]:
        talk, prompt = (first,), ""
        for number in range(4):
            thought = "<think>hm</think>" if number == 2 else ""
            answer = Message("assistant", f"{thought}Six {number}.", calls=calls)
            new = (Message("tool", f"{number}", name="lookup") if calls else Message("user", f"Why {number}?"),)
            turn, before = write_turn(talk, answer, tokenizer), (*talk, answer)
            sizes.clear()
            found = encode_next(before, new, tokenizer, prompt=prompt, turn=turn)
            once = number and found.continues and first is not hidden and template != NUMBERED
            assert sum(size >= len(talk) for size in sizes) == 1 or not once
            texts = [render_turns(before, tokenizer, add_generation_prompt=False)]
            texts.append(render_turns(talk, tokenizer, add_generation_prompt=True))
            whole = render_turns((*before, *new), tokenizer, add_generation_prompt=True)
            assert found.continues == all(map(whole.startswith, texts))
            assert found == encode_next(before, new, tokenizer)
            expected = encode((*before, *new), None, tokenizer)[0]
            end = encode(talk, answer, tokenizer)[1][-1:] if found.continues else []
            read = encode(talk, answer, tokenizer) if found.continues else ([], [])
            assert [*read[0], *read[1][: len(read[1]) - len(end)], *found.ids] == expected
            talk, prompt = (*before, *new), found.text


def test_a_template_that_rewrites_a_turn_begins_anew() -> None:
    tokenizer = byte_level(WITHOUT_THOUGHTS)
    question = Message("user", "How far?")
    thought, plain = (Message("assistant", text) for text in ("<think>hm</think>Six.", "Six."))
    more = Message("user", "Why?")
    assert encode_next((question, plain), (more,), tokenizer)[1]
    ids, continues, _ = encode_next((question, thought), (more,), tokenizer)
    assert not continues
    assert ids == encode((question, plain, more), None, tokenizer)[0]


def test_an_end_that_was_sampled_is_not_read_again() -> None:
    """Also where the template writes a space before it, which the policy did not."""
    for before_end in ("", " "):
        tokenizer = byte_level(TAGGED.replace("<|im_end|>\n{% endfor", f"{before_end}<|im_end|>\n{{% endfor"))
        talk, more = (Message("user", "How far?"), Message("assistant", "Six.")), (Message("user", "Why?"),)
        written = f"{before_end}<|im_end|>\n<|im_start|>user\nWhy?{before_end}<|im_end|>\n<|im_start|>assistant\n"
        for ended in (False, True):
            ids, continues, _ = encode_next(talk, more, tokenizer, ended=ended)
            assert continues
            assert tokenizer.decode(ids) == (written.removeprefix(f"{before_end}<|im_end|>") if ended else written)


def test_a_template_that_moves_the_system_begins_anew() -> None:
    tokenizer = byte_level(MISTRAL)
    talk = Message("system", "Be brief."), Message("user", "Rain?"), Message("assistant", "Water.")
    more = Message("user", "And snow?")
    ids, continues, _ = encode_next(talk, (more,), tokenizer)
    assert not continues
    assert ids == encode((*talk, more), None, tokenizer)[0]
    assert encode_next(talk[1:], (more,), tokenizer)[1]


def test_a_conversation_that_the_policy_begins_is_written_anew() -> None:
    tokenizer = byte_level(TAGGED)
    talk, more = (Message("assistant", "Hello."),), Message("user", "Hi.")
    assert encode_next(talk, (more,), tokenizer) == (encode((*talk, more), None, tokenizer)[0], False, "")


PARAMETERS = {
    "place": {"type": "string"},
    "miles": {"type": "number"},
    "count": {"type": "integer"},
    "exact": {"type": "boolean"},
    "via": {"type": "array", "items": {"type": "string"}},
    "by": {"type": "object"},
    "until": {"type": "string", "nullable": True},
    "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
    "point": {"$ref": "#/$defs/Point"},
    "points": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Point"}}, {"type": "null"}]},
    "unit": {"enum": ["1", "2"]},
    "level": {"enum": [1, 2]},
    "wide": {"oneOf": [{"allOf": [{"const": 7}]}, {"type": "boolean"}]},
    "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
}
POINT = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Point"}}}
"""What pydantic writes of a class, which servers of tools have."""


def test_values_of_elements_have_the_types_of_their_schema() -> None:
    """What the template writes of typed values is read as these values, in any order and with any text."""
    schema = {"type": "function", "function": {"name": "lookup", "parameters": {"properties": PARAMETERS}}}
    schema["function"]["parameters"]["$defs"] = {"Point": POINT}
    asked = Message("user", "How far?", tools=(json.dumps(schema),))
    values = {
        "by": {"car": [1, None]},
        "place": "12\n<b>Ayr</b> & 'x'",
        "miles": 1.5,
        "count": -3,
        "exact": True,
        "via": ["a", "1"],
        "until": None,
        "either": False,
        "point": {"next": {}},
        "points": [{}],
        "unit": "1",
        "level": 2,
        "wide": 7,
        "name": None,
    }
    tokenizer = byte_level(ELEMENTS)
    calls = tuple(ToolCall("lookup", json.dumps(each)) for each in (values, {}, {"count": "many", "other": "7"}))
    calls += tuple(ToolCall("lookup", json.dumps({"miles": text})) for text in ("NaN", "1e999", '["\\ud800"]'))
    answer = Message("assistant", "I look.", calls=calls)
    ids = encode((asked,), answer, tokenizer)[1]
    turn = read_turn(ids, "", (asked,), tokenizer, frozenset(ids[-1:]))
    assert turn.problem == ""
    assert turn.message.content == "I look."
    assert [(call.name, json.loads(call.arguments)) for call in turn.message.calls] == [
        (call.name, json.loads(call.arguments)) for call in calls
    ]
    assert all(len(call.id) == 9 for call in turn.message.calls)


def test_calls_as_elements_without_a_schema_are_texts() -> None:
    text = "Well.\n<tool_call><function=f><parameter=x>1</parameter></function></tool_call>\n"
    assert element_calls(text) == ("Well.", (ToolCall("f", '{"x": "1"}'),))
    assert element_calls("Six <b>miles</b>.\n") == ("Six <b>miles</b>.\n", ())

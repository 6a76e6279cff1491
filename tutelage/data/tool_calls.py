"""Calls of tools in sampled text, in the form in which a chat template writes them.

tagged     <tool_call>{"name": …, "arguments": {…}}</tool_call>, one for each call           (Hermes, Qwen, SmolLM3)
listed     [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}      (Mistral)
bare       {"name": …, "parameters": {…}}, the whole text, also after <|python_tag|>         (Llama 3)
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from tutelage.base.errors import TutelageError
from tutelage.data.chat_template import render_prompt, render_turns
from tutelage.data.records import Message, ToolCall
from tutelage.data.row_values import Unusable
from tutelage.data.tokenizer import Tokenizer
from tutelage.data.tool_values import read_call, read_calls, split_calls

Calls = tuple[str, tuple[ToolCall, ...]]
"""Text before the calls, and the calls."""

_PYTHON_TAG, _LIST = "<|python_tag|>", "[TOOL_CALLS]"
_NAME, _ID = "lookup", "a1b2c3d4e"
_FIT_ID = re.compile(r"[A-Za-z0-9]{9}")
"""Ids of calls that all templates allow: those of Mistral require nine letters or digits."""


@dataclass(frozen=True)
class SampledTurn:
    """Message of the assistant that a text holds. `problem` describes calls that cannot be read, which stay in its
    content."""

    message: Message
    problem: str = ""


def turn_of(text: str, read: Callable[[str], Calls]) -> SampledTurn:
    """The turn of a sampled text, its calls read by `read` (see `call_reader`)."""
    try:
        content, calls = read(text)
    except Unusable as error:
        return SampledTurn(Message("assistant", text), str(error))
    named = tuple(
        call if _FIT_ID.fullmatch(call.id) else replace(call, id=_id(text, n)) for n, call in enumerate(calls)
    )
    return SampledTurn(Message("assistant", content.strip(), calls=named))


def _id(text: str, number: int) -> str:
    """Id of a call that was sampled without one, which some templates require of every call."""
    return f"{crc32(f'{number} {text}'.encode('utf-8', 'replace')):09d}"[-9:]


def call_reader(schema: str, tokenizer: Tokenizer) -> Callable[[str], Calls]:
    """The reader of calls in the form of the tokenizer's chat template. `schema` is that of a tool to try it with.

    Raises TutelageError if the template does not show tools, or writes calls in another form.
    """
    asked = Message("user", "a", tools=(schema,))
    call = Message("assistant", "", calls=(ToolCall(_NAME, json.dumps({"x": 1}), _ID),))
    prompt = render_prompt((asked,), tokenizer)
    render_prompt((asked, call, Message("tool", "b", name=_NAME, call_id=_ID)), tokenizer)  # refuses what is not shown
    written = render_turns((asked, call), tokenizer, add_generation_prompt=False)
    turn = written[len(prompt) :] if written.startswith(prompt) else written
    for read in (tagged_calls, listed_calls, bare_calls):
        try:
            calls = read(_without_end(turn, tokenizer))[1]
        except Unusable:
            continue
        if [each.name for each in calls] == [_NAME]:
            return read
    named = getattr(tokenizer, "name_or_path", "") or "the tokenizer"
    raise TutelageError(
        f"The chat template of {named} writes a call of a tool as {turn.strip()[:120]!r}, a form that cannot be read "
        "in samples. Choose a model whose template writes <tool_call>, [TOOL_CALLS] or a JSON object."
    )


def _without_end(turn: str, tokenizer: Tokenizer) -> str:
    """The text of a turn before the special tokens that end it."""
    ends = [re.escape(token.content) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return re.sub(rf"(?:(?:{'|'.join(ends)})\s*)+\Z", "", turn.rstrip()).strip() if ends else turn.strip()


def tagged_calls(text: str) -> Calls:
    """Calls in <tool_call> marks at the end of a text."""
    content, calls = split_calls(text, "the completion")
    if "<tool_call>" in content:
        raise Unusable("a <tool_call> that is no JSON object, has no </tool_call>, or is followed by other text")
    return content, calls


def listed_calls(text: str) -> Calls:
    """Calls after [TOOL_CALLS]: a list, or name[ARGS]{…}."""
    content, mark, rest = text.partition(_LIST)
    if not mark:
        return text, ()
    rest = rest.strip()
    if rest.startswith("["):
        return content, read_calls(rest, "the completion")
    calls = []
    for each in rest.split(_LIST):
        name, _, arguments = each.partition("[ARGS]")
        calls.append(read_call({"name": re.sub(r"\[CALL_ID\].*", "", name).strip(), "arguments": arguments}, "a call"))
    return content, tuple(calls)


def bare_calls(text: str) -> Calls:
    """A call that is the whole text; a JSON object without a name is an answer."""
    body = text.strip().removeprefix(_PYTHON_TAG).strip()
    if not body.startswith("{"):
        return text, ()
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise Unusable("a call that is no JSON object") from None
    if not (isinstance(value, Mapping) and "name" in value and {"parameters", "arguments"} & value.keys()):
        return text, ()
    return "", (read_call(value, "the completion"),)

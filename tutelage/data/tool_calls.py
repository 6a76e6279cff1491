"""Calls of tools and schemas of tools: in cells of data, and in sampled text in the form that a chat template writes.

tagged     <tool_call>{"name": …, "arguments": {…}}</tool_call>, one for each call           (Hermes, Qwen, SmolLM3)
           <tool_call>[{…}, …]</tool_call>                                                   (SmolLM2)
listed     [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}      (Mistral)
bare       {"name": …, "parameters": {…}}, the whole text, also after <|python_tag|>         (Llama 3)
elements   <tool_call><function=name><parameter=x>value</parameter>…</function></tool_call>  (Qwen3-Coder, Qwen3.5)
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from zlib import crc32

from tutelage.base.errors import TutelageError
from tutelage.data.chat_template import opening, render_prompt, render_turns
from tutelage.data.chat_tokens import write_turn
from tutelage.data.json_values import parse_json
from tutelage.data.readers import a_type
from tutelage.data.records import Message, Messages, ToolCall, tools_of
from tutelage.data.row_values import Unusable, encodable
from tutelage.data.tokenizer import Tokenizer, decode_text, facts, overlap


def read_calls(value: object, column: str) -> tuple[ToolCall, ...]:
    """Calls of a list, of a single object, or of the JSON text of either."""
    value = _loaded(value, f"a call in {column}")
    return tuple(read_call(item, column) for item in (value if isinstance(value, list) else [value]))


def without_nulls(value: object) -> object:
    """The value without the keys of its objects whose value is null: a table gives each object the keys of all."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def read_call(value: object, column: str) -> ToolCall:
    """Call with a `name` and `arguments` (an object or its JSON text), in `function` if there is one."""
    call = value if isinstance(value, Mapping) else {}
    function = call.get("function") if isinstance(call.get("function"), Mapping) else call
    assert isinstance(function, Mapping)
    name, arguments = function.get("name"), function.get("arguments", function.get("parameters"))
    if not isinstance(name, str) or not name.strip():
        raise Unusable(f"{column} has a call of a tool without a name")
    arguments = _loaded(arguments or {}, f"the arguments of a call in {column}")
    if not isinstance(arguments, Mapping):
        raise Unusable(f"{column} has a call of a tool whose arguments are {a_type(arguments)}, not an object")
    key = call.get("id")
    return ToolCall(name, _json(arguments, column), key if isinstance(key, str) else "" if key is None else str(key))


_SCHEMAS = re.compile(r"\s*(?:\[\s*(?:[{\]]|\"\s*\{)|null\s*\Z|\Z)")


def are_schemas(value: object) -> bool:
    """Whether a cell lists schemas of tools, or offers none: a list of objects or its JSON text. Other values, such as
    the name of a tool, have another meaning."""
    if isinstance(value, str):
        return _SCHEMAS.match(value) is not None
    return value is None or (
        isinstance(value, list)
        and all(isinstance(item, Mapping) or (isinstance(item, str) and item.lstrip()[:1] == "{") for item in value)
    )


def read_tools(value: object) -> tuple[str, ...]:
    """JSON schemas of tools in the form {"type": "function", "function": {"name": …}}: a list, or its JSON text. The
    schema of a function alone is put into this form."""
    value = _loaded(value, "tools")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Unusable(f"tools is {a_type(value)}, not a list of schemas")
    return tuple(_json(_schema(_loaded(item, "tools")), "tools") for item in value)


def _schema(item: object) -> Mapping[str, object]:
    if isinstance(item, Mapping):
        if isinstance(item.get("function"), Mapping) and item["function"].get("name"):
            return item
        if isinstance(item.get("name"), str):
            return {"type": "function", "function": item}
    raise Unusable("tools holds something other than the schema of a function with a name")


def _loaded(value: object, what: str) -> object:
    """The value of a JSON text; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value) if value.strip() else None
    except ValueError:
        raise Unusable(f"{what}: text that is not JSON") from None


def _json(value: object, column: str) -> str:
    try:
        return encodable(json.dumps(value, ensure_ascii=False, allow_nan=False), column)
    except (TypeError, ValueError, RecursionError):
        raise Unusable(f"{column} has a tool with values that JSON cannot hold") from None


# Calls in texts of data ----------------------------------------------------------------------------------------------

_CALL = re.compile(r"<tool_call>\s*([{\[](?:(?!</tool_call>).)*[}\]])\s*</tool_call>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)


def split_calls(content: str, column: str) -> tuple[str, tuple[ToolCall, ...]]:
    """(text, calls) of a text that ends with calls in <tool_call> marks: objects (Hermes) or lists (SmolLM2)."""
    if "<tool_call>" not in content:
        return content, ()
    text, calls = content.rstrip(), list[str]()
    for match in reversed(list(_CALL.finditer(content))):
        if match.end() != len(text):
            break
        text = content[: match.start()].rstrip()
        calls.append(match[1])
    if not calls:
        return content, ()
    return text, tuple(call for each in reversed(calls) for call in read_calls(each, column))


def results_in(content: str) -> list[str]:
    """Results of tools, each without its <tool_response> marks (Hermes); a text without marks is one result."""
    results = [result.strip() for result in _RESULT.findall(content)]
    return results if results and not _RESULT.sub("", content).strip() else [content]


def split_schemas(text: str) -> tuple[str, tuple[str, ...]]:
    """(text before the first schema, schemas) of a text that ends with the JSON schemas of functions (Glaive)."""
    decoder, start = json.JSONDecoder(), text.find("{")
    before, schemas = text if start < 0 else text[:start], list[object]()
    while start >= 0:
        try:
            schema, end = decoder.raw_decode(text, start)
        except ValueError:
            raise Unusable("the system text has functions that are not JSON") from None
        schemas.append(schema)
        start = text.find("{", end)
    return before, read_tools(schemas)


# Calls in sampled text -----------------------------------------------------------------------------------------------

Calls = tuple[str, tuple[ToolCall, ...]]
"""Text before the calls, and the calls."""

_PYTHON_TAG, _LIST = "<|python_tag|>", "[TOOL_CALLS]"
_NAME, _ID = "lookup", "a1b2c3d4e"
_PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer", "description": "Number."}}, "required": ["x"]}
_SCHEMA = json.dumps(
    {"type": "function", "function": {"name": _NAME, "description": "Look up.", "parameters": _PARAMETERS}}
)
"""Schema of the tool with which a chat template is tried."""
_FIT_ID = re.compile(r"[A-Za-z0-9]{9}")
"""Ids of calls that all templates allow: those of Mistral require nine letters or digits."""


@dataclass(frozen=True)
class SampledTurn:
    """Message of the assistant that a text holds. `problem` describes calls that cannot be read, which stay in its
    content. `written` is what the chat template writes of a turn with calls, see `write_turn`."""

    message: Message
    problem: str = ""
    written: str = ""


@dataclass(frozen=True)
class CallForm:
    """Form of calls. `read` reads them from a text; `marks` are the tokens within them that may be special ones, the
    first of them begins the calls, or with `whole` calls are all of a text. `untyped`: all values that are read are
    texts, whose types are those of the schema."""

    read: Callable[[str], Calls]
    marks: tuple[str, ...]
    whole: bool = False
    untyped: bool = False

    def before(self, text: str) -> str:
        """The part of a text that belongs to no call, however the text goes on; without white space at its end."""
        first = self.marks[0]
        if self.whole:
            begun = text.lstrip()
            return "" if begun.startswith(("{", first)) or first.startswith(begun) else text.rstrip()
        start = text.find(first)
        return text[: start if start >= 0 else len(text) - overlap(text, first)].rstrip()


def read_turn(
    tokens: Sequence[int], text: str, conversation: Messages, tokenizer: Tokenizer, end_ids: frozenset[int]
) -> SampledTurn:
    """The turn that a policy sampled after a conversation that offers tools; `text` is its text, without special tokens
    and a stop string. Calls are read from all tokens before one of `end_ids`, except special ones that are no mark of
    a call. Calls that the chat template refuses to write are a problem, as those that cannot be read.

    Raises TutelageError if the template does not show tools, or writes calls in an unknown form.
    """
    form = call_form(tokenizer)
    length = len(tokens) - bool(tokens and tokens[-1] in end_ids)
    whole = opening(tokenizer) + decode_text(tokens[:length], tokenizer, form.marks)
    turn = turn_of(whole.strip(), form.read, place=len(conversation))
    if form.untyped:
        turn = replace(turn, message=_typed(turn.message, tools_of(conversation)))
    if not turn.message.calls:
        return turn if turn.problem else SampledTurn(Message("assistant", text))
    try:
        return replace(turn, written=write_turn(conversation, turn.message, tokenizer))
    except TutelageError as error:
        return SampledTurn(Message("assistant", text), f"the chat template cannot write it ({error})")


def turn_of(text: str, read: Callable[[str], Calls], *, place: int = 0) -> SampledTurn:
    """The turn of a sampled text, its calls read by `read` of a `CallForm`. `place` is that of the turn in its
    conversation: the ids of calls in different places differ."""
    try:
        content, calls = read(text)
    except Unusable as error:
        return SampledTurn(Message("assistant", text), str(error))
    named = tuple(
        call if _FIT_ID.fullmatch(call.id) else replace(call, id=_id(text, place, number))
        for number, call in enumerate(calls)
    )
    return SampledTurn(Message("assistant", content.strip(), calls=named))


def _id(text: str, place: int, number: int) -> str:
    """Id of a call that was sampled without one, which some templates require of every call."""
    return f"{crc32(f'{place} {number} {text}'.encode('utf-8', 'replace')):09d}"[-9:]


def call_form(tokenizer: Tokenizer) -> CallForm:
    """The form in which the tokenizer's chat template writes calls.

    Raises TutelageError if the template does not show tools, or writes calls in another form.
    """
    return _call_form(tokenizer, str(tokenizer.chat_template))


@lru_cache(maxsize=16)
def _call_form(tokenizer: Tokenizer, template: str) -> CallForm:
    asked = Message("user", "a", tools=(_SCHEMA,))
    call = Message("assistant", "", calls=(ToolCall(_NAME, json.dumps({"x": 1}), _ID),))
    prompt = render_prompt((asked,), tokenizer)
    render_prompt((asked, call, Message("tool", "b", name=_NAME, call_id=_ID)), tokenizer)  # refuses what is not shown
    written = render_turns((asked, call), tokenizer, add_generation_prompt=False)
    turn = written[len(prompt) :] if written.startswith(prompt) else written
    for form in (TAGGED, LISTED, BARE, ELEMENTS):
        try:
            calls = form.read(_without_end(turn, tokenizer, form.marks))[1]
        except Unusable:
            continue
        if [each.name for each in calls] == [_NAME]:
            return form
    named = getattr(tokenizer, "name_or_path", "") or "the tokenizer"
    raise TutelageError(
        f"The chat template of {named} writes a call of a tool as {turn.strip()[:120]!r}, a form that cannot be read "
        "in samples. Choose a model whose template writes <tool_call>, [TOOL_CALLS] or a JSON object."
    )


def _without_end(turn: str, tokenizer: Tokenizer, marks: Sequence[str]) -> str:
    """The text of a turn before the special tokens that end it, which are none of `marks`."""
    ends = [re.escape(token) for token in facts(tokenizer).special_tokens.values() if token not in marks]
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
        value = parse_json(body)
    except ValueError:
        raise Unusable("a call that is no JSON object") from None
    if not (isinstance(value, Mapping) and "name" in value and {"parameters", "arguments"} & value.keys()):
        return text, ()
    return "", (read_call(value, "the completion"),)


_ELEMENTS = re.compile(r"<tool_call>\s*<function=([^>\n]+)>(.*?)</function>\s*</tool_call>", re.DOTALL)
_VALUE = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_WORDS: Mapping[str, object] = {"True": True, "False": False, "None": None}
"""Values as templates write them, which is not as JSON does."""


def element_calls(text: str) -> Calls:
    """Calls in <function=…> elements at the end of a text; their arguments are texts."""
    content, calls = text.rstrip(), list[ToolCall]()
    for match in reversed(list(_ELEMENTS.finditer(content))):
        if match.end() != len(content):
            break
        if _VALUE.sub("", match[2]).strip():
            raise Unusable("a <function=…> with something other than <parameter=…> elements")
        calls.append(ToolCall(match[1].strip(), json.dumps(dict(_VALUE.findall(match[2])), ensure_ascii=False)))
        content = content[: match.start()].rstrip()
    if "<tool_call>" in content or "<function=" in content:
        raise Unusable("a <tool_call> without a <function=…> that ends, or followed by other text")
    return (content if calls else text), tuple(reversed(calls))


def _typed(message: Message, schemas: Sequence[str]) -> Message:
    """The message with the values of its calls as the schemas of their tools have them."""
    functions = [json.loads(schema)["function"] for schema in schemas]
    known = {each["name"]: each.get("parameters") or {} for each in functions}
    return replace(message, calls=tuple(_typed_call(call, known.get(call.name, {})) for call in message.calls))


def _typed_call(call: ToolCall, parameters: Mapping[str, Any]) -> ToolCall:
    texts, properties = json.loads(call.arguments).items(), parameters.get("properties") or {}
    kinds = {name: _kinds(schema, parameters.get("$defs") or {}) for name, schema in properties.items()}
    values = {name: _typed_value(text, kinds.get(name, set())) for name, text in texts}
    return replace(call, arguments=json.dumps(values, ensure_ascii=False))


def _typed_value(text: str, kinds: Set[str]) -> object:
    """A value of one of these types. What does not fit stays a text, which is refused as any other unfit argument."""
    if "null" in kinds and text in ("None", "null"):
        return None
    if "string" in kinds or not kinds - {"null"}:
        return text
    try:
        value = parse_json(text)
        encodable(json.dumps(value, ensure_ascii=False, allow_nan=False), "a call")
    except (ValueError, Unusable):
        return _WORDS.get(text, text)
    return value


def _kinds(schema: object, named: Mapping[str, Any]) -> set[str]:
    """Types of the values that a schema allows; empty for any. `named` are the schemas that it may refer to."""
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type", ())
    found = {kind} if isinstance(kind, str) else set(kind)
    if schema.get("nullable"):
        found.add("null")
    if not kind:
        values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
        found |= {"string" if isinstance(value, str) else "value" for value in values}
    for each in (each for name in ("anyOf", "oneOf", "allOf") for each in schema.get(name, ())):
        found |= _kinds(each, named)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    return found | _kinds(named.get(name), {other: own for other, own in named.items() if other != name})


TAGGED = CallForm(tagged_calls, ("<tool_call>", "</tool_call>"))
LISTED = CallForm(listed_calls, (_LIST, "[ARGS]", "[CALL_ID]"))
BARE = CallForm(bare_calls, (_PYTHON_TAG,), whole=True)
ELEMENTS = CallForm(element_calls, ("<tool_call>", "</tool_call>"), untyped=True)

"""Values in exports of trackers: prompts and responses from inputs and outputs, which every application shapes as it
likes; words, numbers and times.

An input is a text, a list of messages, or an object that holds either: {"messages": [...]}, {"question": "..."}, … An
output is a text, a message, a list of messages that ends with the assistant's, or an object that holds one of these: an
OpenAI reply (`choices`), a LangChain reply (`generations`), {"output": "..."}, … Messages are in the forms of
`message_values`, or LangChain's (`type`: human, ai; or serialised with `lc` and `kwargs`). A text may be the JSON of
messages or of a reply, as tables have it.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tutelage.data.annotations import Exported, Parts
from tutelage.data.json_values import unfold_json
from tutelage.data.message_values import framed, to_answer, turns
from tutelage.data.readers import Values, a_type
from tutelage.data.records import Messages, user
from tutelage.data.row_values import Unusable, encodable
from tutelage.data.vote_rows import cell_text, cell_time

_LANGCHAIN = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "system": "system", "tool": "tool"}


ExportReader: TypeAlias = Callable[[Values, Parts], Exported]
ExportFormat: TypeAlias = tuple[str, Callable[[Values], bool], ExportReader]
"""Name, whether a row has the columns, and the reader of a row."""


def has(*columns: str, one_of: tuple[str, ...] = ()) -> Callable[[Values], bool]:
    """Whether a row has these columns, and one of `one_of` if there are any."""
    return lambda values: set(columns) <= values.keys() and not (one_of and set(one_of).isdisjoint(values))


def exported(read: ExportReader, values: Values, parts: Parts) -> Exported:
    """What a reader makes of a row; a row that it refuses is a statement left out."""
    try:
        return read(values, parts)
    except Unusable as reason:
        return Exported(left_out=(str(reason),))


def asked(value: object, key: str = "") -> Messages:
    """The conversation before the response, from an input. `key` names the part of an object with the prompt.

    Raises:
        Unusable: the input is empty, has an unknown form, or ends with an assistant turn.
    """
    value = _unfolded(value, key)
    if isinstance(value, str | None):
        if not value or not value.strip():
            raise Unusable("the input is empty")
        return user(encodable(value, "input"))
    if isinstance(value, Mapping) and not _is_message(value):
        if isinstance(value.get("messages"), list) and value["messages"] and key not in value:
            return framed(value, asked(value["messages"]))
        return asked(_part(value, key, "input", "--prompt"))
    return to_answer(_messages(value, "input"), "the input")


def said(value: object, key: str = "") -> str:
    """The text of the response, from an output. `key` names the part of an object with the response.

    Raises:
        Unusable: the output is empty, has an unknown form, or calls tools.
    """
    value = _unfolded(value, key)
    if isinstance(value, str | None):
        if not value or not value.strip():
            raise Unusable("the output is empty")
        return encodable(value, "output")
    if isinstance(value, Mapping) and not _is_message(value):
        return said(_reply(value, key))
    message = _messages(value, "output")[-1]
    if message.role != "assistant":
        raise Unusable(f"the output ends with a message of the {message.role}")
    if message.calls or not message.content.strip():
        raise Unusable("the output calls tools instead of a text" if message.calls else "the output is empty")
    return message.content


def _unfolded(value: object, key: str) -> object:
    """The value of a text that is the JSON of messages, of a reply, or of an object with the part `key`, as tables have
    it. Any other JSON is text, such as the responses of structured output."""
    inner: Any = unfold_json(value)
    if inner is value:
        return value
    if isinstance(inner, list):
        return inner if inner and all(isinstance(each, dict) and _is_message(each) for each in inner) else value
    is_reply = any(isinstance(inner.get(name), list) for name in ("messages", "choices", "generations"))
    return inner if is_reply or key in inner or _is_message(inner) else value


def _is_message(value: Mapping[str, object]) -> bool:
    return (
        isinstance(value.get("role"), str)
        or isinstance(value.get("kwargs"), Mapping)
        or (value.get("type") in _LANGCHAIN and "content" in value)
    )


def _messages(value: object, what: str) -> Messages:
    """Messages of a list of them, of one, or of LangChain's list of lists."""
    items = value if isinstance(value, list) else [value]
    if len(items) == 1 and isinstance(items[0], list):
        items = items[0]
    if not items or not all(isinstance(item, Mapping) and _is_message(item) for item in items):
        raise Unusable(f"the {what} is {a_type(value)} of an unknown form")
    return turns({what: [_standard(item) for item in items if isinstance(item, Mapping)]}, what)


def _standard(message: Mapping[str, object]) -> Mapping[str, object]:
    """The message with a role: LangChain's have a type, and serialised ones their fields in `kwargs`."""
    inner = message.get("kwargs")
    if isinstance(inner, Mapping):
        named = message.get("id")
        kind = str(named[-1]) if isinstance(named, list) and named else ""
        kinds = {"HumanMessage": "human", "AIMessage": "ai", "SystemMessage": "system", "ToolMessage": "tool"}
        return _standard({"type": kinds.get(kind, kind)} | dict(inner))
    if "role" in message:
        return message
    role = _LANGCHAIN.get(str(message.get("type")), message.get("type"))
    return {"role": role, **{key: message[key] for key in ("content", "tool_calls") if message.get(key)}}


def _part(value: Mapping[str, object], key: str, what: str, flag: str) -> object:
    """The part of an object that holds the text: the one named `key`, or the only one. Numbers and switches are no
    parts; any other part may belong to the text, so several are refused."""
    if key in value:
        return value[key]
    parts = {name: part for name, part in value.items() if isinstance(part, str | list | Mapping) and part}
    if len(parts) > 1:
        raise Unusable(f"the {what} has the parts {', '.join(map(str, parts))}: name the one to use ({flag})")
    if not parts:
        raise Unusable(f"the {what} is empty")
    return next(iter(parts.values()))


def _reply(value: Mapping[str, object], key: str) -> object:
    """The part of an output with the response; the message of a reply of OpenAI or LangChain."""
    if key in value:
        return value[key]
    choices, generations, messages = (value.get(name) for name in ("choices", "generations", "messages"))
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], Mapping):
        return choices[0].get("message") or choices[0].get("text")
    while isinstance(generations, list) and len(generations) == 1:
        generations = generations[0]
    if isinstance(generations, Mapping):
        return generations.get("message") or generations.get("text")
    if isinstance(messages, list) and messages:
        return messages[-1:]
    return _part(value, "", "output", "--responses")


# Cells ---------------------------------------------------------------------------------------------------------------


def first_of(values: Values, *names: str) -> Any:
    """The first of these cells that is not null."""
    return next((value for name in names if (value := values.get(name)) is not None), None)


def words(values: Values, *names: str) -> str:
    """The first of these cells as text; empty if there is none."""
    value = first_of(values, *names)
    return "" if value is None else cell_text({"cell": value}, "cell")


def key_of(values: Values, *names: str) -> str:
    """The first of these cells as an id.

    Raises:
        Unusable: there is none; rows without ids would be taken for one.
    """
    key = words(values, *names)
    if not key:
        raise Unusable(f"a row without {' or '.join(names)}, by which it is recognised")
    return key


def moment(values: Values, *names: str) -> int:
    """The first of these cells as milliseconds since 1970; 0 if there is none."""
    return cell_time({"time": first_of(values, *names)}, "time")


def as_number(value: object) -> float | None:
    """A finite number, or a true or false value as 1 or 0; also as text, as tables have it."""
    try:
        number = float(value) if isinstance(value, int | float) else float(str(value))
    except (ValueError, OverflowError):
        return {"true": 1.0, "false": 0.0}.get(str(value).strip().lower())
    return number if math.isfinite(number) else None

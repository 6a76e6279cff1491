"""Conversion of cells to messages, prompts and completions.

A cell holds messages as a list of objects: `role` and `content`, or `from` and `value` (ShareGPT); or this list as
text, in JSON or in Python's notation, as tables have it. A text in which a chat template was applied already, or an
hh-rlhf transcript, is in `tutelage.data.transcripts`.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tutelage.data.images import part_address
from tutelage.data.json_values import parse_json
from tutelage.data.readers import Values, a_type
from tutelage.data.records import AssistantTurn, ImagePart, Message, Messages, Role, spoken, user
from tutelage.data.row_values import (
    Cells,
    ImageInRow,
    Unusable,
    cell_if,
    encodable,
    is_truth,
    number,
    optional_text,
    text,
    truth,
)
from tutelage.data.tool_calls import (
    are_schemas,
    read_call,
    read_calls,
    read_tools,
    results_in,
    split_calls,
    without_nulls,
)
from tutelage.data.transcripts import has_marks, parse_transcript, without_end

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "tool_response": "tool",
}
CALLERS = ("function_call", "tool_call")
"""Roles whose text is a call by the assistant, as JSON."""
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Keys of a message with its thinking, if they hold text; other values, as of a setting, are not read."""
MARKS = ("trainable", "training", "train", "loss")
"""Keys of a message that say whether the assistant learns it, if they are true or false; `weight` is a number."""

# Messages ------------------------------------------------------------------------------------------------------------

_LIKE_MESSAGES = re.compile(r"\s*\[\s*\{\s*['\"](?:role|content|from|value)['\"]\s*:")
_SPEAKER = re.compile(rf"['\"](?:role|from)['\"]\s*:\s*['\"](?:{'|'.join((*ROLES, *CALLERS))})['\"]")


def holds_messages(value: object) -> bool:
    """Whether the cell holds a list of messages, a single one, or the text of a list with a speaker that is known. Any
    other JSON is text, such as the completions of structured output."""
    if isinstance(value, str):
        return _LIKE_MESSAGES.match(value) is not None and _SPEAKER.search(value) is not None
    return isinstance(value, list) or (isinstance(value, Mapping) and ("role" in value or "from" in value))


def turns(values: Values, column: str, *, weights: bool = False) -> Messages:
    """Messages of a cell. `weights`: read which of the assistant's messages are learnt (`weight`, `MARKS`)."""
    cells = values if isinstance(values, Cells) else Cells(values)
    value = cells.get(column)
    if isinstance(value, str):
        value = _from_text(value, cells, column)
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list):
        raise Unusable(
            f"{column} is missing" if value is None else f"{column} is {a_type(value)}, not a list of messages"
        )
    return tuple(message for item in value for message in _messages_of(item, cells, column, weights))


def _from_text(value: str, cells: Cells, column: str) -> object:
    if not holds_messages(value):
        raise Unusable(f"{column} is text, not a list of messages")
    try:
        return parse_json(value)
    except ValueError:
        pass
    try:
        messages: object = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise Unusable(
            f"{column} looks like a list of messages, but is neither JSON nor Python's notation of one"
        ) from None
    cells.remark(f"{column}: messages in Python's notation, read as a list of messages")
    return messages


def _messages_of(item: object, cells: Cells, column: str, weights: bool) -> Iterator[Message]:
    """The message of an item; one for each result of a tool in Hermes' marks. Calls in such marks become calls."""
    message = _plain_turn(item, column) or _turn(item, cells, column, weights)
    if message.role == "tool":
        yield from (replace(message, content=result) for result in results_in(message.content))
    elif message.role == "assistant":
        content, calls = split_calls(message.content, column)
        if calls:
            cells.remark(f"{column}: calls of tools in <tool_call> marks, read as calls")
        yield replace(message, content=content, calls=(*message.calls, *calls)) if calls else message
    else:
        yield message


def _plain_turn(item: object, column: str) -> Message | None:
    """The message of an item that is a role and a text alone, which is the usual case; otherwise None."""
    if not isinstance(item, Mapping) or len(item) != 2:
        return None
    speaker, content = map(item.get, ("role", "content") if "role" in item else ("from", "value"))
    if not (isinstance(speaker, str) and isinstance(content, str) and speaker in ROLES and content.strip()):
        return None
    return Message(ROLES[speaker], encodable(content, column))


def _turn(item: object, cells: Cells, column: str, weights: bool) -> Message:
    if not isinstance(item, Mapping):
        raise Unusable(f"{column} holds {a_type(item)} where a message belongs")
    turn = cells.within(column, item)
    speaker, content = (
        (turn.get("role"), turn.get("content")) if "role" in turn else (turn.get("from"), turn.get("value"))
    )
    if isinstance(speaker, str) and speaker in CALLERS:
        return Message("assistant", "", calls=read_calls(content, column), weight=_weight(turn, weights))
    if not isinstance(speaker, str) or speaker not in ROLES:
        raise Unusable(f"{column} has a turn with the unknown role {speaker!r}")
    role = ROLES[speaker]
    message = Message(role, "")
    if isinstance(content, list):
        message, content = _of_parts(content, message, cells, column)
        if message.images and not turn.images:
            raise ImageInRow(f"{column} has a turn with an image")
    if role == "assistant":
        message = _assistant(turn, message, cells, column, weights)
    if role == "tool":
        message = replace(message, name=optional_text(turn, "name"), call_id=optional_text(turn, "tool_call_id"))
    if content is None and (message.calls or role == "tool"):
        content = ""
    if not isinstance(content, str):
        raise Unusable(f"{column} has a turn whose content is {a_type(content)}, not text")
    if role not in ("system", "tool") and not content.strip() and message.is_text:
        raise Unusable(f"{column} has an empty {role} turn")
    return replace(message, content=encodable(content, column))


def _assistant(turn: Cells, message: Message, cells: Cells, column: str, weights: bool) -> Message:
    """The message with its thinking, its calls and its weight."""
    thoughts = (encodable(cell_if(turn, key, lambda value: isinstance(value, str)) or "", column) for key in THOUGHTS)
    thinking = next(filter(None, thoughts), message.thinking)
    given, single = (_bare(turn.get(key), cells, f"{column}: calls") for key in ("tool_calls", "function_call"))
    calls = read_calls(given, column) if given else message.calls
    if single:
        calls = (*calls, read_call(single, column))
    return replace(message, thinking=thinking, calls=calls, weight=_weight(turn, weights))


def _bare(value: object, values: Values, what: str) -> object:
    """Calls or schemas of tools without the keys whose value is null, on which the row gets a remark."""
    bare = without_nulls(value)
    if bare != value and isinstance(values, Cells):
        values.remark(f"{what} of tools without their keys that are null, as a table fills them in")
    return bare


def _weight(turn: Cells, weights: bool) -> float:
    if not weights:
        return 1.0
    weight = number(turn, "weight", 1.0, 0.0)
    marked = [key for key in MARKS if cell_if(turn, key, is_truth) is not None]
    return weight if all(truth(turn, key) for key in marked) else 0.0


def _of_parts(parts: Sequence[object], message: Message, cells: Cells, column: str) -> tuple[Message, str]:
    """(the message with the thinking, the calls and the images among its parts, the text of the others)."""
    texts: list[str] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, Mapping) and kind in ("thinking", "reasoning") and isinstance(part.get(kind), str):
            message = replace(message, thinking=message.thinking + part[kind])
        elif isinstance(part, Mapping) and kind == "tool_use" and message.role == "assistant":
            given = _bare(part.get("input"), cells, f"{column}: calls")
            call = read_call({"name": part.get("name"), "arguments": given, "id": part.get("id")}, column)
            message = replace(message, calls=(*message.calls, call))
        elif isinstance(part, Mapping) and (address := part_address(part)) is not None:
            image = ImagePart(len("".join(texts)), address, encodable(optional_text(part, "alt"), column))
            message = replace(message, images=(*message.images, image))
        else:
            named = f"of the type {kind!r}" if isinstance(kind, str) else "without a type"
            raise Unusable(f"{column} has a turn with parts that are not text ({named}); no command reads them")
    return message, "".join(texts)


# Prompts -------------------------------------------------------------------------------------------------------------

Ask: TypeAlias = Callable[[Values], Messages]

SYSTEM = ("system", "system_prompt")
TOOLS = ("tools", "functions")
CONTEXT = (*SYSTEM, *TOOLS)
"""Columns beside those of a prompt that belong to its conversation."""


def framed(values: Values, messages: Messages) -> Messages:
    """The messages under the row's system text, unless it is blank, with the tools that the row offers."""
    if isinstance(values, Cells) and not values.has_any(CONTEXT):
        return messages
    system = next((said for column in SYSTEM if (said := optional_text(values, column)).strip()), "")
    first = messages[0] if messages else Message("user", "")
    if system and first.role == "system" and first.content.strip() != system.strip():
        raise Unusable("the system message is given twice, in a column and in the messages")
    if system and first.role != "system":
        messages = (Message("system", system), *messages)
    schemas = next(filter(None, (cell_if(values, column, are_schemas) for column in TOOLS)), None)
    tools = read_tools(_bare(schemas, values, "tools: schemas"))
    if tools and messages and messages[0].role == "system" and "<tools>" in messages[0].content:
        tools = ()  # Hermes: the system message has them already
        if isinstance(values, Cells):
            values.remark("tools: spelled out in the system message, so not given to the chat template")
    return (replace(messages[0], tools=tools), *messages[1:]) if tools and messages else messages


def question_from(column: str, context: str | None = None) -> Ask:
    """User turn (or conversation) from one column, with the context column after a blank line, under the system text if
    there is one."""

    def ask(values: Values) -> Messages:
        extra = optional_text(values, context) if context else ""
        asked = conversation(values, column)
        if extra.strip() and asked[:-1]:
            raise Unusable(f"{column} is a conversation, to which {context} cannot be added")
        return framed(values, user(f"{asked[-1].content}\n\n{extra}") if extra.strip() else asked)

    return ask


def prompt_column(values: Values) -> Messages:
    """`prompt` as text or as a list of messages."""
    return framed(values, conversation(values, "prompt"))


def prompt_transcript(values: Values) -> Messages:
    """`prompt` as "\\n\\nHuman: ...\\n\\nAssistant:"."""
    return to_answer(_of_transcript(text(values, "prompt"), "prompt"), "prompt")


def conversation(values: Values, column: str) -> Messages:
    """Conversation to complete: text (one user turn, or those of a chat template's marks) or a list of messages, the
    last of them not the assistant's."""
    if holds_messages(values.get(column)):
        return to_answer(turns(values, column), column)
    content = text(values, column)
    if not has_marks(content):
        return user(content)
    if isinstance(values, Cells):
        values.remark(f"{column}: a chat template was applied already; its marks are read as turns")
    return to_answer(_of_transcript(content, column), column)


def _of_transcript(content: str, column: str) -> Messages:
    messages = parse_transcript(content)
    return messages[:-1] if messages[-1] == Message("assistant", "") else messages


def to_answer(messages: Messages, column: str) -> Messages:
    """The messages, after checking that an assistant turn comes next."""
    if messages and messages[-1].role == "assistant":
        raise Unusable(f"{column} ends with an assistant turn, so there is nothing to answer")
    return messages


# Completions ---------------------------------------------------------------------------------------------------------


def split_answer(messages: Messages, column: str) -> tuple[Messages, AssistantTurn]:
    """(conversation, last assistant turn) of messages."""
    if not messages or messages[-1].role != "assistant":
        raise Unusable(f"{column} does not end with an assistant turn")
    return to_answer(messages[:-1], column), spoken(messages[-1])


def answer(values: Values, column: str) -> AssistantTurn:
    """One completion: text, or a list with a single assistant message."""
    if holds_messages(values.get(column)):
        return only_answer(turns(values, column), column)
    return completion_text(values, column, text(values, column))


def completion_text(values: Values, column: str, content: str) -> str:
    """The text of a completion, without the mark with which a chat template ended it."""
    bare = without_end(content)
    if bare != content and isinstance(values, Cells):
        values.remark(f"{column}: the chat template's end of a turn is taken off")
    return bare


def only_answer(messages: Messages, column: str) -> AssistantTurn:
    """The only message, an assistant's."""
    if len(messages) != 1 or messages[0].role != "assistant":
        raise Unusable(f"{column} is not one assistant message after the prompt")
    return spoken(messages[0])

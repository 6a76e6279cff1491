"""One column of one row as the value a record needs, or `Unusable` with the reason that is counted and printed."""

import json
import math
import re
from collections.abc import Mapping

from tutelage.data.readers import Values, a_type
from tutelage.data.records import Message, Messages, Role, user

_HALF = re.compile("[\ud800-\udfff]")


class Unusable(Exception):
    """This row cannot become a record. The text is the reason, the same for all rows that fail alike."""


class LeftOut(Exception):
    """This row is sound but is not wanted here (a repeated prompt, an answer labelled bad). Counted apart: so many
    of `thing`, for one `reason`."""

    def __init__(self, thing: str, reason: str) -> None:
        super().__init__(reason)
        self.thing, self.reason = thing, reason


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
}


def text(values: Values, column: str) -> str:
    """Text with something in it, exactly as it stands."""
    value = optional_text(values, column)
    if not value.strip():
        raise Unusable(f"{column} is empty" if values.get(column) is not None else f"{column} is missing")
    return value


def optional_text(values: Values, column: str) -> str:
    """Text, or "" when there is none."""
    value = values.get(column)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unusable(f"{column} is {a_type(value)}, not text")
    return _encodable(value, column)


def holds_half_a_character(value: str) -> bool:
    """Whether the text has a lone surrogate, which UTF-8 cannot encode."""
    return _HALF.search(value) is not None


def _encodable(value: str, column: str) -> str:
    if holds_half_a_character(value):
        raise Unusable(f"{column} holds half a character (a lone surrogate)")
    return value


def number(
    values: Values, column: str, default: float, low: float = -math.inf, high: float = math.inf
) -> float:
    """A finite number in [low, high]; the default when the column is absent, null or empty."""
    value = values.get(column)
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unusable(f"{column} is {a_type(value)}, not a number")
    try:
        result = float(value)
    except (ValueError, OverflowError):
        raise Unusable(f"{column} is not a number") from None
    if not math.isfinite(result):
        raise Unusable(f"{column} is {'NaN' if math.isnan(result) else 'infinite'}")
    if not low <= result <= high:
        raise Unusable(
            f"{column} is below {low:g}" if high == math.inf else f"{column} is outside [{low:g}, {high:g}]"
        )
    return result


def truth(values: Values, column: str) -> bool:
    """true/false, or 1/0, or the same as text (csv)."""
    value = values.get(column)
    word = str(value).strip().lower()
    if isinstance(value, bool | int | float | str) and word in ("true", "1", "1.0", "false", "0", "0.0"):
        return word in ("true", "1", "1.0")
    raise Unusable(f"{column} is neither true nor false")


def name(values: Values, column: str) -> str:
    """An id: text or a whole number."""
    value = values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(values, column)


def turns(values: Values, column: str) -> Messages:
    """A list of messages: `role` and `content`, or `from` and `value` (ShareGPT). A csv cell may hold it as JSON."""
    value = values.get(column)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise Unusable(f"{column} is text, not a list of messages") from None
    if not isinstance(value, list):
        raise Unusable(
            f"{column} is missing"
            if value is None
            else f"{column} is {a_type(value)}, not a list of messages"
        )
    return tuple(_turn(item, column) for item in value)


def _turn(item: object, column: str) -> Message:
    if not isinstance(item, dict):
        raise Unusable(f"{column} holds {a_type(item)} where a message belongs")
    speaker, content = (
        (item.get("role"), item.get("content")) if "role" in item else (item.get("from"), item.get("value"))
    )
    if not isinstance(speaker, str) or speaker not in ROLES:
        raise Unusable(f"{column} has a turn with the unknown role {speaker!r}")
    role = ROLES[speaker]
    if isinstance(content, list):
        content = _joined_parts(content, column)
    if not isinstance(content, str):
        raise Unusable(f"{column} has a turn whose content is {a_type(content)}, not text")
    if role != "system" and not content.strip():
        raise Unusable(f"{column} has an empty {role} turn")
    return Message(role, _encodable(content, column))


def _joined_parts(parts: list[object], column: str) -> str:
    texts: list[str] = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Unusable(f"{column} has a turn with parts that are not text")
        texts.append(part["text"])
    return "".join(texts)


def conversation(values: Values, column: str) -> Messages:
    """The conversation to answer: text (one user turn) or a list of messages, the last of them not the assistant's."""
    if isinstance(values.get(column), list):
        return to_answer(turns(values, column), column)
    return user(text(values, column))


def to_answer(messages: Messages, column: str) -> Messages:
    """The messages, after checking that an answer is what comes next."""
    if messages and messages[-1].role == "assistant":
        raise Unusable(f"{column} ends with an assistant turn, so there is nothing to answer")
    return messages


def answered(messages: Messages, column: str) -> tuple[Messages, str]:
    """(conversation, answer) of messages whose last turn is the assistant's."""
    if not messages or messages[-1].role != "assistant":
        raise Unusable(f"{column} does not end with an assistant turn")
    return to_answer(messages[:-1], column), messages[-1].content


def said(values: Values, column: str, answer: str) -> str:
    """The answer that was found in a column, after checking that it says something."""
    if not answer.strip():
        raise Unusable(
            f"the answer in {column} is empty" if values.get(column) is not None else f"{column} is missing"
        )
    return answer

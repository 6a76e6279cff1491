r"""Conversion of cells to values of records; raises `Unusable` with the reason, which is counted and printed.

Conversations may be one text, "\n\nHuman: ...\n\nAssistant: ...", as in the hh-rlhf data. Consecutive turns of one
speaker are merged into one, joined by a blank line. (In the helpful-base test set 9 of 2,354 pairs have such turns;
unmerged, the two sides would not share a prompt.)
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tutelage.data.readers import Values, a_type
from tutelage.data.records import Message, Messages, Role, user

_HALF = re.compile("[\ud800-\udfff]")


class Unusable(Exception):
    """Raised if a row cannot become a record. The text is the reason, the same for all rows with the same problem."""


class LeftOut(Exception):
    """Raised for a valid row that is excluded (a duplicate prompt, a completion labelled bad). Counted separately: a
    number of `thing`, for one `reason`."""

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
    """Non-blank text, unchanged."""
    value = optional_text(values, column)
    if not value.strip():
        raise Unusable(f"{column} is empty" if values.get(column) is not None else f"{column} is missing")
    return value


def optional_text(values: Values, column: str) -> str:
    """Text, or "" if there is none."""
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


def number(values: Values, column: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    """Finite number in [low, high]; the default if the column is absent, null or empty."""
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
        raise Unusable(f"{column} is below {low:g}" if high == math.inf else f"{column} is outside [{low:g}, {high:g}]")
    return result


def truth(values: Values, column: str) -> bool:
    """true/false, 1/0, or either as text (csv)."""
    value = values.get(column)
    word = str(value).strip().lower()
    if isinstance(value, bool | int | float | str) and word in ("true", "1", "1.0", "false", "0", "0.0"):
        return word in ("true", "1", "1.0")
    raise Unusable(f"{column} is neither true nor false")


def name(values: Values, column: str) -> str:
    """Id: text or an integer."""
    value = values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(values, column)


def turns(values: Values, column: str) -> Messages:
    """List of messages: `role` and `content`, or `from` and `value` (ShareGPT). A csv cell may contain it as JSON."""
    value = values.get(column)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise Unusable(f"{column} is text, not a list of messages") from None
    if not isinstance(value, list):
        raise Unusable(
            f"{column} is missing" if value is None else f"{column} is {a_type(value)}, not a list of messages"
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
    """Conversation to complete: text (one user turn) or a list of messages, the last of them not the assistant's."""
    if isinstance(values.get(column), list):
        return to_answer(turns(values, column), column)
    return user(text(values, column))


def to_answer(messages: Messages, column: str) -> Messages:
    """The messages, after checking that an assistant turn comes next."""
    if messages and messages[-1].role == "assistant":
        raise Unusable(f"{column} ends with an assistant turn, so there is nothing to answer")
    return messages


def split_answer(messages: Messages, column: str) -> tuple[Messages, str]:
    """(conversation, last assistant turn) of messages."""
    if not messages or messages[-1].role != "assistant":
        raise Unusable(f"{column} does not end with an assistant turn")
    return to_answer(messages[:-1], column), messages[-1].content


def require_answer(values: Values, column: str, answer: str) -> str:
    """The completion from a column, after checking that it is not blank."""
    if not answer.strip():
        raise Unusable(f"the answer in {column} is empty" if values.get(column) is not None else f"{column} is missing")
    return answer


_MARK = re.compile(r"(?:^|\n\n)(Human|User|Assistant):")
_EXTRA_ID = re.compile(r"\n?<extra_id_1>(User|Assistant)\n")
_SPEAKERS: dict[str, Role] = {"Human": "user", "User": "user", "Assistant": "assistant"}


def is_transcript(value: object) -> bool:
    """Whether the text starts with a human turn and has an assistant turn after it."""
    if not isinstance(value, str):
        return False
    opening = _MARK.match(value.lstrip())
    return opening is not None and opening[1] != "Assistant" and "\n\nAssistant:" in value


def parse_transcript(value: str) -> Messages:
    """Turns of a transcript, without surrounding white space. The last may be empty: a prompt."""
    parts = _MARK.split("\n\n" + value.strip())
    if parts[0].strip():
        raise Unusable("the transcript does not begin with a speaker")
    messages: list[Message] = []
    for speaker, content in zip(parts[1::2], parts[2::2], strict=True):
        role, content = _SPEAKERS[speaker], content.strip()
        if messages and messages[-1].role == role:
            content = f"{messages.pop().content}\n\n{content}".strip()
        messages.append(Message(role, content))
    if any(not message.content for message in messages[:-1]):
        raise Unusable("the transcript has an empty turn")
    return tuple(messages)


def parse_marked(value: str) -> Messages:
    """Turns of a HelpSteer prompt: the user's text, then turns marked by <extra_id_1>, the last of them the user's."""
    parts = _EXTRA_ID.split(value)
    messages = [Message("user", parts[0].strip())] if parts[0].strip() else []
    for speaker, content in zip(parts[1::2], parts[2::2], strict=True):
        if content.strip():
            messages.append(Message(_SPEAKERS[speaker], content.strip()))
    if not messages or messages[-1].role == "assistant":
        raise Unusable("the prompt ends with an assistant turn, so there is nothing to answer")
    return tuple(messages)


_ENDS = re.compile(r"\n\s*|[.?!:]['\")\]]*\s+")


def ends_in_mid_sentence(chosen: str, rejected: str) -> bool:
    """Whether the common prefix of two texts contains no end of a line or sentence, so that the end of the prompt is
    ambiguous."""
    return _ENDS.search(_in_common(chosen, rejected)) is None


def shared_beginning(chosen: str, rejected: str) -> tuple[str, str, str]:
    """(prompt, chosen completion, rejected completion) of two texts without a mark between prompt and completion.

    The prompt is their common prefix up to its last end of a line or sentence, so that words with which both
    completions start stay with them. Without such an end, the prompt is the whole prefix, back to its last white
    space. A whole sentence with which both completions start counts as prompt."""
    if chosen.strip() == rejected.strip():
        raise Unusable("chosen equals rejected")
    if chosen.strip().startswith(rejected.strip()) or rejected.strip().startswith(chosen.strip()):
        raise Unusable("one of chosen and rejected is the beginning of the other")
    common = _in_common(chosen, rejected)
    if not common.strip():
        raise Unusable("chosen and rejected share no beginning that could be the prompt")
    ends = [match.end() for match in _ENDS.finditer(common) if common[: match.end()].strip()]
    end = ends[-1] if ends else len(common)
    return chosen[:end].strip(), chosen[end:].strip(), rejected[end:].strip()


def _in_common(chosen: str, rejected: str) -> str:
    """Common prefix of two texts, back to its last white space so that no word is split."""
    end = 0
    for index, (left, right) in enumerate(zip(chosen, rejected, strict=False), 1):
        if left != right:
            break
        if left.isspace():
            end = index
    return chosen[:end]


Ask: TypeAlias = Callable[[Values], Messages]

SYSTEM = ("system", "system_prompt")


def question_from(column: str, context: str | None = None) -> Ask:
    """User turn from one column, with the context column after a blank line, under the system text if there is one."""

    def ask(values: Values) -> Messages:
        extra = optional_text(values, context) if context else ""
        question = text(values, column)
        return with_system(values, user(f"{question}\n\n{extra}" if extra.strip() else question))

    return ask


def with_system(values: Values, messages: Messages) -> Messages:
    """The messages after the row's system text, unless it is blank."""
    for column in SYSTEM:
        if optional_text(values, column).strip():
            return (Message("system", optional_text(values, column)), *messages)
    return messages


def prompt_column(values: Values) -> Messages:
    """`prompt` as text or as a list of messages."""
    return with_system(values, conversation(values, "prompt"))


def prompt_transcript(values: Values) -> Messages:
    """`prompt` as "\\n\\nHuman: ...\\n\\nAssistant:"."""
    messages = parse_transcript(text(values, "prompt"))
    return messages[:-1] if messages[-1] == Message("assistant", "") else to_answer(messages, "prompt")


def answer(values: Values, column: str) -> str:
    """One completion: text, or a list with a single assistant message."""
    if not isinstance(values.get(column), list):
        return text(values, column)
    return only_answer(turns(values, column), column)


def only_answer(messages: Messages, column: str) -> str:
    """Text of the only message, an assistant's."""
    if len(messages) != 1 or messages[0].role != "assistant":
        raise Unusable(f"{column} is not one assistant message after the prompt")
    return messages[0].content

"""Supported column sets for every kind of data, in order of preference.

Columns of prompt files that are not fields of a prompt become `Prompt.data`, which rewards and tools read. Columns
that the format reads become fields of the prompt and are not repeated in `Prompt.data`; all others keep their names,
except those in `FIELDS`, which are names of prompt fields in Tutelage's files. Values are JSON values (see
`json_value`).
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.message_values import (
    CONTEXT,
    TOOLS,
    Ask,
    answer,
    framed,
    holds_messages,
    prompt_column,
    prompt_transcript,
    question_from,
    split_answer,
    turns,
)
from tutelage.data.preference_formats import IMPLICIT, PAIRS, TRAINERS, Pair, labelled_format
from tutelage.data.published_formats import COMPARISON_FORMATS, HELPSTEER, RATING_FORMATS
from tutelage.data.readers import Values
from tutelage.data.records import (
    Demonstration,
    Messages,
    Preference,
    Prompt,
    Split,
    UnpairedAnswer,
    prompt_id,
    tools_of,
    user,
)
from tutelage.data.row_values import (
    Cells,
    LeftOut,
    Unusable,
    holds_half_a_character,
    is_truth,
    name,
    number,
    optional_text,
    require_answer,
    text,
    truth,
)
from tutelage.data.step_formats import PRM800K, SHEPHERD, prm800k_prompt, shepherd_prompt
from tutelage.data.table_format import RowFormat
from tutelage.data.tables import Table
from tutelage.data.tool_calls import are_schemas
from tutelage.data.transcripts import has_marks, is_transcript, parse_glaive, parse_transcript

FIELDS = ("id", "prompt", "messages", "split", *CONTEXT)
"""Column names of prompts.jsonl that are fields of a prompt, regardless of the row's format."""


class NotJson(ValueError):
    """Raised for values without a JSON equivalent."""


def own_columns(values: Values, read: Collection[str]) -> dict[str, object]:
    """`Prompt.data` of a row whose format reads the columns `read`. Values without a JSON equivalent become None."""
    cells = values.unmarked if isinstance(values, Cells) else values
    own = (column for column, value in cells.items() if is_own(column, value, read))
    return {column: json_value(values[column]) if _is_json(values[column]) else None for column in own}


def is_own(column: str, value: object, read: Collection[str]) -> bool:
    """Whether a cell is kept in `Prompt.data`."""
    if column in TOOLS:
        return not are_schemas(value)
    return column not in read and column not in FIELDS


def json_value(value: object) -> object:
    """Convert a value to JSON, with lists for sequences; the result survives a JSON round trip unchanged.

    Dates, times and decimals become text; NaN, the usual mark of a missing number in a table, becomes None. Raises
    NotJson for values without a JSON equivalent (bytes, infinities, half a surrogate pair) and for excessive
    nesting.
    """
    try:
        return _json(value)
    except RecursionError:
        raise NotJson(f"a {type(value).__name__} that is nested too deeply") from None


def _json(value: object) -> object:
    match value:
        case None | bool() | int():
            return value
        case str() if not holds_half_a_character(value):
            return value
        case float() if not math.isinf(value):
            return None if math.isnan(value) else value
        case date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case Mapping():
            return {str(_json(str(key))): _json(item) for key, item in value.items()}
        case Sequence() if not isinstance(value, str | bytes | bytearray | memoryview):
            return [_json(item) for item in value]
    raise NotJson(type(value).__name__)


def remarks(table: Table, read: Collection[str]) -> tuple[str, ...]:
    """Remarks on the own columns of a prompt file: those kept, and those with values that JSON cannot represent."""
    own = [
        column
        for column in table.columns
        if is_own(column, None, read)
        or (column in TOOLS and any(is_own(column, row.values.get(column), read) for row in table.rows))
    ]
    sentences = [f"own columns, for rewards: {', '.join(own)}"] if own else []
    lost: dict[str, list[str]] = {column: [] for column in own}
    for row in table.rows if own else ():
        for column in own:
            if not _is_json(row.values.get(column)):
                lost[column].append(row.where)
    for column, places in lost.items():
        if places:
            sentences.append(
                f"null in place of {counted(len(places), 'value')} of {column} that JSON cannot hold ({places[0]}, …)"
            )
    return tuple(sentences)


def _is_json(value: object) -> bool:
    try:
        json_value(value)
    except NotJson:
        return False
    return True


def columns_of(prompt: Prompt) -> Mapping[str, object]:
    """Own columns of a prompt, to be written next to its fields. Raises TutelageError if a name is a field's."""
    tools = TOOLS if tools_of(prompt.messages) else ()
    collide = [
        name
        for name, value in prompt.data.items()
        if name in tools or (name in FIELDS and not is_own(name, value, FIELDS))
    ]
    if collide:
        raise TutelageError(
            f"The data of prompt {prompt.id!r} has the name {collide[0]!r}, which is a field of a prompt in its file; "
            "choose another name."
        )
    return prompt.data


def _demonstrated(title: str, ask: Ask, columns: tuple[str, ...], column: str) -> RowFormat[Demonstration]:
    return RowFormat(
        ", ".join((*columns, column)) + title,
        (columns[0], column),
        lambda values: Demonstration(ask(values), answer(values, column)),
        also=(*columns[1:], *CONTEXT),
    )


def _whole_conversation(column: str, title: str) -> RowFormat[Demonstration]:
    def parse(values: Values) -> Demonstration:
        messages = turns(values, column, weights=True)
        prompt, response = split_answer(messages, column)
        return Demonstration(framed(values, prompt), response, messages[-1].weight)

    return RowFormat(title, (column,), parse, CONTEXT)


def _completed(values: Values) -> Demonstration:
    """`prompt` and `completion`: text, or messages that end with the assistant's, as after calls of tools."""
    prompt, weight = prompt_column(values), number(values, "weight", 1.0, 0.0)
    if not holds_messages(values.get("completion")):
        return Demonstration(prompt, answer(values, "completion"), weight)
    messages = turns(values, "completion", weights=True)
    if any(message.role in ("system", "user") for message in messages):
        raise Unusable("completion holds messages that are not the assistant's, nor results of its calls")
    earlier, response = messages[:-1], split_answer(messages[-1:], "completion")[1]
    return Demonstration((*prompt, *earlier), response, weight * messages[-1].weight)


def _glaive(values: Values) -> Messages:
    return parse_glaive(optional_text(values, "system"), text(values, "chat"))


def _is_conversation(values: Values) -> bool:
    """Whether `text` is a list of messages, or has the marks of a chat template."""
    cell = values["text"]
    return holds_messages(cell) or (isinstance(cell, str) and has_marks(cell))


def _conversation_text(values: Values) -> Messages:
    cell = values.get("text")
    return turns(values, "text") if holds_messages(cell) else parse_transcript(text(values, "text"))


def _has_chat(values: Values) -> bool:
    return isinstance(values["chat"], str) and "USER:" in values["chat"]


ANSWERED: tuple[RowFormat[Demonstration], ...] = (
    _whole_conversation("messages", "messages (role, content)"),
    _whole_conversation("conversations", "conversations (from, value: ShareGPT)"),
    RowFormat(
        "system, chat (Glaive)",
        ("chat",),
        lambda values: Demonstration(*split_answer(_glaive(values), "chat")),
        ("system",),
        fits=_has_chat,
    ),
    _demonstrated(" (Dolly)", question_from("instruction", "context"), ("instruction", "context"), "response"),
    _demonstrated(" (Alpaca)", question_from("instruction", "input"), ("instruction", "input"), "output"),
    RowFormat("prompt, completion", ("prompt", "completion"), _completed, also=("weight", *CONTEXT)),
    _demonstrated("", prompt_column, ("prompt",), "response"),
    _demonstrated("", question_from("question"), ("question",), "answer"),
    _demonstrated("", question_from("question"), ("question",), "response"),
    RowFormat(
        "text (a conversation)",
        ("text",),
        lambda values: Demonstration(*split_answer(_conversation_text(values), "text")),
        fits=_is_conversation,
    ),
    RowFormat("text", ("text",), lambda values: Demonstration((), text(values, "text"))),
)


UNPAIRED: tuple[RowFormat[UnpairedAnswer], ...] = (
    RowFormat(
        "prompt, completion, label",
        ("prompt", "completion", "label"),
        lambda values: UnpairedAnswer(prompt_column(values), answer(values, "completion"), truth(values, "label")),
        also=CONTEXT,
        fits=lambda values: is_truth(values["label"]),
    ),
)

TEXTS: tuple[RowFormat[str], ...] = (RowFormat("text", ("text",), lambda values: text(values, "text")),)


def _chosen_side(form: RowFormat[Pair]) -> RowFormat[Demonstration]:
    def parse(values: Values) -> Demonstration:
        messages, chosen, _ = form.parse(values)
        return Demonstration(messages, require_answer(values, "chosen", chosen))

    name = f"{form.name}, of which the chosen side"
    listed = "preferences of every kind, of which the chosen side"
    return replace(form, name=name, parse=parse, listed=listed)  # type: ignore[arg-type, return-value]


def _good_answer(values: Values) -> Demonstration:
    labelled = UNPAIRED[0].parse(values)
    if not labelled.label:
        raise LeftOut("answer", "labelled bad")
    return Demonstration(labelled.messages, labelled.completion)


COMPARISON_PAIRS: tuple[RowFormat[Pair], ...] = tuple(one.pairs for one in COMPARISON_FORMATS)

PUBLISHED_PAIRS: tuple[RowFormat[Pair], ...] = (*COMPARISON_PAIRS, *(one.pairs for one in RATING_FORMATS))
SETS = ", ".join(dict.fromkeys(re.findall(r"\(([\w ]+)", " ".join(form.name for form in PUBLISHED_PAIRS))))
"""Published data sets of compared and of rated responses."""

PREFERENCES: tuple[RowFormat[Preference], ...] = tuple(
    labelled_format(form)
    for form in (*PAIRS, *(replace(form, listed=f"as published: {SETS}") for form in PUBLISHED_PAIRS))
)

DEMONSTRATIONS: tuple[RowFormat[Demonstration], ...] = (
    *(_chosen_side(form) for form in (*PAIRS, *COMPARISON_PAIRS)),
    *(one.demonstrations for one in RATING_FORMATS),
    replace(UNPAIRED[0], parse=_good_answer),  # type: ignore[arg-type]
    *ANSWERED,
)

# Prompts: every kind of data asks something --------------------------------------------------------------------------

SPLITS: dict[str, Split] = {
    "": "train",
    "train": "train",
    "held_out": "held_out",
    "test": "held_out",
    "validation": "held_out",
}


def _split(values: Values) -> Split:
    word = optional_text(values, "split")
    if word not in SPLITS:
        raise Unusable(f"split is {word!r}, not train or held_out")
    return SPLITS[word]


def named_prompt(values: Values) -> Prompt:
    """Row of prompts.jsonl: `prompt` (text or messages) or `messages`, with optional id and split, and its own
    columns."""
    if values.get("prompt") is not None:
        messages = prompt_column(values)
    else:
        messages = framed(values, _unanswered(turns(values, "messages")))
    has_id = values.get("id") not in (None, "")
    key = name(values, "id") if has_id else prompt_id(messages)
    return Prompt(key, messages, _split(values), own_columns(values, FIELDS))


def _unanswered(messages: Messages) -> Messages:
    """Conversation without a final assistant turn."""
    question = messages[:-1] if messages and messages[-1].role == "assistant" else messages
    if not question:
        raise Unusable("the conversation asks nothing")
    return question


def _asked_in_text(values: Values) -> Messages:
    """`text` as one user turn, or the conversation that it is."""
    return _unanswered(_conversation_text(values)) if _is_conversation(values) else user(text(values, "text"))


def _asks(
    title: str, ask: Ask, needs: tuple[str, ...], also: tuple[str, ...] = CONTEXT, **more: Any
) -> RowFormat[Prompt]:
    def parse(values: Values) -> Prompt:
        messages = ask(values)
        return Prompt(prompt_id(messages), messages, data=own_columns(values, (*needs, *also)))

    return RowFormat(title, needs, parse, also, **more)


ASKED = "preferences of every kind, of which the prompt"


def _pair_asks(form: RowFormat[Pair]) -> RowFormat[Prompt]:
    title, kind = f"{form.name}, of which the prompt", {"fits": form.fits, "exhaustive": form.exhaustive}
    return _asks(title, lambda values: form.parse(values)[0], form.needs, form.also, listed=ASKED, **kind)


PROMPTS: tuple[RowFormat[Prompt], ...] = (
    *(
        _asks(f"{one.pairs.name}, of which the prompt", one.ask, one.asks, (), fits=one.pairs.matches, listed=ASKED)
        for one in COMPARISON_FORMATS
    ),
    _asks(
        f"{HELPSTEER.name}, of which the prompt",
        HELPSTEER.ask,
        (HELPSTEER.asks,),
        (),
        fits=HELPSTEER.pairs.matches,
        listed=ASKED,
    ),
    _asks("prompt (transcripts)", prompt_transcript, ("prompt",), (), fits=lambda row: is_transcript(row["prompt"])),
    RowFormat(
        "prompt or messages",
        (),
        named_prompt,
        FIELDS,
        lambda values: values.get("prompt") is not None or values.get("messages") is not None,
    ),
    _asks("instruction, context", question_from("instruction", "context"), ("instruction", "context"), CONTEXT),
    _asks("instruction, input", question_from("instruction", "input"), ("instruction",), ("input", *CONTEXT)),
    *(
        _asks(f"{form.name}, of which the prompt", ask, form.needs, form.also, fits=form.fits)
        for form, ask in ((PRM800K, prm800k_prompt), (SHEPHERD, shepherd_prompt))
    ),
    _asks("question", question_from("question"), ("question",)),
    _asks(
        "conversations", lambda values: framed(values, _unanswered(turns(values, "conversations"))), ("conversations",)
    ),
    _asks("system, chat (Glaive)", lambda values: _unanswered(_glaive(values)), ("chat",), fits=_has_chat),
    *(_pair_asks(form) for form in (*TRAINERS, *IMPLICIT)),
    _asks("text", _asked_in_text, ("text",), ()),
)

"""The columns of a row of prompts that are no field of a prompt: `Prompt.data`, which rewards and tools read.

A column that the row's format reads becomes a field of the prompt and is not repeated in `Prompt.data`; every other
column is kept under its own name, except for those in `FIELDS`: these names mean the fields of a prompt in the files
that the package writes. Values are what JSON can hold (see `json_value`).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import date, time
from decimal import Decimal

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.asking import SYSTEM
from tutelage.data.fields import holds_half_a_character
from tutelage.data.readers import Values
from tutelage.data.records import Prompt
from tutelage.data.tables import Table

FIELDS = ("id", "prompt", "messages", "split", *SYSTEM)
"""Column names of prompts.jsonl that are fields of a prompt, whatever format a row is in."""


class NotJson(ValueError):
    """The value has no counterpart in JSON."""


def own_columns(values: Values, read: Collection[str]) -> dict[str, object]:
    """`Prompt.data` of a row whose format reads the columns `read`. A value that JSON cannot hold becomes None."""
    return {column: _or_none(values[column]) for column in values if is_own(column, read)}


def is_own(column: str, read: Collection[str]) -> bool:
    """Whether a column is kept in `Prompt.data`."""
    return column not in read and column not in FIELDS


def json_value(value: object) -> object:
    """The value as JSON holds it, with lists for sequences: equal to itself after a round trip through JSON.

    Dates, times and decimals become text; NaN, the usual mark of a missing number in a table, becomes None.
    Raises NotJson for anything else that JSON has no counterpart of: bytes, infinities, half a surrogate pair; and for
    what is nested too deeply to be written.
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


def _or_none(value: object) -> object:
    try:
        return json_value(value)
    except NotJson:
        return None


def remarks(table: Table, read: Collection[str]) -> tuple[str, ...]:
    """Remarks for the user about the own columns of a file of prompts: those kept, those whose name collides with a
    field, and those with values that JSON cannot hold."""
    own = [column for column in table.columns if is_own(column, read)]
    found = [f"own columns, for rewards: {', '.join(own)}"] if own else []
    collide = [column for column in table.columns if column in FIELDS and column not in read]
    if collide:
        found.append(
            f"not kept: {', '.join(collide)} (in this format no field of a prompt, and the name of one; rename the "
            "column to keep it)"
        )
    for column in own:
        lost = [row.where for row in table.rows if not _is_json(row.values.get(column))]
        if lost:
            found.append(
                f"null in place of {counted(len(lost), 'value')} of {column} that JSON cannot hold ({lost[0]}, …)"
            )
    return tuple(found)


def _is_json(value: object) -> bool:
    try:
        json_value(value)
    except NotJson:
        return False
    return True


def columns_of(prompt: Prompt) -> Mapping[str, object]:
    """The prompt's own columns, to be written beside its fields. Raises TutelageError where a name is a field's."""
    collide = [name for name in prompt.data if name in FIELDS]
    if collide:
        raise TutelageError(
            f"The data of prompt {prompt.id!r} has the name {collide[0]!r}, which is a field of a prompt in its file; "
            "choose another name."
        )
    return prompt.data

"""Conversion of rows submitted by programs to questions, all or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_preferences
from tutelage.data.readers import RowPlace, TableRow
from tutelage.data.record_files import from_row
from tutelage.data.records import CompletionRecord, Prompt, step_from
from tutelage.data.tables import Table
from tutelage.people.programs.api_values import Added, NewRows
from tutelage.people.store.api_tokens import Token, earlier_reply, keep_reply
from tutelage.people.store.engine import Store
from tutelage.people.store.items import Item, insert_items
from tutelage.people.vote_import import pairs_to_judge

SOURCE = "the request"
LINES = "lines of items.jsonl"
_PARTS = {"item", "prompt", "completions"}


@dataclass(frozen=True)
class NewQuestions:
    """The questions of rows, for `add_items`, and the detected format of the rows."""

    prompts: tuple[Prompt, ...]
    completions: tuple[CompletionRecord, ...]
    items: tuple[Item, ...]
    read_as: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Line:
    item: Item
    prompt: Mapping[str, Any]
    completions: tuple[Mapping[str, Any], ...]


def request_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of a request as a table."""
    return Table(SOURCE, tuple(TableRow(RowPlace("row", number), row) for number, row in enumerate(rows, 1)), ())


def questions_of(sent: NewRows) -> NewQuestions:
    """Convert rows to questions.

    Raises:
        TutelageError: the format of the rows is unknown, or a row is invalid; the message contains its number.
    """
    if any(row.keys() >= _PARTS for row in sent.rows):
        return _lines(sent.rows)
    loaded = load_preferences(request_table(sent.rows))
    if loaded.skipped:
        reasons = "; ".join(map(str, loaded.skipped))
        raise TutelageError(
            f"Nothing was added: some rows are invalid (read as {loaded.format}): {reasons}. Correct or omit them, and "
            "send all rows again."
        )
    pairs = pairs_to_judge(loaded.records, origin="added by a program")
    items = tuple(replace(item, round=sent.round) for item in pairs.items)
    return NewQuestions(pairs.prompts, pairs.completions, items, loaded.format, loaded.notes)


def add_rows(store: Store, token: Token, sent: NewRows, body: bytes, key: str = "") -> tuple[Added, bool]:
    """Add the questions of rows, atomically. Returns the result, and whether it is that of an earlier request with the
    same idempotency `key`. `body` is the raw body of the request.

    Raises:
        TutelageError: as for `questions_of` and `add_items`.
        KeyReused: the key was used with another body.
    """
    questions, now = questions_of(sent), store.now()
    with store.write() as connection:
        earlier = earlier_reply(connection, token, key, body, now) if key else None
        if earlier is not None:
            return msgspec.json.decode(earlier, type=Added), True
        new = insert_items(
            connection, token.study_id, questions.prompts, questions.completions, questions.items, now, token.actor
        )
        added = Added(new.items, new.known, new.prompts, new.responses, questions.read_as, questions.notes)
        if key:
            keep_reply(connection, token, key, body, msgspec.json.encode(added).decode(), now)
    return added, False


def _completion(row: Mapping[str, Any]) -> CompletionRecord:
    """The completion of a line. Raises TutelageError for steps that are neither texts nor lists of messages."""
    record = msgspec.convert({name: value for name, value in row.items() if name != "steps"}, CompletionRecord)
    try:
        return replace(record, steps=tuple(map(step_from, row.get("steps", ()))))
    except (KeyError, TypeError, ValueError) as error:
        raise TutelageError("steps is not a list of texts or lists of messages") from error


def _lines(rows: Sequence[Mapping[str, Any]]) -> NewQuestions:
    """The questions of lines of items.jsonl."""
    prompts: dict[str, Prompt] = {}
    completions: dict[str, CompletionRecord] = {}
    items: list[Item] = []
    for number, row in enumerate(rows, 1):
        try:
            line = msgspec.convert(row, _Line)
            prompt, stated = from_row(Prompt, line.prompt), tuple(map(_completion, line.completions))
        except (msgspec.ValidationError, TutelageError) as error:
            raise TutelageError(
                f"Nothing was added: row {number} is not a valid line of items.jsonl: {error}"
            ) from error
        prompts[prompt.id] = prompt
        completions |= {each.id: each for each in stated}
        items.append(line.item)
    return NewQuestions(tuple(prompts.values()), tuple(completions.values()), tuple(items), LINES)

"""Tutelage's own files: one record per line, in TRL's format if it has one.

    prompts.jsonl         id, prompt (text of the one user turn) or messages, split, and the row's own columns
    completions.jsonl     id, prompt_id, text, sampler, sampling, finished, and steps if they are known
    demonstrations.jsonl  prompt, completion, and weight if it is not 1   (TRL prompt-completion)
    preferences.jsonl     prompt, chosen, rejected, p_chosen, weight, margin   (TRL preference, explicit prompt)
    unpaired.jsonl        prompt, completion, label             (TRL unpaired preference)
    steps.jsonl           prompt, completions, labels           (TRL stepwise supervision, labels also as probabilities)
    comparisons.jsonl     id, prompt_id, a_id, b_id, origin
    judgements.jsonl      id, comparison_id, rater, verdict, strength, left, seconds, created

A prompt of one user turn is written as text; otherwise prompt and completions are lists of messages, with a column
`tools` if the conversation offers any.
"""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.garbage import without_collection
from tutelage.base.nouns import counted
from tutelage.data.message_values import answer, holds_messages, prompt_column
from tutelage.data.preference_formats import explicit, labelled
from tutelage.data.readers import Values
from tutelage.data.record_formats import columns_of, named_prompt
from tutelage.data.records import (
    AssistantTurn,
    Comparison,
    CompletionRecord,
    Demonstration,
    Message,
    Messages,
    Preference,
    Prompt,
    RatedSteps,
    Step,
    UnpairedAnswer,
    message_row,
    step_from,
    step_value,
    tools_of,
)
from tutelage.data.row_values import Unusable, name, number, optional_text, text, truth
from tutelage.data.step_formats import STEPWISE
from tutelage.data.transcripts import has_marks, without_end

Record: TypeAlias = Prompt | CompletionRecord | Demonstration | Comparison | Preference | UnpairedAnswer | RatedSteps
R = TypeVar("R", bound=Record)

OWN_PAIR = explicit(prompt_column)


def to_row(record: Record) -> dict[str, object]:
    """The record as a row of its file, ready for JSON."""
    match record:
        case Prompt(id, messages, split):
            row = dict(columns_of(record)) | {"id": id}
            return row | _prompt_columns(messages, "messages") | {"split": split}
        case Demonstration(messages, response, weight):
            row = _prompt_columns(messages) | {"completion": _answer_value(messages, response)}
            return row if weight == 1.0 else row | {"weight": weight}
        case UnpairedAnswer(messages, completion, label):
            return _prompt_columns(messages) | {"completion": _answer_value(messages, completion), "label": label}
        case Preference(messages, chosen, rejected, p_chosen, weight, margin):
            return _prompt_columns(messages) | {
                "chosen": _answer_value(messages, chosen),
                "rejected": _answer_value(messages, rejected),
                "p_chosen": p_chosen,
                "weight": weight,
                "margin": margin,
            }
        case RatedSteps(messages, steps, labels):
            return _prompt_columns(messages) | {
                "completions": list(map(step_value, steps)),
                "labels": [bool(label) if label in (0.0, 1.0) else label for label in labels],
            }
        case CompletionRecord(steps=steps):
            row = {name: value for name, value in vars(record).items() if name != "steps"}
            return row | ({"steps": list(map(step_value, steps))} if steps else {})
    return asdict(record)


def _is_text(messages: Messages) -> bool:
    first = messages[0] if len(messages) == 1 else None
    return first is not None and first.role == "user" and first.is_text and _is_read_as_text(first.content)


def _is_read_as_text(content: str) -> bool:
    """Whether a reader takes the text as it is: no list of messages, and no marks of a chat template."""
    return not holds_messages(content) and not has_marks(content) and without_end(content) == content


def _prompt_columns(messages: Messages, several: str = "prompt") -> dict[str, object]:
    """`prompt` as text, or the messages in the column `several`, with the tools that they offer."""
    if _is_text(messages):
        return {"prompt": messages[0].content}
    tools = [json.loads(schema) for schema in tools_of(messages)]
    return {several: [message_row(message) for message in messages]} | ({"tools": tools} if tools else {})


def _answer_value(messages: Messages, response: AssistantTurn) -> object:
    if isinstance(response, Message):
        return [message_row(response)]
    plain = _is_text(messages) and _is_read_as_text(response)
    return response if plain else [{"role": "assistant", "content": response}]


def from_row(kind: type[R], row: Values) -> R:
    """Record of a row of its file; `from_row(type(record), to_row(record)) == record`.

    Raises TutelageError with the invalid column.
    """
    try:
        return parser(kind)(row)
    except Unusable as reason:
        raise TutelageError(f"This row is no {kind.__name__.removesuffix('Record').lower()}: {reason}.") from reason


def parser(kind: type[R]) -> Callable[[Values], R]:
    """Parser of rows into records of this kind; it raises `Unusable`."""
    return cast(Callable[[Values], R], PARSERS[kind])


def _completion(row: Values) -> CompletionRecord:
    return CompletionRecord(
        name(row, "id"),
        name(row, "prompt_id"),
        optional_text(row, "text"),
        text(row, "sampler"),
        optional_text(row, "sampling"),
        truth(row, "finished") if row.get("finished") is not None else True,
        _steps(row.get("steps")),
    )


def _steps(value: object) -> tuple[Step, ...]:
    try:
        return tuple(map(step_from, value)) if isinstance(value, list | tuple) else ()
    except (KeyError, TypeError) as error:
        raise Unusable("steps is not a list of texts or lists of messages") from error


def _comparison(row: Values) -> Comparison:
    a, b = name(row, "a_id"), name(row, "b_id")
    if a == b:
        raise Unusable("a_id and b_id are the same completion")
    return Comparison(name(row, "id"), name(row, "prompt_id"), a, b, optional_text(row, "origin") or "random")


PARSERS: Mapping[type[object], Callable[[Values], Record]] = {
    Prompt: named_prompt,
    CompletionRecord: _completion,
    Demonstration: lambda row: Demonstration(
        prompt_column(row), answer(row, "completion"), number(row, "weight", 1.0, 0.0)
    ),
    Comparison: _comparison,
    Preference: lambda row: labelled(row, OWN_PAIR(row)),
    UnpairedAnswer: lambda row: UnpairedAnswer(prompt_column(row), answer(row, "completion"), truth(row, "label")),
    RatedSteps: lambda row: STEPWISE.parse(row)[0],
}


@without_collection()
def fingerprint(*sources: Iterable[Record | str]) -> str:
    """Number of rows and a hash of their contents, such as "24 rows, 5f0c…": equal for equal records in the same
    order, on every machine."""
    digest, count, encode = hashlib.sha256(), 0, json.JSONEncoder(default=str).encode
    for source in sources:
        digest.update(b"[")  # moving a row between sources changes the hash
        for record in source:
            count += 1
            row = record if isinstance(record, str) else to_row(record)
            digest.update(encode(row).encode() + b"\n")
    return f"{counted(count, 'row')}, {digest.hexdigest()[:16]}"


def write_jsonl(path: str | Path, rows: Iterable[Mapping[str, object]]) -> int:
    """Write one JSON object per line (compressed if the name ends in .gz). Returns the number of lines.

    The write is atomic: a temporary file is synced and renamed. Folders are created as needed. Raises TutelageError
    for values that JSON or UTF-8 cannot represent (NaN, half a surrogate pair) and if writing fails.
    """
    path = Path(path)
    lines: list[bytes] = []
    for line, row in enumerate(rows, 1):
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        except ValueError as error:  # includes UnicodeEncodeError
            raise TutelageError(f"Row {line} cannot be written to {path}: {error}.") from error
    content = b"".join(lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TutelageError(f"Cannot write {path}: {error.strerror}.") from error
    write_atomically(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return len(lines)

"""Rows of exports of evaluation tools: what was said, and how scorers and people rated it.

    Opik        traces: id, input, output, feedback_scores (value_by_author)
    Braintrust  logs and experiments: id, input, output, expected, scores
    Inspect     samples of a log: id, epoch, input, output, messages, scores

Only Opik's scores of its pages (`ui`) are surely people's, as are Inspect's edits with an author, and reviews that
Braintrust writes into `expected`. Other scores of Opik and Braintrust are of an unknown kind.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.data.annotations import Exported, Parts, RaterKind, Statement
from tutelage.data.export_values import as_number, key_of, moment, words
from tutelage.data.json_values import parse_json, unfold_json
from tutelage.data.readers import RowPlace, TableRow, Values, a_type
from tutelage.data.tables import Table, read_table
from tutelage.data.tracker_exports import subject_of


def _object(value: object) -> Mapping[str, Any]:
    """An object, or the JSON text of one, as tables have it; empty for anything else."""
    value = unfold_json(value)
    return value if isinstance(value, Mapping) else {}


def _value(value: object) -> float | str | None:
    """A number, or a word; None for nothing and for lists and objects."""
    number = as_number(value)
    return number if number is not None else value.strip() or None if isinstance(value, str) else None


# Opik ----------------------------------------------------------------------------------------------------------------


def is_opik_trace(values: Values) -> bool:
    marks = {"feedback_scores", "last_updated_at"}
    return {"id", "input", "output"} <= values.keys() and not marks.isdisjoint(values)


def opik_trace(values: Values, parts: Parts) -> Exported:
    """A trace or a span with its scores, each by every author that it names."""
    key, model = key_of(values, "id"), words(values, "model")
    subjects, problem = subject_of("opik", (key, ""), values.get("input"), values.get("output"), parts, model)
    scores = values.get("feedback_scores")
    listed = [score for score in scores if isinstance(score, Mapping)] if isinstance(scores, list) else []
    return Exported(subjects, tuple(s for score in listed for s in _opik_statements(key, score)), (), problem)


def _opik_statements(key: str, score: Mapping[str, Any]) -> Iterator[Statement]:
    name, authors = words(score, "name"), _object(score.get("value_by_author"))
    for author, entry in authors.items() or [(words(score, "last_updated_by", "created_by"), score)]:
        each = _object(entry)
        value = _value(each.get("value"))
        kind: RaterKind = {"ui": "human", "online_scoring": "model"}.get(words(each, "source"), "unknown")  # type: ignore[assignment]
        yield Statement(
            f"opik:{key}/{name}/{author}", (f"opik:{key}",), name,
            words(each, "category_name") if value is None else value, str(author), kind, words(each, "reason"),
            moment(each, "last_updated_at", "created_at"),
        )  # fmt: skip


# Braintrust ----------------------------------------------------------------------------------------------------------


def is_braintrust_row(values: Values) -> bool:
    return {"input", "output", "expected", "scores"} <= values.keys() and not isinstance(values["scores"], list)


def braintrust_row(values: Values, parts: Parts) -> Exported:
    """A row with its scores. `expected` is an object of the reviews by their names, if several reviews write into it;
    otherwise it is a better response, if `corrections` names it."""
    key, model = key_of(values, "id", "span_id"), words(_object(values.get("metadata")), "model")
    subjects, problem = subject_of("braintrust", (key, ""), values.get("input"), values.get("output"), parts, model)
    about, expected = (f"braintrust:{key}",), values.get("expected")
    statements, left_out = list[Statement](), list[str]()
    for kind, answers in (("unknown", _object(values.get("scores"))), ("human", _object(expected))):
        for name, answer in answers.items():
            value = _value(answer)
            if value is not None:
                id_ = f"braintrust:{key}/{'expected/' if kind == 'human' else ''}{name}"
                statements.append(Statement(id_, about, name, value, kind=kind))  # type: ignore[arg-type]
            elif answer is not None:
                left_out.append(f"{name}: neither a number nor a word")
    if isinstance(expected, str) and expected.strip() and "expected" in parts.corrections:
        id_ = f"braintrust:{key}/expected"
        statements.append(Statement(id_, about, "expected", expected, corrects=True))
    return Exported(subjects, tuple(statements), tuple(left_out), problem)


# Inspect -------------------------------------------------------------------------------------------------------------

_INSPECT = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Correct, incorrect, partial and no answer, as Inspect's `value_to_float` counts them."""
_MEMBERS = 512 << 20
"""Maximum number of bytes that a log unfolds to."""


def is_inspect_sample(values: Values) -> bool:
    return {"id", "epoch", "input", "output", "messages", "scores"} <= values.keys()


def inspect_sample(values: Values, parts: Parts) -> Exported:
    """A sample with the scores of scorers; a score that was edited is its last author's. A score of several values is
    several questions."""
    attachments = _object(values.get("attachments"))
    if attachments:
        values = {
            **values,
            **{name: _resolved(values.get(name), attachments) for name in ("input", "messages", "output")},
        }
    key = words(values, "uuid") or "/".join((words(values, "eval_id"), key_of(values, "id"), words(values, "epoch")))
    output, messages = _object(values.get("output")), values.get("messages")
    choices = output.get("choices")
    choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
    response = output.get("completion") or _object(choice.get("message")).get("content")
    conversation = values.get("input")
    if isinstance(messages, list) and messages and _object(messages[-1]).get("role") == "assistant":
        conversation, response = messages[:-1], messages[-1:]
    subjects, problem = subject_of("inspect", (key, ""), conversation, response, parts, words(output, "model"))
    statements, left_out = list[Statement](), list[str]()
    for scorer, score in _object(values.get("scores")).items():
        if not isinstance(score, Mapping):
            left_out.append(f"{scorer}: its score is {a_type(score)}, not an object with a value")
            continue
        history = score.get("history")
        edits = [each for each in history if isinstance(each, Mapping)] if isinstance(history, list) else []
        by = _object(edits[-1].get("provenance")) if edits else {}
        author, reason = words(by, "author"), words(score, "explanation") or words(by, "reason")
        whole = score.get("value")
        for part, answer in whole.items() if isinstance(whole, Mapping) else [("", whole)]:
            name = f"{scorer}/{part}" if part else scorer
            value = _INSPECT.get(answer, _value(answer)) if isinstance(answer, str) else _value(answer)
            if value is None:
                left_out.append(f"{name}: neither a number nor a word")
                continue
            kind: RaterKind = "human" if author else "model"
            id_, time = f"inspect:{key}/{name}", moment(by, "timestamp")
            statements.append(Statement(id_, (f"inspect:{key}",), name, value, author, kind, reason, time))
    return Exported(subjects, tuple(statements), tuple(left_out), problem)


_ATTACHMENT = "attachment://"


def _resolved(value: Any, attachments: Mapping[str, object]) -> Any:
    """The value with the texts in place of their references, which logs have for long texts."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, Mapping):
        return {name: _resolved(each, attachments) for name, each in value.items()}
    return [_resolved(each, attachments) for each in value] if isinstance(value, list) else value


def export_table(source: str) -> Table:
    """The rows of a file of an export: the samples of a log of Inspect (.eval or .json), else those of a table.

    Raises:
        TutelageError: the file cannot be read.
    """
    path = Path(source).expanduser()
    if path.suffix == ".eval" and path.is_file():
        return _log_table(source, _eval_samples(path))
    if path.suffix == ".json" and path.is_file():
        with suppress(ValueError, OSError):
            log = parse_json(path.read_bytes())
            if isinstance(log, dict) and isinstance(log.get("samples"), list) and isinstance(log.get("eval"), dict):
                return _log_table(source, [_with_eval(sample, log["eval"]) for sample in log["samples"]])
    return read_table(source)


def _log_table(source: str, samples: list[Mapping[str, object]]) -> Table:
    if not samples:
        raise TutelageError(f"{source} is a log of Inspect without samples.")
    return Table(source, tuple(TableRow(RowPlace("row", n), sample) for n, sample in enumerate(samples, 1)), ())


def _with_eval(sample: object, run: Mapping[str, object]) -> Mapping[str, object]:
    return {"eval_id": words(run, "eval_id", "run_id"), **_object(sample)}


def _eval_samples(path: Path) -> list[Mapping[str, object]]:
    """The samples of a log in Inspect's archive, in the order of their names."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
            if sum(archive.getinfo(name).file_size for name in names) > _MEMBERS:
                raise TutelageError(f"{path} unfolds to more than {_MEMBERS >> 20} MiB of samples; import it in parts.")
            header = parse_json(_member(path, archive, "header.json")) if "header.json" in archive.namelist() else {}
            run = _object(_object(header).get("eval"))
            return [_with_eval(parse_json(_member(path, archive, name)), run) for name in sorted(names)]
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, OSError, struct.error) as error:
        raise TutelageError(f"{path} is no complete log of Inspect: {error}.") from error


_ZSTANDARD = 93
"""Method of compression (APPNOTE.TXT 4.4.5) that Inspect uses, and zipfile reads from Python 3.14."""


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a file in an archive."""
    info = archive.getinfo(name)
    if info.compress_type != _ZSTANDARD:
        return archive.read(name)
    import pyarrow

    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = struct.unpack("<2H", file.read(4))
        file.seek(sum(lengths), 1)
        packed = pyarrow.BufferReader(file.read(info.compress_size))
    with pyarrow.CompressedInputStream(packed, "zstd") as stream:
        content: bytes = stream.read(info.file_size)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"{name} is damaged")
    return content

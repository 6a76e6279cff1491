"""Files and hub data sets as rows: column -> value, each with the place where it stood, for messages to the reader.

Read here: .json (an array, or an object with one list), .jsonl/.ndjson, .csv, .parquet and .txt (documents separated
by blank lines, as the column `text`), each also as .gz. What the file is decides its name's ending; what is in it is
checked against that, and a mismatch is told instead of guessed around, with one exception: .json and .jsonl stand for
each other, because hubs are full of both mistakes.
"""

import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tutelage.errors import TutelageError

Values: TypeAlias = Mapping[str, object]

READS = ".json, .jsonl, .ndjson, .csv, .parquet and .txt, each also with .gz"


@dataclass(frozen=True)
class Row:
    """One row. `where` is "line 12" for text files and "row 12" for tables and arrays, counted from 1."""

    where: str
    values: Values


@dataclass(frozen=True)
class Broken:
    """A row that could not be read at all, and why."""

    where: str
    reason: str


@dataclass(frozen=True)
class Table:
    """All rows of one source, in order. `columns` are all that occur, in the order of their first appearance."""

    source: str
    rows: tuple[Row, ...]
    broken: tuple[Broken, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for row in self.rows for column in row.values))


def read_table(source: str | Path) -> Table:
    """The rows of a file, or of a hub data set when `source` is no path here and looks like
    `owner/name[/config][:split]`.

    Raises TutelageError when there is nothing of that name, when it is a folder, empty, of another kind than its name
    says, not UTF-8, or damaged. Single unreadable lines are returned in `broken`: how many are too many is the
    caller's decision.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        raise TutelageError(_about_folder(path))
    if not path.exists():
        if isinstance(source, str) and not _named_like_a_file(source):
            from tutelage.data.hub import read_hub

            return _table(source, read_hub(source))
        raise TutelageError(f"There is no file {source}.")
    return _table(str(source), _read_file(path))


def _table(source: str, items: Iterable[Row | Broken]) -> Table:
    rows: list[Row] = []
    broken: list[Broken] = []
    for item in items:
        if isinstance(item, Row):
            rows.append(item)
        else:
            broken.append(item)
    if not rows and broken:
        first = broken[0]
        raise TutelageError(f"No row of {source} can be read; the first, {first.where}: {first.reason}.")
    if not rows:
        raise TutelageError(f"{source} holds no rows.")
    return Table(source, tuple(rows), tuple(broken))


def _named_like_a_file(source: str) -> bool:
    name = source.removesuffix(".gz")
    return source != name or Path(name).suffix in _READERS or source.startswith((".", "/", "~"))


def _about_folder(path: Path) -> str:
    inside = sorted(str(file.relative_to(path)) for file in path.rglob("*") if _kind(file) in _READERS)
    if not inside:
        return f"{path} is a folder; name a file ({READS})."
    named = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
    return f"{path} is a folder; name one of the files in it: {named}."


def _kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _read_file(path: Path) -> Iterable[Row | Broken]:
    kind = _kind(path)
    if kind not in _READERS:
        raise TutelageError(f"{path} is of no kind that can be read here: use {READS}.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TutelageError(f"{path} cannot be read: {error.strerror}.") from error
    if path.name.endswith(".gz"):
        content = _unpack(path, content)
    if not content.strip():
        raise TutelageError(f"{path} is empty.")
    _refuse_other_kinds(path, content, kind)
    return _READERS[kind](path, content)


def _unpack(path: Path, content: bytes) -> bytes:
    if not content:
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise TutelageError(f"{path} is no complete gzip file: {error}.") from error


_SIGNATURES = {
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "gzip-compressed, and its name should end in .gz",
    b"PK\x03\x04": "a zip archive or an office document; export the table as .csv",
    b"%PDF": "a PDF document",
    b"ARROW1": "an Arrow file; save it as .parquet",
    b"SQLite format 3": "an SQLite database",
    b"version https://git-lfs": "only a Git LFS pointer; fetch the file itself with `git lfs pull`",
    b"\xff\xfe": "text in UTF-16; save it as UTF-8",
    b"\xfe\xff": "text in UTF-16; save it as UTF-8",
}


def _refuse_other_kinds(path: Path, content: bytes, kind: str) -> None:
    for signature, meaning in _SIGNATURES.items():
        if content.startswith(signature) and not (kind == ".parquet" and signature == b"PAR1"):
            raise TutelageError(f"{path} is {meaning}.")
    if kind == ".parquet":
        raise_unless = content.startswith(b"PAR1")
        if not raise_unless:
            raise TutelageError(f"{path} is not a Parquet file: it does not begin as one.")
        return
    head = content[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        raise TutelageError(
            f"{path} is an HTML page (perhaps an error page saved by a download), not {kind}."
        )
    if b"\x00" in content:
        raise TutelageError(f"{path} is a binary file, not {kind}.")


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TutelageError(
            f"{path} is not UTF-8 (line {line}, byte {error.start}); save it as UTF-8."
        ) from error


def _read_json(path: Path, content: bytes) -> Iterable[Row | Broken]:
    """An array of objects, an object with one list of objects, or, whatever the name says, one object per line."""
    text = _decode(path, content)
    try:
        whole = json.loads(text)
    except RecursionError as error:
        raise TutelageError(f"{path} is nested too deeply to be a table.") from error
    except json.JSONDecodeError as error:
        if _kind(path) != ".json" or (text.lstrip().startswith("{") and error.msg == "Extra data"):
            return _json_lines(text)
        raise TutelageError(
            f"{path} is no valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    if isinstance(whole, dict) and _kind(path) != ".json":
        return _json_lines(text)
    return _json_rows(_the_list(path, whole))


def _the_list(path: Path, whole: object) -> list[object]:
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, dict):
        raise TutelageError(f"{path} holds {a_type(whole)}, not a list of rows.")
    lists = {key: value for key, value in whole.items() if isinstance(value, list) and _all_objects(value)}
    if len(lists) == 1:
        return next(iter(lists.values()))
    found = ", ".join(map(str, whole)) or "nothing"
    raise TutelageError(
        f"{path} is an object in which {len(lists)} lists of rows were found where there must be exactly one "
        f"(its keys: {found})."
    )


def _all_objects(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, dict) for item in items)


def _json_rows(items: list[object]) -> Iterator[Row | Broken]:
    for number, item in enumerate(items, 1):
        yield _json_row(f"row {number}", item)


def _json_lines(text: str) -> Iterator[Row | Broken]:
    for number, line in enumerate(
        text.split("\n"), 1
    ):  # splitlines() would also split inside JSON strings (U+2028)
        if not line.strip():
            continue
        try:
            yield _json_row(f"line {number}", json.loads(line))
        except RecursionError:
            yield Broken(f"line {number}", "nested too deeply")
        except json.JSONDecodeError:
            yield Broken(f"line {number}", "not valid JSON")


def _json_row(where: str, item: object) -> Row | Broken:
    if isinstance(item, dict):
        return Row(where, item)
    return Broken(where, f"{a_type(item)} instead of an object")


def _read_csv(path: Path, content: bytes) -> Iterator[Row | Broken]:
    csv.field_size_limit(
        min(sys.maxsize, 2**31 - 1)
    )  # the default refuses cells of more than 131,072 characters
    reader = csv.reader(io.StringIO(_decode(path, content), newline=""), strict=True)
    header: list[str] = []
    start = 1
    try:
        for cells in reader:
            if cells and not header:
                header = _header(path, cells)
            elif cells:
                yield _csv_row(f"line {start}", header, cells)
            start = reader.line_num + 1
    except csv.Error as error:
        raise TutelageError(f"{path} is no valid CSV from line {start} on: {error}.") from error


def _header(path: Path, cells: list[str]) -> list[str]:
    if len(cells) == 1 and any(separator in cells[0] for separator in ";\t"):
        raise TutelageError(
            f"{path} has a single column called {cells[0]!r}: separate the columns with commas."
        )
    names = [cell.strip() for cell in cells]
    if len(set(names)) < len(names):
        raise TutelageError(f"{path} names a column twice in its header: {', '.join(names)}.")
    return names


def _csv_row(where: str, header: list[str], cells: list[str]) -> Row | Broken:
    if len(cells) != len(header):
        return Broken(where, f"{len(cells)} cells instead of {len(header)}")
    return Row(where, dict(zip(header, cells, strict=True)))


def _read_parquet(path: Path, content: bytes) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise TutelageError(f"{path} is a damaged Parquet file: {error}.") from error
    for number, values in enumerate(table.to_pylist(), 1):
        yield Row(f"row {number}", values)


def _read_text(path: Path, content: bytes) -> Iterator[Row]:
    text = _decode(path, content).replace("\r\n", "\n")
    start = 0
    for gap in [*re.finditer(r"\n(?:[^\S\n]*\n)+", text), None]:
        document = text[start : gap.start() if gap else len(text)]
        if document.strip():
            leading = len(document) - len(document.lstrip())
            line = text.count("\n", 0, start + leading) + 1
            yield Row(f"line {line}", {"text": document.strip()})
        start = gap.end() if gap else len(text)


_READERS: dict[str, Callable[[Path, bytes], Iterable[Row | Broken]]] = {
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}


def a_type(value: object) -> str:
    """What a reader of the message calls a value of this type, with its article."""
    if value is None:
        return "null"
    names: dict[type, str] = {
        bool: "a true/false value",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), f"a {type(value).__name__}")

"""The content of one file as rows, by kind."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tutelage import extras
from tutelage.errors import TutelageError
from tutelage.nouns import counted

Values: TypeAlias = Mapping[str, object]


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


def a_type(value: object) -> str:
    """The name of a JSON type in messages, with its article."""
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
    except ValueError as error:  # JSONDecodeError is one; a number of more than 4,300 digits is another
        by_lines = text.lstrip().startswith("{") and "Extra data" in str(error)
        if by_lines or not _is_array(path):
            return _json_lines(text)
        raise TutelageError(f"{path} is no valid JSON: {error}.") from error
    if isinstance(whole, dict) and not _is_array(path):
        return _json_lines(text)
    return _json_rows(_the_list(path, whole))


def _is_array(path: Path) -> bool:
    """Whether the name promises one value rather than one per line."""
    return path.name.removesuffix(".gz").endswith(".json")


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
        f"{path} is an object in which {counted(len(lists), 'list')} of rows were found where there must be exactly "
        f"one (its keys: {found})."
    )


def _all_objects(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, dict) for item in items)


def _json_rows(items: list[object]) -> Iterator[Row | Broken]:
    for number, item in enumerate(items, 1):
        yield _json_row(f"row {number}", item)


def _json_lines(text: str) -> Iterator[Row | Broken]:
    # Not splitlines(), which would also split at U+2028 inside JSON strings.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield _json_row(f"line {number}", json.loads(line))
        except RecursionError:
            yield Broken(f"line {number}", "nested too deeply")
        except ValueError:
            yield Broken(f"line {number}", "not valid JSON")


def _json_row(where: str, item: object) -> Row | Broken:
    if isinstance(item, dict):
        return Row(where, item)
    return Broken(where, f"{a_type(item)} instead of an object")


def _read_csv(path: Path, content: bytes) -> Iterator[Row | Broken]:
    # The default refuses cells of more than 131,072 characters.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    text = _decode(path, content)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(path, text), strict=True)
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


def _separator(path: Path, text: str) -> str:
    """What separates the columns: the first of comma, semicolon and tab that the header has outside of quotation marks;
    in a .tsv file the tab."""
    if path.name.removesuffix(".gz").endswith(".tsv"):
        return "\t"
    header = re.sub(r'"[^"]*"', "", text.lstrip("\r\n")).partition("\n")[0]
    return next((mark for mark in ",;\t" if mark in header), ",")


def _header(path: Path, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if len(set(names)) < len(names):
        raise TutelageError(f"{path} names a column twice in its header: {', '.join(names)}.")
    return names


def _csv_row(where: str, header: list[str], cells: list[str]) -> Row | Broken:
    """An empty cell is no value: csv cannot tell the two apart."""
    if len(cells) != len(header):
        return Broken(where, f"{counted(len(cells), 'cell')} instead of {len(header)}")
    return Row(where, {name: cell or None for name, cell in zip(header, cells, strict=True)})


def _read_parquet(path: Path, content: bytes) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise (extras.missing(error, f"Reading {path.name}") or error) from error
    try:
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise TutelageError(f"{path} is a damaged Parquet file: {error}.") from error
    for number, values in enumerate(table.to_pylist(), 1):
        yield Row(f"row {number}", values)


def _read_text(path: Path, content: bytes) -> Iterator[Row]:
    text = _decode(path, content).replace("\r\n", "\n")
    start, line = 0, 1
    for gap in [*re.finditer(r"\n(?:[^\S\n]*\n)+", text), None]:
        document = text[start : gap.start() if gap else len(text)]
        if document.strip():
            blank = len(document) - len(document.lstrip())
            yield Row(f"line {line + document.count(chr(10), 0, blank)}", {"text": document.strip()})
        following = gap.end() if gap else len(text)
        line += text.count("\n", start, following)
        start = following


READERS: dict[str, Callable[[Path, bytes], Iterable[Row | Broken]]] = {
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}

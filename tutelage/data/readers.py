"""Parsers of text files into rows, by kind."""

import codecs
import csv
import io
import json
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, overload

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence, counted, refusal
from tutelage.data.json_values import DeepJson, parse_json, repeated_key

Values: TypeAlias = Mapping[str, object]
KEYS_NAMED = 20
"""Maximum number of keys of an object in an error message."""


class RowPlace(str):
    """Place of a row in its source, counted from 1: "line 12" of a text, "row 12" of a table or an array."""

    __slots__ = ("number", "unit")
    unit: Literal["line", "row"]
    number: int

    def __new__(cls, unit: Literal["line", "row"], number: int) -> "RowPlace":
        place = super().__new__(cls, f"{unit} {number}")
        place.unit, place.number = unit, number
        return place

    def sentence(self) -> Sentence:
        """Place as a translatable sentence, created on demand."""
        number = str(self.number)
        return (
            Sentence("line %(number)s", number=number)
            if self.unit == "line"
            else Sentence("row %(number)s", number=number)
        )


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row. `where` is a `RowPlace`, or a text for several places."""

    where: str
    values: Values


@dataclass(frozen=True)
class BrokenRow:
    """Unreadable row and the reason; both are sentences for files parsed here."""

    where: str
    reason: str


_TYPES: Mapping[type, str] = {
    type(None): "null",
    bool: Sentence("a true/false value"),
    int: Sentence("a number"),
    float: Sentence("a number"),
    str: Sentence("a text"),
    list: Sentence("a list"),
    dict: Sentence("an object"),
}


def a_type(value: object) -> str:
    """Name of a type in messages, with its article; a sentence for JSON values."""
    return _TYPES.get(type(value), f"a {type(value).__name__}")


def _decode(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(name, content.count(b"\n", 0, error.start) + 1, error.start) from error


def _not_utf8(name: str, line: int, byte: int) -> TutelageError:
    return refusal(
        "%(name)s is not UTF-8 (line %(line)s, byte %(byte)s); save it as UTF-8.",
        name=name,
        line=str(line),
        byte=str(byte),
    )


def _read_json(name: str, content: bytes) -> Iterable[TableRow | BrokenRow]:
    """Parse an array of objects, an object with one list of objects, or, regardless of the name, one object per
    line."""
    lines = (row for _, _, row in _json_lines(name, content))
    if has_lines_of_json(name, content):
        return lines
    text = _decode(name, content)
    try:
        whole = parse_json(text)
    except DeepJson as error:
        raise refusal("%(name)s is nested too deeply to be a table.", name=name) from error
    except ValueError as error:  # includes JSONDecodeError, and numbers of more than 4,300 digits
        by_lines = text.lstrip().startswith("{") and "Extra data" in str(error)
        if by_lines or kind_of(name) != ".json":
            return lines
        raise TutelageError(_no_json(name, error)) from error
    if isinstance(whole, dict) and kind_of(name) != ".json":
        return lines
    if (key := repeated_key(text.encode(), whole)) is not None:
        raise refusal("%(name)s gives the key %(key)s of an object twice.", name=name, key=key)
    return (_json_row(RowPlace("row", number), item) for number, item in enumerate(_the_list(name, whole), 1))


def kind_of(name: str) -> str:
    """File extension of the format in lower case: .csv for data.csv and DATA.CSV.gz. A .json file holds one value
    rather than one per line."""
    return Path(name.removesuffix(".gz")).suffix.lower()


def _no_json(name: str, error: ValueError) -> Sentence:
    if not isinstance(error, json.JSONDecodeError):
        return Sentence("%(name)s is no valid JSON: a number in it has too many digits.", name=name)
    return Sentence(
        "%(name)s is no valid JSON from line %(line)s, character %(column)s on.",
        name=name,
        line=str(error.lineno),
        column=str(error.colno),
    )


def _the_list(name: str, whole: object) -> list[object]:
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, dict):
        raise refusal("%(name)s holds %(type)s, not a list of rows.", name=name, type=a_type(whole))
    lists: list[list[object]] = [
        value
        for value in whole.values()
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    ]
    if len(lists) == 1:
        return lists[0]
    if not whole:
        raise refusal("%(name)s holds an empty object, not a list of rows.", name=name)
    raise refusal(
        "%(name)s holds an object with %(count)s lists of rows where exactly one is needed (its keys: %(keys)s).",
        name=name,
        count=len(lists),
        keys=", ".join([*list(whole)[:KEYS_NAMED], *(["…"] if len(whole) > KEYS_NAMED else [])]),
    )


class LinesOfJson(Sequence[TableRow]):
    """Rows of a file with one object per line, parsed at every access, so that only the bytes of the file are kept."""

    def __init__(self, content: bytes, starts: "array[int]", numbers: "array[int]") -> None:
        self._content, self._starts, self._numbers = content, starts, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> TableRow: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[TableRow, ...]: ...
    def __getitem__(self, place: int | slice) -> TableRow | tuple[TableRow, ...]:
        if isinstance(place, slice):
            return tuple(self[number] for number in range(*place.indices(len(self))))
        start = self._starts[place]
        line = self._content[start : self._content.find(b"\n", start) + 1 or None]
        return TableRow(RowPlace("line", self._numbers[place]), cast(Values, parse_json(line)))


def lines_of_json(name: str, content: bytes) -> tuple[LinesOfJson, tuple[BrokenRow, ...], tuple[str, ...]]:
    """(rows, broken rows, columns) of a file with one object per line."""
    starts, numbers = array("q"), array("q")
    broken: list[BrokenRow] = []
    columns: dict[str, None] = {}
    for start, number, row in _json_lines(name, content):
        if isinstance(row, BrokenRow):
            broken.append(row)
        else:
            starts.append(start)
            numbers.append(number)
            if not row.values.keys() <= columns.keys():
                columns.update(dict.fromkeys(row.values))
    return LinesOfJson(content, starts, numbers), tuple(broken), tuple(columns)


def has_lines_of_json(name: str, content: bytes) -> bool:
    """Whether the file has one object per line, by its name and its first line."""
    return kind_of(name) in (".jsonl", ".ndjson") and _is_object(content[: content.find(b"\n") + 1 or None])


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line.removeprefix(codecs.BOM_UTF8)), dict)
    except ValueError:
        return False


def _json_lines(name: str, content: bytes) -> Iterator[tuple[int, int, TableRow | BrokenRow]]:
    """(first byte, number, row) of each line that is not blank, without the mark of UTF-8. Only a line feed ends a
    line: JSON strings may contain U+2028."""
    start = 3 if content.startswith(codecs.BOM_UTF8) else 0
    for number, line in enumerate(io.BytesIO(content[start:]), 1):
        row = _json_line(name, number, line, start)
        if row is not None:
            yield start, number, row
        start += len(line)


def _json_line(name: str, number: int, line: bytes, start: int) -> TableRow | BrokenRow | None:
    """Row of a line that begins at the byte `start` of a file; None for a blank line. Raises TutelageError if it is not
    UTF-8."""
    try:
        value = parse_json(line)
        if (key := repeated_key(line, value)) is not None:
            return BrokenRow(RowPlace("line", number), Sentence("the key %(key)s is given twice", key=key))
        return _json_row(RowPlace("line", number), value)
    except UnicodeDecodeError as error:
        raise _not_utf8(name, number, start + error.start) from error
    except DeepJson:
        return BrokenRow(RowPlace("line", number), Sentence("nested too deeply"))
    except ValueError:
        blank = not line.decode().strip()
        return None if blank else BrokenRow(RowPlace("line", number), Sentence("not valid JSON"))


def _json_row(where: RowPlace, item: object) -> TableRow | BrokenRow:
    if isinstance(item, dict):
        return TableRow(where, item)
    return BrokenRow(where, Sentence("%(type)s instead of an object", type=a_type(item)))


def _read_csv(name: str, content: bytes) -> Iterator[TableRow | BrokenRow]:
    # The default refuses cells of more than 131,072 characters.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    text = _decode(name, content)
    declared = _SEPARATOR.match(text)
    separator = declared[1] if declared else _separator(name, text)
    if kind_of(name) == ".tsv":
        content = _TSV_CELL.sub(_quoted, text).encode()
    del text  # beside the file itself only its rows are in memory
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    if declared:
        lines.readline()
    reader = csv.reader(lines, delimiter=separator, strict=True)
    header: list[str] = []
    width = 0
    before = 1 if declared else 0
    start = 1 + before
    try:
        for cells in reader:
            if any(cells) and not header:
                header, width = _header(name, cells), len(cells)
            elif any(cells):
                yield _csv_row(RowPlace("line", start), header, cells, width)
            start = reader.line_num + 1 + before
    except csv.Error as error:
        raise refusal(
            "%(name)s is no valid CSV from line %(line)s on; look at its quotation marks.", name=name, line=str(start)
        ) from error


_TSV_CELL = re.compile(r'(?<![^\t\r\n])(?:"(?:[^"]|"")*+"(?![^\t\r\n])|"[^\t\r\n]*)')
"""Cell of a .tsv file that begins with a quotation mark: wholly quoted, or a text with marks of its own."""


def _quoted(cell: re.Match[str]) -> str:
    is_quoted = re.fullmatch(r'"(?:[^"]|"")*"', cell[0])
    return cell[0] if is_quoted else '"' + cell[0].replace('"', '""') + '"'


_SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
"""First line of a spreadsheet's csv that names the separator."""


_HEADER = re.compile(r'[\r\n]*+(?:[^"\n]|"[^"]*"|")*+')
"""The first line that is not empty, with the line breaks in its quoted cells."""


def _separator(name: str, text: str) -> str:
    """Column separator: the first comma, semicolon or tab outside quotation marks in the header; the tab in a .tsv
    file."""
    if kind_of(name) == ".tsv":
        return "\t"
    header = re.sub(r'"[^"]*"', "", _HEADER.match(text)[0])  # type: ignore[index]
    return next((mark for mark in ",;\t" if mark in header), ",")


def _header(name: str, cells: list[str]) -> list[str]:
    names = _without_empty_end([cell.strip() for cell in cells])
    if len(set(names)) < len(names):
        raise refusal("%(name)s names a column twice in its header: %(names)s.", name=name, names=", ".join(names))
    return names


def _csv_row(where: RowPlace, header: list[str], cells: list[str], width: int) -> TableRow | BrokenRow:
    """Row of cells, without empty ones, which csv cannot distinguish from missing values.

    Empty cells after the last column are ignored, and ="007", a spreadsheet's notation of a text, is 007. Other cells
    after it that are below an empty name, up to the header's `width`, are columns named as by pandas ("Unnamed: 2")."""
    cells = cells if len(cells) == len(header) else [*cells[: len(header)], *_without_empty_end(cells[len(header) :])]
    if len(header) < len(cells) <= width:
        header = [*header, *(f"Unnamed: {number}" for number in range(len(header), len(cells)))]
    if len(cells) != len(header):
        reason = counted(
            "%(count)s cell instead of %(wanted)s",
            "%(count)s cells instead of %(wanted)s",
            count=len(cells),
            wanted=len(header),
        )
        return BrokenRow(where, reason)
    for name, cell in zip(header, cells, strict=True):
        if cell in _ERRORS:
            return BrokenRow(where, Sentence("%(name)s is a spreadsheet's error, %(value)s", name=name, value=cell))
    return TableRow(where, {name: _unquoted(cell) or None for name, cell in zip(header, cells, strict=True)})


_ERRORS = frozenset(("#NAME?", "#REF!", "#VALUE!", "#DIV/0!", "#NULL!", "#NUM!"))
_FORMULA = re.compile(r'="([^"]*)"')


def _unquoted(cell: str) -> str:
    quoted = _FORMULA.fullmatch(cell) if cell.startswith('="') else None
    return quoted[1] if quoted else cell


def _without_empty_end(cells: list[str]) -> list[str]:
    filled = [number for number, cell in enumerate(cells, 1) if cell]
    return cells[: filled[-1] if filled else 0]


def _is_json(text: str) -> bool:
    """Whether a text is a list of JSON objects, or an object on every line. `{}` may be a text."""
    for values in (text.split("\n"), [text]) if re.match(r"\s*[\[{]", text) else ():
        try:
            parsed = [parse_json(value) for value in values if value.strip()]
        except ValueError:
            continue
        rows = parsed[0] if len(parsed) == 1 and isinstance(parsed[0], list) else parsed
        return bool(rows) and all(isinstance(row, dict) and row for row in rows)
    return False


def _read_text(name: str, content: bytes) -> Iterator[TableRow]:
    text = _decode(name, content).replace("\r\n", "\n")
    if _is_json(text):
        raise TutelageError(f"{name} holds JSON, not prose; name it .jsonl if each line is a row, otherwise .json.")
    start, line = 0, 1
    for gap in [*re.finditer(r"\n(?:[^\S\n]*\n)+", text), None]:
        document = text[start : gap.start() if gap else len(text)]
        if document.strip():
            blank = len(document) - len(document.lstrip())
            yield TableRow(RowPlace("line", line + document.count("\n", 0, blank)), {"text": document.strip()})
        following = gap.end() if gap else len(text)
        line += text.count("\n", start, following)
        start = following


TEXT_READERS: dict[str, Callable[[str, bytes], Iterable[TableRow | BrokenRow]]] = {
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_text,
}

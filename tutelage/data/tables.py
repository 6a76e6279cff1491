"""Files and hub data sets as rows: column -> value, each with the place where it stood, for messages to the reader.

Read here: .json (an array, or an object with one list), .jsonl/.ndjson, .csv, .tsv, .parquet and .txt (documents
separated by blank lines, as the column `text`), each also as .gz. What the file is decides its name's ending; what is
in it is checked against that, and a mismatch is told instead of guessed around, with one exception: .json and .jsonl
stand for each other, because hubs are full of both mistakes.
"""

import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tutelage.data.readers import READERS, Broken, Row
from tutelage.errors import TutelageError

__all__ = ["Broken", "Row", "Table", "read_table"]

READS = ".json, .jsonl, .ndjson, .csv, .tsv, .parquet and .txt, each also with .gz"


@dataclass(frozen=True)
class Table:
    """All rows of one source, in order. `columns` are all that occur, in the order of their first appearance."""

    source: str
    rows: tuple[Row, ...]
    broken: tuple[Broken, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for row in self.rows for column in row.values))

    def renamed(self, names: Mapping[str, str]) -> "Table":
        """The table with some of its columns under other names."""
        rows = (
            Row(row.where, {names.get(column, column): value for column, value in row.values.items()})
            for row in self.rows
        )
        return replace(self, rows=tuple(rows))


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
    return source != name or Path(name).suffix in READERS or source.startswith((".", "/", "~"))


def _about_folder(path: Path) -> str:
    inside = sorted(str(file.relative_to(path)) for file in path.rglob("*") if _kind(file) in READERS)
    if not inside:
        return f"{path} is a folder; name a file ({READS})."
    named = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
    return f"{path} is a folder; name one of the files in it: {named}."


def _kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _read_file(path: Path) -> Iterable[Row | Broken]:
    kind = _kind(path)
    if kind not in READERS:
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
    return READERS[kind](path, content)


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
        if not content.startswith(b"PAR1"):
            raise TutelageError(f"{path} is not a Parquet file: it does not begin as one.")
        return
    head = content[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        raise TutelageError(
            f"{path} is an HTML page (perhaps an error page saved by a download), not {kind}."
        )
    if b"\x00" in content:
        raise TutelageError(f"{path} is a binary file, not {kind}.")

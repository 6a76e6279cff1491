"""Files and hub data sets as rows (column -> value), each with its place in the source for messages.

Supported: .json (an array, or an object with one list), .jsonl/.ndjson, .csv, .tsv, .parquet and .txt (documents
separated by blank lines, as the column `text`), each also as .gz. The extension determines the format, and content
of another format is an error, with one exception: .json and .jsonl are interchangeable, because hubs often mix them
up.
"""

import codecs
import gzip
import hashlib
import io
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tutelage.base import extras
from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence, refusal
from tutelage.data.readers import (
    TEXT_READERS,
    BrokenRow,
    RowPlace,
    TableRow,
    Values,
    has_lines_of_json,
    kind_of,
    lines_of_json,
)

_NAME = re.compile(r"(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<config>[\w.-]+))?(?::(?P<split>[\w.\[\]%+:-]+))?")


def parse_hub_name(source: str) -> tuple[str, str | None, str]:
    """(data set, configuration, split). The split is `train` by default; slices such as `train[:1%]` are those of
    the hub library."""
    match = _NAME.fullmatch(source)
    if match is None:
        raise TutelageError(
            f"There is no file {source}, and it is no hub name of the form owner/name[/config][:split]."
        )
    return match["name"], match["config"], match["split"] or "train"


def read_hub(source: str) -> Iterator[TableRow]:
    """Rows of a hub data set, downloaded or from the local cache. Raises TutelageError with the library's reason."""
    name, config, split = parse_hub_name(source)
    try:
        import datasets
    except ModuleNotFoundError as error:
        needed = extras.missing(error, f"There is no file {source}, and the hub data set {name}")
        raise (needed or error) from error
    try:
        rows = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # the library raises a dozen kinds, some bare, for "not found" and "no network"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise TutelageError(
            f"There is no file {source}, and the hub data set {name} (configuration {config or 'default'}, "
            f"split {split}) could not be loaded: {reason}."
        ) from error
    for number, values in enumerate(rows, 1):
        yield TableRow(RowPlace("row", number), values)


READERS = (*TEXT_READERS, ".parquet")
READS = f"{', '.join(READERS)} (.gz)"
"""Supported file extensions; each may be followed by .gz."""


GIB = 1024**3
MOST_IN_MEMORY = 8 << 20
"""Bytes of a file above which rows with one object per line are parsed when they are read, and not kept."""


@dataclass(frozen=True)
class Table:
    """All rows of one source, in order. `columns` are in order of first appearance; `header` has them if they are known
    without the rows."""

    source: str
    rows: Sequence[TableRow]
    broken: tuple[BrokenRow, ...]
    header: tuple[str, ...] | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        if self.header is not None:
            return self.header
        return tuple(dict.fromkeys(column for row in self.rows for column in row.values))

    def sample(self, most: int) -> "Table":
        """At most this many rows, evenly spaced, with all of the columns."""
        step = -(-len(self.rows) // most) or 1
        return replace(self, rows=self.rows[::step], header=self.columns)

    def without(self, column: str) -> "Table":
        return self._with(lambda values: {name: value for name, value in values.items() if name != column})

    def renamed(self, names: Mapping[str, str]) -> "Table":
        return self._with(lambda values: {names.get(column, column): value for column, value in values.items()})

    def _with(self, change: Callable[[Values], Values]) -> "Table":
        rows = tuple(TableRow(row.where, change(row.values)) for row in self.rows)
        return replace(self, rows=rows, header=None)


# Rows in memory -------------------------------------------------------------------------------------------------------

_IN_MEMORY: dict[str, Table] = {}
MEMORY = "in_memory:rows_"


def is_rows(value: object) -> bool:
    """Whether the value is a table in memory: a list of mappings, a `datasets.Dataset`, or a pandas or polars frame."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, Mapping) for item in value)
    return hasattr(value, "column_names") or (hasattr(value, "columns") and hasattr(value, "to_dict"))


def name_rows(value: Any) -> str:
    """Name by which this process reads rows in memory as it reads a file: a hash of the rows, so that a run is resumed
    with the same ones. Raises TutelageError for several data sets in one object and for rows that are none."""
    if isinstance(value, Mapping):
        raise TutelageError(f"The data hold several data sets, {', '.join(map(str, value))}: choose one of them.")
    if hasattr(value, "to_dicts"):
        items = value.to_dicts()
    elif hasattr(value, "to_dict") and not hasattr(value, "column_names"):
        items = value.to_dict("records")
    else:
        items = value
    digest, rows = hashlib.sha256(), list[TableRow]()
    for number, item in enumerate(items, 1):
        values = {str(name): _plain(cell) for name, cell in item.items()}
        digest.update(json.dumps(values, default=str).encode())
        rows.append(TableRow(RowPlace("row", number), values))
    name = f"{MEMORY}{digest.hexdigest()[:16]}"
    _IN_MEMORY[name] = _table("data in memory", rows)
    return name


def _plain(value: Any) -> object:
    """A cell as a file would have it: arrays as lists, and None for NaN, with which frames mark missing values."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and math.isnan(value) else value


def read_table(source: str | Path) -> Table:
    """Rows of a file, or of a hub data set if `source` is not a path and looks like `owner/name[/config][:split]`; or
    rows in memory, by the name from `name_rows`.

    Raises TutelageError if the source does not exist, is a folder, is empty, has content of another format than its
    name, is not UTF-8, or is damaged. Unreadable lines are returned in `broken`; the caller decides how many are too
    many.
    """
    if str(source).startswith(MEMORY):
        if str(source) not in _IN_MEMORY:
            raise TutelageError(f"{source} were rows of another process: give the same rows as data again.")
        return _IN_MEMORY[str(source)]
    path = Path(source).expanduser()
    if os.path.isdir(path):
        raise TutelageError(_about_folder(path))
    if str(source) == "-":
        raise TutelageError(
            "Data are not read from standard input (-); save them as a file, whose ending names its format."
        )
    if not os.path.exists(path):  # also a name that is too long
        if isinstance(source, str) and not _named_like_a_file(source):
            return _table(source, read_hub(source))
        raise TutelageError(f"There is no file {source}.")
    _check_kind(str(source))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TutelageError(f"{path} cannot be read: {error.strerror}.") from error
    return table_of(str(source), content)


def table_of(name: str, content: bytes, *, most: int | None = None) -> Table:
    """Rows of a file with this name and content; the name determines the format, and is used in messages. A compressed
    file may unfold to `most` bytes, by default to a hundred times its size, and at least 4 GiB.

    Raises TutelageError, with a `Sentence`, for the problems of a file listed at `read_table`.
    """
    kind = _check_kind(name)
    most = max(4 * GIB, 100 * len(content)) if most is None else most
    if name.endswith(".gz"):
        content = _unpack(name, content, most)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and kind != ".parquet":
        content = _from_utf16(name, content)
    if not content or content.isspace():
        raise refusal("%(name)s is empty.", name=name)
    _refuse_other_kinds(name, content, kind)
    if len(content) > MOST_IN_MEMORY and has_lines_of_json(name, content):
        rows, broken, columns = lines_of_json(name, content)
        if rows:
            return Table(name, rows, broken, columns)
    return _table(name, _read_parquet(name, content, most) if kind == ".parquet" else TEXT_READERS[kind](name, content))


def _check_kind(name: str) -> str:
    """Format of a file by its name. Raises TutelageError for an unsupported one."""
    kind = kind_of(name)
    if kind not in READERS:
        raise refusal("%(name)s is of no kind that can be read here: use %(endings)s.", name=name, endings=READS)
    return kind


def _table(source: str, items: Iterable[TableRow | BrokenRow]) -> Table:
    rows: list[TableRow] = []
    broken: list[BrokenRow] = []
    for item in items:
        if isinstance(item, TableRow):
            rows.append(item)
        else:
            broken.append(item)
    if not rows and broken:
        first = broken[0]
        where = first.where.sentence() if isinstance(first.where, RowPlace) else first.where
        raise refusal(
            "No row of %(name)s can be read; the first, %(where)s: %(reason)s.",
            name=source,
            where=where,
            reason=first.reason,
        )
    if not rows:
        raise refusal("%(name)s holds no rows.", name=source)
    return Table(source, tuple(rows), tuple(broken))


def _named_like_a_file(source: str) -> bool:
    name = source.removesuffix(".gz")
    return source != name or Path(name).suffix in READERS or source.startswith((".", "/", "~"))


def _about_folder(path: Path) -> str:
    inside = sorted(str(file.relative_to(path)) for file in path.rglob("*") if kind_of(file.name) in READERS)
    if not inside:
        return f"{path} is a folder; name a file ({READS})."
    named = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
    return f"{path} is a folder; name one of the files in it: {named}."


def _unpack(name: str, content: bytes, most: int) -> bytes:
    if not content:
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise refusal("%(name)s is no complete gzip file.", name=name) from error
    if len(unpacked) > most:
        raise _too_large(name, most)
    return unpacked


def _too_large(name: str, most: int) -> TutelageError:
    """Error for a file that unfolds to more than `most` bytes."""
    size = f"{most / GIB:.3g} GiB"
    return refusal("%(name)s unfolds to more than %(most)s; split it.", name=name, most=size)


def _from_utf16(name: str, content: bytes) -> bytes:
    """UTF-8 for UTF-16 with its mark, as spreadsheets write "Unicode text"."""
    try:
        return content.decode("utf-16").encode()
    except UnicodeError as error:
        raise refusal("%(name)s is text in UTF-16; save it as UTF-8.", name=name) from error


SIGNATURES = {
    b"PAR1": Sentence("%(name)s is a Parquet file."),
    b"\x1f\x8b": Sentence("%(name)s is gzip-compressed, and its name should end in .gz."),
    b"PK\x03\x04": Sentence("%(name)s is a zip archive or an office document; export the table as .csv."),
    b"%PDF": Sentence("%(name)s is a PDF document."),
    b"ARROW1": Sentence("%(name)s is an Arrow file; save it as .parquet."),
    b"SQLite format 3": Sentence("%(name)s is an SQLite database."),
    b"version https://git-lfs": Sentence(
        "%(name)s is only a Git LFS pointer; fetch the file itself with `git lfs pull`."
    ),
}
"""Magic bytes of other formats, and their error messages."""


def _refuse_other_kinds(name: str, content: bytes, kind: str) -> None:
    for signature, said in SIGNATURES.items():
        if content.startswith(signature) and not (kind == ".parquet" and signature == b"PAR1"):
            raise TutelageError(said.about(name=name))
    if kind == ".parquet":
        if not content.startswith(b"PAR1"):
            raise refusal("%(name)s is not a Parquet file: it does not begin as one.", name=name)
        return
    head = content[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        raise refusal(
            "%(name)s is an HTML page (perhaps an error page saved by a download), not %(kind)s.", name=name, kind=kind
        )
    if b"\x00" in content:
        raise refusal("%(name)s is a binary file, not %(kind)s.", name=name, kind=kind)


# Parquet -------------------------------------------------------------------------------------------------------------

_BATCH = 10_000
"""Rows of a Parquet file that are converted at once."""


def _read_parquet(name: str, content: bytes, most: int) -> Iterator[TableRow]:
    """Rows of a Parquet file that unfolds to at most `most` bytes: of its row groups according to the footer, before
    anything is read, and of its rows, since dictionaries unfold further."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise (extras.missing(error, Sentence("Reading %(name)s", name=name)) or error) from error
    number = unfolded = 0
    try:
        schema = parquet.ParquetFile(io.BytesIO(content)).schema
        texts = [schema.column(n).path for n in range(len(schema)) if schema.column(n).physical_type == "BYTE_ARRAY"]
        file = parquet.ParquetFile(io.BytesIO(content), read_dictionary=texts)
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        # A batch of lists may unfold to any size; of others each row has at most one entry of the dictionary.
        lists = [n for n in range(len(schema)) if not _is_flat(schema.column(n))]
        columns = [group.column(n).total_uncompressed_size for group in groups for n in lists]
        if sum(group.total_byte_size for group in groups) > most:
            raise _too_large(name, most)
        # Texts are read as dictionaries, and counted before they unfold: a short list may repeat a long text.
        for batch in file.iter_batches(max(1, min(_BATCH, most // max(1, *columns, 1)))):
            unfolded += sum(map(_unfolded_bytes, batch.columns))
            if unfolded > most:
                raise _too_large(name, most)
            for values in batch.to_pylist():
                number += 1
                yield TableRow(RowPlace("row", number), values)
        file = batch = None
        pyarrow.default_memory_pool().release_unused()
    except (pyarrow.ArrowException, OSError) as error:
        raise refusal(
            "%(name)s is a damaged Parquet file, or one of a kind that is not read here (pyarrow: %(detail)s).",
            name=name,
            detail=str(error),
        ) from error


def _is_flat(column: Any) -> bool:
    """Whether a column of a Parquet schema has one number or text a row, or none."""
    return column.max_repetition_level == 0 and column.physical_type != "FIXED_LEN_BYTE_ARRAY"


def _unfolded_bytes(array: Any) -> int:
    """Bytes of a pyarrow array without its dictionaries."""
    import pyarrow.compute
    import pyarrow.types

    if pyarrow.types.is_dictionary(array.type):
        lengths = pyarrow.compute.binary_length(array.dictionary).take(array.indices.drop_null())
        return int(pyarrow.compute.sum(lengths).as_py() or 0)
    if pyarrow.types.is_map(array.type):
        return _unfolded_bytes(array.keys) + _unfolded_bytes(array.items)
    if pyarrow.types.is_struct(array.type):
        return sum(map(_unfolded_bytes, array.flatten()))
    if pyarrow.types.is_list(array.type) or pyarrow.types.is_large_list(array.type):
        return _unfolded_bytes(array.flatten())
    return int(array.nbytes)

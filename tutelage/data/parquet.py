"""Parser of Parquet files into rows, and the bound on what a compressed file unfolds to."""

import io
from collections.abc import Iterator
from typing import Any

from tutelage.base import extras
from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence
from tutelage.data.readers import RowPlace, TableRow

_BATCH = 10_000
"""Rows of a Parquet file that are converted at once."""
GIB = 1024**3


def most_unfolded(content: bytes) -> int:
    """Bytes to which a compressed file may unfold, unless its reader sets another bound: a hundred times its size, and
    at least 4 GiB."""
    return max(4 * GIB, 100 * len(content))


def too_large(name: str, most: int) -> TutelageError:
    """Error for a file that unfolds to more than `most` bytes."""
    size = f"{most / GIB:.3g} GiB"
    return TutelageError(Sentence("%(name)s unfolds to more than %(most)s; split it.", name=name, most=size))


def read_parquet(name: str, content: bytes, most: int | None = None) -> Iterator[TableRow]:
    """Rows of a Parquet file that unfolds to at most `most` bytes (by default `most_unfolded`): of its row groups
    according to the footer, before anything is read, and of its rows, since dictionaries unfold further."""
    most = most_unfolded(content) if most is None else most
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
            raise too_large(name, most)
        # Texts are read as dictionaries, and counted before they unfold: a short list may repeat a long text.
        for batch in file.iter_batches(max(1, min(_BATCH, most // max(1, *columns, 1)))):
            unfolded += sum(map(_unfolded_bytes, batch.columns))
            if unfolded > most:
                raise too_large(name, most)
            for values in batch.to_pylist():
                number += 1
                yield TableRow(RowPlace("row", number), values)
        file = batch = None
        pyarrow.default_memory_pool().release_unused()
    except (pyarrow.ArrowException, OSError) as error:
        raise TutelageError(
            Sentence(
                "%(name)s is a damaged Parquet file, or one of a kind that is not read here (pyarrow: %(detail)s).",
                name=name,
                detail=str(error),
            )
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

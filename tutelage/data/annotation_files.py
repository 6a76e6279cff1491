"""Files of exports of trackers and labelling tools as annotations.

Scores and feedback are joined with what they are about by ids, so that both may be in files of their own.
"""

import struct
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.data.annotations import Annotation, Exported, Ledger, Parts, Placed, Subject, join
from tutelage.data.export_values import words
from tutelage.data.formats import LoadedRecords, annotation_formats, load
from tutelage.data.json_values import parse_json
from tutelage.data.readers import RowPlace, TableRow
from tutelage.data.tables import Table, read_table
from tutelage.data.tracker_exports import as_mapping


@dataclass(frozen=True)
class Export:
    """The annotations in files of one export, with their places. `subjects` are all responses, annotated or not;
    `files` say how each file was read, `without` which rows have no prompt or no response; `ledger` counts the
    statements. `work` has the status of the work of raters, by their names: empty if it counts."""

    annotations: tuple[tuple[Annotation, str], ...]
    subjects: tuple[Subject, ...]
    files: tuple[LoadedRecords[Exported], ...]
    without: tuple[str, ...]
    ledger: Ledger
    work: Mapping[str, str]


def read_annotations(sources: Sequence[str], parts: Parts, stored: Sequence[Subject] = ()) -> Export:
    """Read the files of an export; `stored` are the responses of earlier imports, which statements may be about.

    Raises:
        TutelageError: a file cannot be read, is no export, or more than a tenth of its lines are damaged.
    """
    files = tuple(load(_export_table(each), "annotations", annotation_formats(parts)) for each in sources)
    ledger = Ledger()
    subjects: list[Subject] = []
    statements: list[Placed] = []
    without: list[str] = []
    work: dict[str, str] = {}
    for file in files:
        before = f"{file.source} " if len(files) > 1 else ""
        for row, where in file.placed:
            place = f"{before}{where}"
            subjects += row.subjects
            statements += [(statement, place) for statement in row.statements]
            if row.work is not None:
                rater, status = row.work
                work[rater] = status and work.get(rater, status)  # a submission that counts, among several
            for reason in row.left_out:
                ledger.left_out[reason].append(place)
            if row.without:
                without.append(f"{place}: {row.without}")
    subjects = _with_single_roots([*stored, *subjects])
    return Export(tuple(join(subjects, statements, ledger)), tuple(subjects), files, tuple(without), ledger, work)


def _with_single_roots(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects, where one that stands for a larger whole has its own id, if others claim the same or the whole is
    among them."""
    claims: dict[str, set[str]] = defaultdict(set)
    for subject in subjects:
        claims[subject.id].add(subject.alias)
    return [
        replace(each, id=each.alias, alias="") if each.alias and len(claims[each.id]) > 1 else each for each in subjects
    ]


# Logs of Inspect -----------------------------------------------------------------------------------------------------

_MEMBERS = 512 << 20
"""Maximum number of bytes that a log unfolds to."""


def _export_table(source: str) -> Table:
    """The rows of a file of an export: the samples of a log of Inspect (.eval or .json), else those of a table."""
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
    return {"eval_id": words(run, "eval_id", "run_id"), **as_mapping(sample)}


def _eval_samples(path: Path) -> list[Mapping[str, object]]:
    """The samples of a log in Inspect's archive, in the order of their names."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")]
            if sum(archive.getinfo(name).file_size for name in names) > _MEMBERS:
                raise TutelageError(f"{path} unfolds to more than {_MEMBERS >> 20} MiB of samples; import it in parts.")
            header = parse_json(_member(path, archive, "header.json")) if "header.json" in archive.namelist() else {}
            run = as_mapping(as_mapping(header).get("eval"))
            return [_with_eval(parse_json(_member(path, archive, name)), run) for name in sorted(names)]
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, OSError, struct.error) as error:
        raise TutelageError(f"{path} is no complete log of Inspect: {error}.") from error


_ZSTANDARD = 93
"""Method of compression (APPNOTE.TXT 4.4.5) that Inspect uses, and zipfile reads from Python 3.14."""


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> bytes:
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

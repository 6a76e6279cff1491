"""A whole database as one file, and a database made of such a file again: SQLite or PostgreSQL, whichever it was.

The file is a zip: `manifest.json` (format, program, revision of the tables, and for each table its rows, their SHA-256
and the greatest key that was ever given), and for each table `NAME.jsonl`, one list of values a row in the order of the
columns in the manifest. It is written in one read transaction, so it is the database at one moment whatever is answered
meanwhile, and restored in one write transaction, so there is all of it or nothing.

Tables are restored at the revision that they were written at, and migrated as a database of that revision is.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.base.version import __version__
from tutelage.people.store import migrations, schema
from tutelage.people.store.database import open_store
from tutelage.people.store.engine import Connection, Store, connect

FORMAT = "tutelage-backup/1"
ROWS_AT_ONCE = 1_000


@dataclass(frozen=True)
class Archive:
    """What a file holds: the revision of its tables, and the number of rows of each."""

    revision: str
    rows: Mapping[str, int]


def write_archive(store: Store, path: Path) -> Archive:
    """Write the database into a new file, which only its owner may read: complete, or not there at all.

    Raises:
        TutelageError: the file is there already, or cannot be written.
    """
    if path.exists():
        raise TutelageError(f"{path} exists already; a backup goes into a new file.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            found = _write(store, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise TutelageError(f"No backup could be written to {path}: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return found


def restore_archive(url: str, path: Path) -> Archive:
    """Make the database at a path or URL of a file that `write_archive` wrote.

    Raises:
        TutelageError: the file cannot be read, is no backup, was changed, or is of a newer version or one that was
            never released; or there is a database already.
    """
    with _opened(path) as archive:
        manifest = _manifest(path, archive)
        if "://" not in url:
            if Path(url).exists():
                raise TutelageError(
                    f"There is a database at {url} already; restore to another place, or move that one away."
                )
            Path(url).parent.mkdir(parents=True, exist_ok=True)
        store = Store(connect(url))
        try:
            _refuse_tables(store)
            with store.rebuild() as connection:
                migrations.upgrade(connection, manifest["revision"])
                for name, told in manifest["tables"].items():
                    _restore_table(connection, archive, name, told)
        except BaseException:
            store.close()
            if store.path is not None:
                for ending in ("", "-wal", "-shm"):
                    Path(f"{store.path}{ending}").unlink(missing_ok=True)
            raise
        store.close()
    open_store(url, create=False).close()  # looks whether it holds together, and migrates it
    return Archive(manifest["revision"], {name: told["rows"] for name, told in manifest["tables"].items()})


def _write(store: Store, file: BinaryIO) -> Archive:
    with store.read() as connection, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        revision = connection.scalar(sa.select(schema.revision.c.version_num))
        tables = {}
        for table in schema.metadata.sorted_tables:
            if table is not schema.revision:
                tables[table.name] = _write_table(connection, archive, table)
        manifest = {"format": FORMAT, "tutelage": __version__, "revision": revision, "tables": tables}
        archive.writestr("manifest.json", json.dumps(manifest, indent=2))
    return Archive(str(revision), {name: int(str(told["rows"])) for name, told in tables.items()})


def _write_table(connection: Connection, archive: zipfile.ZipFile, table: sa.Table) -> dict[str, object]:
    digest, count = hashlib.sha256(), 0
    query = sa.select(table).order_by(*table.primary_key.columns).execution_options(yield_per=ROWS_AT_ONCE)
    with archive.open(f"{table.name}.jsonl", "w", force_zip64=True) as lines:
        for row in connection.execute(query):
            line = json.dumps(list(row), ensure_ascii=False).encode() + b"\n"
            digest.update(line)
            lines.write(line)
            count += 1
    columns = [column.name for column in table.columns]
    greatest = _greatest_key(connection, table)
    return {"columns": columns, "rows": count, "sha256": digest.hexdigest(), "greatest": greatest}


def _greatest_key(connection: Connection, table: sa.Table) -> int | None:
    """The greatest key that the table ever gave, so that one of a row which was erased is not given again."""
    if "id" not in table.columns:
        return None
    if connection.dialect.name == "sqlite":
        query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
        return int(connection.scalar(query, {"name": table.name}) or 0)
    sequence = sa.text("SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, 'id')::regclass)")
    return int(connection.scalar(sequence, {"name": f'"{table.name}"'}) or 0)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise TutelageError(f"{path} is no backup of Tutelage: {error}.") from error
    except OSError as error:
        raise TutelageError(f"The backup {path} cannot be read: {error.strerror or error}.") from error


def _manifest(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(archive.read("manifest.json"))
        known = manifest.get("format") == FORMAT
    except (KeyError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise TutelageError(f"{path} is no backup of Tutelage: it has no manifest.") from error
    if not known:
        raise TutelageError(
            f"{path} is in the format {str(manifest.get('format'))!r}; this program reads {FORMAT!r}."
        )
    migrations.check_revision(str(manifest.get("revision")), str(path))
    for name, told in manifest["tables"].items():
        _check_lines(path, archive, name, told)
    return manifest


def _check_lines(path: Path, archive: zipfile.ZipFile, name: str, told: Mapping[str, Any]) -> None:
    """Raises TutelageError where the rows of a table are not those that were written."""
    try:
        with archive.open(f"{name}.jsonl") as lines:
            same = hashlib.file_digest(lines, "sha256").hexdigest() == told["sha256"]  # type: ignore[arg-type]
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise TutelageError(f"{path} is damaged: its table {name} cannot be read ({error}).") from error
    if not same:
        raise TutelageError(f"{path} is damaged: its table {name} is not as it was written.")


def _refuse_tables(store: Store) -> None:
    with store.read() as connection:
        found = set(sa.inspect(connection).get_table_names())
    ours = found & set(schema.metadata.tables)
    if ours:
        raise TutelageError(
            f"{store.address} has tables of Tutelage already ({', '.join(sorted(ours)[:3])}, …); restore to another "
            "database."
        )


def _restore_table(
    connection: Connection, archive: zipfile.ZipFile, name: str, told: Mapping[str, Any]
) -> None:
    table = sa.Table(name, sa.MetaData(), autoload_with=connection, resolve_fks=False)
    columns, count = told["columns"], 0
    for rows in _batches(archive, name):
        connection.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in rows])
        count += len(rows)
    found = connection.scalar(sa.select(sa.func.count()).select_from(table))
    if not count == found == told["rows"]:
        raise TutelageError(f"The table {name} has {found} rows after restoring, in place of {told['rows']}.")
    if told["greatest"]:
        _set_greatest_key(connection, name, told["greatest"])


def _batches(archive: zipfile.ZipFile, name: str) -> Iterator[list[list[object]]]:
    with archive.open(f"{name}.jsonl") as file:
        batch: list[list[object]] = []
        for line in io.TextIOWrapper(file, encoding="utf-8", newline="\n"):
            batch.append(json.loads(line))
            if len(batch) == ROWS_AT_ONCE:
                yield batch
                batch = []
        if batch:
            yield batch


def _set_greatest_key(connection: Connection, name: str, greatest: int) -> None:
    values = {"name": name, "greatest": greatest}
    if connection.dialect.name == "sqlite":
        connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": name})
        connection.execute(sa.text("INSERT INTO sqlite_sequence VALUES (:name, :greatest)"), values)
        return
    sequence = sa.text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :greatest)")
    connection.execute(sequence, values | {"name": f'"{name}"'})

"""Backup and restore of a whole database as a single file, portable between SQLite and PostgreSQL.

The file is a zip: `manifest.json` (format, program version, schema revision, and for each table its row count, SHA-256
and greatest id ever assigned), and `NAME.jsonl` for each table, one JSON list per row in the column order of the
manifest. It is written in one read transaction, so it is a consistent snapshot while raters continue to answer, and
restored in one write transaction, all or nothing.

Tables are restored at the revision of the backup and then migrated like any database of that revision.
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

from tutelage.base.config.files import create_private
from tutelage.base.errors import TutelageError
from tutelage.base.version import __version__
from tutelage.people.store import migrations, schema
from tutelage.people.store.database import open_store
from tutelage.people.store.engine import Connection, Store, connect

FORMAT = "tutelage-backup/1"
ROWS_AT_ONCE = 1_000
CHARACTERS_AT_ONCE = 64 << 20


@dataclass(frozen=True)
class Archive:
    """Content of a backup file: its schema revision, and the number of rows of each table."""

    revision: str
    rows: Mapping[str, int]


def write_archive(store: Store, path: Path) -> Archive:
    """Write the database to a new file, readable by its owner only. No partial file is left on failure. Raises
    TutelageError if the file already exists, or cannot be written."""
    if path.exists():
        raise TutelageError(f"{path} already exists; write the backup to a new file.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # of a process with this number that was killed
        create_private(partial)
        with partial.open("wb") as file:
            archive = _write(store, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise TutelageError(f"Cannot write a backup to {path}: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return archive


def restore_archive(url: str, path: Path) -> Archive:
    """Create the database at a path or URL from a file of `write_archive`. Raises TutelageError if the file cannot be
    read, is not a backup, was modified, or comes from a newer or an unreleased version; or the database already
    exists."""
    with _opened(path) as archive:
        manifest = _manifest(path, archive)
        if "://" not in url:
            if Path(url).exists():
                raise TutelageError(f"{url} already exists; restore to another path, or move that database away.")
            Path(url).parent.mkdir(parents=True, exist_ok=True)
        store = Store(connect(url))
        try:
            _refuse_tables(store)
            with store.rebuild() as connection:
                migrations.upgrade(connection, manifest["revision"])
                for name, entry in manifest["tables"].items():
                    _restore_table(connection, archive, name, entry)
        except BaseException:
            store.close()
            if store.path is not None:
                for ending in ("", "-wal", "-shm"):
                    Path(f"{store.path}{ending}").unlink(missing_ok=True)
            raise
        store.close()
    open_store(url, create=False).close()  # checks its integrity and migrates it
    return Archive(manifest["revision"], {name: entry["rows"] for name, entry in manifest["tables"].items()})


def _write(store: Store, file: BinaryIO) -> Archive:
    with store.read() as connection, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        revision = connection.scalar(sa.select(schema.revision.c.version_num))
        tables = {}
        for table in schema.metadata.sorted_tables:
            if table is not schema.revision:
                tables[table.name] = _write_table(connection, archive, table)
        manifest = {"format": FORMAT, "tutelage": __version__, "revision": revision, "tables": tables}
        archive.writestr("manifest.json", json.dumps(manifest, indent=2))
    return Archive(str(revision), {name: int(str(entry["rows"])) for name, entry in tables.items()})


def _write_table(connection: Connection, archive: zipfile.ZipFile, table: sa.Table) -> dict[str, object]:
    digest, count = hashlib.sha256(), 0
    at_once = table.info.get("rows_at_once", ROWS_AT_ONCE)
    query = sa.select(table).order_by(*table.primary_key.columns).execution_options(yield_per=at_once)
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
    """Greatest id that the table ever assigned, so that ids of erased rows are not reused."""
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
        raise TutelageError(f"{path} is not a Tutelage backup: {error}.") from error
    except OSError as error:
        raise TutelageError(f"Cannot read the backup {path}: {error.strerror or error}.") from error


def _manifest(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(archive.read("manifest.json"))
        supported = manifest.get("format") == FORMAT
    except (KeyError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise TutelageError(f"{path} is not a Tutelage backup: it has no manifest.") from error
    if not supported:
        raise TutelageError(f"{path} has the format {str(manifest.get('format'))!r}; this version reads {FORMAT!r}.")
    migrations.check_revision(str(manifest.get("revision")), str(path))
    for name, entry in manifest["tables"].items():
        _check_lines(path, archive, name, entry)
    return manifest


def _check_lines(path: Path, archive: zipfile.ZipFile, name: str, entry: Mapping[str, Any]) -> None:
    """Raises TutelageError if the checksum of a table does not match the manifest."""
    try:
        with archive.open(f"{name}.jsonl") as lines:
            same = hashlib.file_digest(lines, "sha256").hexdigest() == entry["sha256"]  # type: ignore[arg-type]
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise TutelageError(f"{path} is damaged: its table {name} cannot be read ({error}).") from error
    if not same:
        raise TutelageError(f"{path} is damaged: the checksum of its table {name} does not match.")


def _refuse_tables(store: Store) -> None:
    with store.read() as connection:
        names = set(sa.inspect(connection).get_table_names())
    ours = names & set(schema.metadata.tables)
    if ours:
        raise TutelageError(
            f"{store.address} already has tables of Tutelage ({', '.join(sorted(ours)[:3])}, …); restore to another "
            "database."
        )


def _restore_table(connection: Connection, archive: zipfile.ZipFile, name: str, entry: Mapping[str, Any]) -> None:
    table = sa.Table(name, sa.MetaData(), autoload_with=connection, resolve_fks=False)
    columns, count = entry["columns"], 0
    for rows in _batches(archive, name):
        connection.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in rows])
        count += len(rows)
    restored = connection.scalar(sa.select(sa.func.count()).select_from(table))
    if not count == restored == entry["rows"]:
        raise TutelageError(f"The restored table {name} has {restored} rows instead of {entry['rows']}.")
    if entry["greatest"]:
        _set_greatest_key(connection, name, entry["greatest"])


def _batches(archive: zipfile.ZipFile, name: str) -> Iterator[list[list[object]]]:
    with archive.open(f"{name}.jsonl") as file:
        batch: list[list[object]] = []
        size = 0
        for line in io.TextIOWrapper(file, encoding="utf-8", newline="\n"):
            batch.append(json.loads(line))
            size += len(line)
            if len(batch) == ROWS_AT_ONCE or size > CHARACTERS_AT_ONCE:
                yield batch
                batch, size = [], 0
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

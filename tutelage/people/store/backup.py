"""Copies of a database beside it, taken before anything is changed in it."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Store, Unavailable


def backup(store: Store, label: str = "manual") -> str:
    """Copy the database as it is at this moment; returns where to. Writers may go on meanwhile.

    SQLite: a file beside the database, complete or not there at all. PostgreSQL: the tables in a schema of their own.

    Raises:
        Unavailable: there is no room for the copy.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(store.clock()))
    if store.path is None:
        return _copy_tables(store, f"tutelage_backup_{label}_{stamp}".lower())
    target = store.path.with_name(f"{store.path.name}.backup-{label}-{stamp}")
    partial = target.with_name(f"{target.name}.partial")
    try:
        _copy_file(store.path, partial)
        os.replace(partial, target)
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise Unavailable(
            f"No backup of {store.path} could be written to {target.parent} ({error})."
        ) from error
    return str(target)


def backups(path: Path) -> list[Path]:
    """The backups beside a database file, newest first."""
    found = [p for p in path.parent.glob(f"{path.name}.backup-*") if p.suffix != ".partial"]
    return sorted(found, key=lambda p: p.stat().st_mtime, reverse=True)


def newest_backup_sentence(path: Path) -> str:
    """What to do about a database that cannot be used."""
    found = backups(path)
    if not found:
        return "There is no backup of it beside it; restore one of your own."
    return f"Its newest backup is {found[0]}: to use that, copy it to {path} (and delete {path.name}-wal and -shm)."


def _copy_file(source: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(source)) as from_file,
        contextlib.closing(sqlite3.connect(target)) as to_file,
    ):
        from_file.backup(to_file)
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def _copy_tables(store: Store, name: str) -> str:
    with store.write() as connection:
        connection.execute(sa.schema.CreateSchema(name))
        known = sa.inspect(connection).get_table_names()
        for table in (table for table in schema.metadata.sorted_tables if table.name in known):
            connection.exec_driver_sql(f'CREATE TABLE "{name}"."{table.name}" AS TABLE "{table.name}"')
    return f"{store.address}, schema {name}"

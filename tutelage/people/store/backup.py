"""Backups of a database, beside it."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, Unavailable


def backup(store: Store, label: str = "manual") -> str:
    """Copy the database as it is at this moment; returns where to. Writers may go on meanwhile.

    SQLite: a file beside the database, complete or not there at all. PostgreSQL: the tables in a schema of their own.

    Raises:
        Unavailable: there is no room for the copy.
    """
    if store.path is not None:
        return _copy_file(store, store.path, label)
    with store.write(alone=True) as connection:
        return copy_database(store, connection, label)


def copy_database(store: Store, connection: Connection, label: str) -> str:
    """`backup` within a transaction that writes alone. Raises Unavailable where there is no room for the copy."""
    if store.path is not None:
        return _copy_file(store, store.path, label)
    name = f"tutelage_backup_{label}_{_moment(store)}".lower()
    tables = sa.inspect(connection)
    if name not in tables.get_schema_names():  # of the same moment, and complete: whoever made it wrote alone
        ours = [*schema.metadata.tables, *schema.FORMER]
        known = [table for table in tables.get_table_names() if table in ours]
        connection.execute(sa.schema.CreateSchema(name))
        for table in known:
            connection.exec_driver_sql(f'CREATE TABLE "{name}"."{table}" AS TABLE "{table}"')
    return f"{store.address}, schema {name}"


def backups(path: Path) -> list[Path]:
    """The backups beside a database file, newest first."""
    found = [p for p in path.parent.glob(f"{path.name}.backup-*") if p.suffix != ".partial"]
    return sorted(found, key=lambda p: p.stat().st_mtime, reverse=True)


def newest_backup_sentence(path: Path) -> str:
    """The advice for a database that cannot be used: where its newest backup is."""
    found = backups(path)
    if not found:
        return "There is no backup of it beside it; restore one of your own."
    return f"Its newest backup is {found[0]}: to use that, copy it to {path} (and delete {path.name}-wal and -shm)."


def _moment(store: Store) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(store.clock()))


def _copy_file(store: Store, path: Path, label: str) -> str:
    target = path.with_name(f"{path.name}.backup-{label}-{_moment(store)}")
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with (
            contextlib.closing(sqlite3.connect(path)) as from_file,
            contextlib.closing(sqlite3.connect(partial)) as to_file,
        ):
            from_file.backup(to_file)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise Unavailable(f"No backup of {path} could be written to {target.parent} ({error}).") from error
    return str(target)

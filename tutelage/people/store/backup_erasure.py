"""Erasing a rater in the backups of a database, and finding the copies that are out of reach.

A backup of SQLite is copied, the copy is changed and rewritten, so that the bytes are gone, and takes the place of the
backup: a crash leaves either the old backup or the new one. A backup in PostgreSQL is a schema, and is changed where it
is. A backup that is damaged, or whose tables are of another revision, is left as it is.
"""

import contextlib
import hashlib
import hmac
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.store import migrations, schema
from tutelage.people.store.backup import backups, fault_of
from tutelage.people.store.engine import BUSY_SECONDS, Connection, Store, connect
from tutelage.people.store.raters import Rater, lock_rater

Erasure = Callable[[Connection, Rater], None]
_DUMPS = (b"PGDMP", b"--\n-- PostgreSQL database")
_HEADER = b"SQLite format 3\0"
_COPY = "SELECT rater.name FROM rater JOIN study ON study.id = rater.study_id WHERE rater.id = ? AND study.secret = ?"
"""A copy of a database has the numbers of its raters, and the secrets of its studies."""


@dataclass(frozen=True)
class Mark:
    """A rater whose name is gone from the database, as backups know the rater: by number, and by the code of the
    name."""

    rater_id: int
    study_id: int
    code: str


def mark_of(connection: Connection, rater: Rater) -> str:
    """The code of the name of a rater, by the secret of the study."""
    return _code(_secret(connection, rater.study_id), rater.name)


def _secret(connection: Connection, study_id: int) -> str:
    return str(connection.scalar(sa.select(schema.study.c.secret).where(schema.study.c.id == study_id)))


def _code(secret: str, name: str) -> str:
    return hmac.new(bytes.fromhex(secret), f"forgotten {name}".encode(), hashlib.sha256).hexdigest()


def erase_in_backups(store: Store, names: Iterable[str], mark: Mark, erase: Erasure) -> dict[str, str]:
    """Erase a rater in backups that `backups_since` named, where they hold the rater; returns those that could not be
    changed, with the reason."""
    left = {}
    for name in names:
        try:
            if store.path is None:
                _erase_in_schema(store, name, mark, erase)
            else:
                _erase_in_file(Path(name), mark, erase)
        except (TutelageError, OSError, sqlite3.Error, sa.exc.SQLAlchemyError) as error:
            left[name] = str(error).splitlines()[0]
    return left


def copies_beside(store: Store, mark: Mark) -> tuple[str, ...]:
    """Files beside a database that are no backups of it: dumps of PostgreSQL, and copies that hold the rater."""
    if store.path is None:
        return ()
    with store.read() as connection:
        secret = _secret(connection, mark.study_id)
    own = {store.path, *backups(store.path)}
    files = (path for path in store.path.parent.iterdir() if path not in own and path.is_file())
    return tuple(str(path) for path in sorted(files) if _may_hold(path, mark, secret))


def rewrite_file(path: Path) -> bool:
    """Free the room of what was deleted, so that it stands nowhere in the file; whether that was possible."""
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as file:
        try:
            file.execute("VACUUM")
            busy, _, _ = file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError:
            return False
    return not busy


def _erase_in_file(path: Path, mark: Mark, erase: Erasure) -> None:
    fault = fault_of(path)
    if fault:
        raise TutelageError(fault)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        shutil.copy2(path, partial)
        with contextlib.closing(Store(connect(str(partial)))) as copy, copy.write(alone=True) as connection:
            rater = _held(connection, mark)
            if rater is None:
                return
            erase(connection, rater)
        if not rewrite_file(partial):
            raise TutelageError("it could not be rewritten")
        shutil.copystat(path, partial)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        for end in ("", "-wal", "-shm"):
            partial.with_name(f"{partial.name}{end}").unlink(missing_ok=True)


def _erase_in_schema(store: Store, name: str, mark: Mark, erase: Erasure) -> None:
    with store.write(alone=True) as connection:
        connection.exec_driver_sql(f'SET LOCAL search_path TO "{name}"')
        known = sa.inspect(connection).get_table_names(schema=name)
        revision = schema.revision.name in known and connection.scalar(
            sa.select(schema.revision.c.version_num)
        )
        if revision != migrations.newest():
            raise TutelageError(f"its tables are of another version than {migrations.newest()}")
        rater = _held(connection, mark)
        if rater is not None:
            erase(connection, rater)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in known:
            connection.exec_driver_sql(f'VACUUM FULL "{name}"."{table}"')


def _held(connection: Connection, mark: Mark) -> Rater | None:
    """The rater as a backup has them; None where it has not, or was changed before."""
    known = connection.scalar(sa.select(schema.rater.c.name).where(schema.rater.c.id == mark.rater_id))
    if known is None or _code(_secret(connection, mark.study_id), known) != mark.code:
        return None
    return lock_rater(connection, mark.rater_id)


def _may_hold(path: Path, mark: Mark, secret: str) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(200)
        if head.startswith(_DUMPS):
            return True
        if not head.startswith(_HEADER):
            return False
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as file_:
            found = file_.execute(_COPY, (mark.rater_id, secret)).fetchone()
        return found is not None and _code(secret, found[0]) == mark.code
    except sqlite3.OperationalError:  # another program's database
        return False
    except (OSError, sqlite3.DatabaseError):  # it cannot be read, so it may
        return True

"""Backups beside the database: creating, listing and verifying them, and erasing a rater from them.

To erase a rater from a SQLite backup, a copy is changed, rewritten (so that the deleted bytes are gone) and moved over
the backup: a crash leaves either the old backup or the new one. A PostgreSQL backup is a schema, changed in place.
Backups that are damaged or of another revision are left unchanged.
"""

import calendar
import contextlib
import hashlib
import hmac
import os
import re
import shlex
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tutelage.base.config.files import create_private
from tutelage.base.errors import TutelageError
from tutelage.people.store import migrations, schema
from tutelage.people.store.engine import BUSY_SECONDS, Connection, Store, Unavailable, connect, record_event
from tutelage.people.store.raters import Rater, lock_rater

_STAMP = "%Y%m%dT%H%M%S"
ARCHIVED = "backup_written"
"""Audit trail action of `archive.write_archive`."""


def backup(store: Store, label: str = "manual") -> str:
    """Copy the database in its current state; returns the location of the copy. Writers are not blocked.

    SQLite: a file beside the database, never left incomplete. PostgreSQL: the tables in a separate schema.

    Raises:
        Unavailable: there is no room for the copy.
    """
    if store.path is not None:
        return _copy_file(store, store.path, label)
    with store.write(alone=True) as connection:
        return copy_database(store, connection, label)


def copy_database(store: Store, connection: Connection, label: str) -> str:
    """`backup` within an exclusive write transaction. Raises Unavailable if there is no room for the copy."""
    if store.path is not None:
        return _copy_file(store, store.path, label)
    name = f"tutelage_backup_{label}_{_moment(store)}".lower()
    tables = sa.inspect(connection)
    if name not in tables.get_schema_names():  # one of the same second is complete, as it was written exclusively
        own = [table for table in tables.get_table_names() if table in schema.metadata.tables]
        connection.execute(sa.schema.CreateSchema(name))
        for table in own:
            connection.exec_driver_sql(f'CREATE TABLE "{name}"."{table}" AS TABLE "{table}"')
    return f"{store.address}, schema {name}"


def backups(path: Path) -> list[Path]:
    """Backups beside a database file, newest first."""
    files = [p for p in path.parent.glob(f"{path.name}.backup-*") if ".partial" not in p.name]
    return sorted(files, key=lambda p: p.stat().st_mtime, reverse=True)


def backups_since(store: Store, moment: int) -> tuple[str, ...]:
    """Names (paths, or PostgreSQL schemas) of the backups created since a time in milliseconds, including those without
    a time."""
    if store.path is not None:
        names = [str(path) for path in backups(store.path)]
    else:
        with store.read() as connection:
            schemas = sa.inspect(connection).get_schema_names()
        names = [name for name in schemas if name.startswith("tutelage_backup_")]
    times = {name: _moment_in(name) for name in names}
    return tuple(name for name, second in times.items() if second is None or second >= moment // 1000)


def record_archive(store: Store, path: Path, *, actor: str = "owner") -> None:
    """Record in each study's audit trail that an archive was written, so that erasing a rater can report it."""
    now, place = store.now(), str(path.resolve())
    with store.write() as connection:
        for study_id in connection.scalars(sa.select(schema.study.c.id)).all():
            record_event(connection, study_id, now, actor, ARCHIVED, place)


def archives_since(store: Store, study_id: int, moment: int) -> tuple[str, ...]:
    """Files recorded by `record_archive` since a time (milliseconds since the epoch) that still exist."""
    event = schema.event
    mine = sa.and_(event.c.study_id == study_id, event.c.action == ARCHIVED, event.c.at >= moment)
    with store.read() as connection:
        places = connection.scalars(sa.select(event.c.subject).where(mine).order_by(event.c.id)).all()
    return tuple(place for place in dict.fromkeys(places) if Path(place).is_file())


def newest_archive(store: Store) -> tuple[str, int] | None:
    """The newest file recorded by `record_archive`, wherever it is now, and its time (milliseconds since the epoch);
    None if none was written."""
    event = schema.event
    query = sa.select(event.c.subject, event.c.at).where(event.c.action == ARCHIVED).order_by(event.c.id.desc())
    with store.read() as connection:
        row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else (row.subject, row.at)


def newest_backup(store: Store) -> tuple[str, int] | None:
    """The newest backup by the time in its name, and that time (milliseconds since the epoch); None without backups."""
    dated = [(second, name) for name in backups_since(store, 0) if (second := _moment_in(name)) is not None]
    return (max(dated)[1], max(dated)[0] * 1000) if dated else None


def delete_backups(store: Store, names: Iterable[str]) -> None:
    """Delete backups listed by `backups_since`. Raises Unavailable if one of them cannot be deleted."""
    if store.path is None:
        with store.write(alone=True) as connection:
            for name in names:
                connection.execute(sa.schema.DropSchema(name, cascade=True))
        return
    for name in names:
        try:
            Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"The backup {name} cannot be deleted: {error.strerror or error}.") from error


def fault_of(path: Path) -> str:
    """Reason why a file cannot be used as a database of this version; empty if it can. Read-only."""
    revision, newest = _sound_revision(path), migrations.newest()
    if revision is None:
        return "it is damaged"
    return "" if revision == newest else f"its schema revision is not {newest}"


def newest_backup_sentence(path: Path) -> str:
    """Sentence naming the newest sound backup of an unusable database, and the command that restores it."""
    candidates = backups(path)
    if not candidates:
        return "There is no backup beside it; restore one of your own."
    sound = next((backup for backup in candidates if _sound_revision(backup) is not None), None)
    if sound is None:
        return "Its backups beside it are damaged too; restore one of your own."
    name, log, copy = (shlex.quote(str(each)) for each in (path, path.with_name(f"{path.name}-wal"), sound))
    aside = f"mv {name} {name}.damaged && " if path.exists() else ""
    command = f"{aside}(test ! -e {log} || mv {log} {name}.damaged-wal) && rm -f {name}-shm && cp {copy} {name}"
    return f"Its newest sound backup is {sound}. With no program using the database, this restores it: {command}"


def _read_only(path: Path) -> contextlib.closing[sqlite3.Connection]:
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    return contextlib.closing(sqlite3.connect(address, uri=True))


def _sound_revision(path: Path) -> str | None:
    """Schema revision of a database file, opened read-only; None if it is damaged."""
    try:
        with _read_only(path) as file:
            if file.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                return None
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if schema.revision.name not in tables:
                return None
            row = file.execute(f"SELECT version_num FROM {schema.revision.name}").fetchone()
            return str(row[0]) if row else None
    except sqlite3.Error:
        return None


def _moment_in(name: str) -> int | None:
    """Time in the name of a backup (seconds since the epoch)."""
    match = re.search(r"\d{8}T\d{6}$", name.upper())
    return None if match is None else calendar.timegm(time.strptime(match[0], _STAMP))


def _moment(store: Store) -> str:
    return time.strftime(_STAMP, time.gmtime(store.clock()))


def _copy_file(store: Store, path: Path, label: str) -> str:
    target = path.with_name(f"{path.name}.backup-{label}-{_moment(store)}")
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        create_private(partial)
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
        raise Unavailable(f"Cannot write a backup of {path} to {target.parent} ({error}).") from error
    return str(target)


Erasure = Callable[[Connection, Rater], None]
_DUMPS = (b"PGDMP", b"--\n-- PostgreSQL database")
HEADER = b"SQLite format 3\0"
"""Beginning of a SQLite file."""
_COPY = "SELECT rater.name FROM rater JOIN study ON study.id = rater.study_id WHERE rater.id = ? AND study.secret = ?"
"""A copy of a database has the same rater ids and study secrets."""


@dataclass(frozen=True)
class Mark:
    """Identification of an erased rater in backups: the id, and the HMAC of the name."""

    rater_id: int
    study_id: int
    code: str


def mark_of(connection: Connection, rater: Rater) -> str:
    """HMAC of a rater's name with the study's secret."""
    return _code(_secret(connection, rater.study_id), rater.name)


def _secret(connection: Connection, study_id: int) -> str:
    return str(connection.scalar(sa.select(schema.study.c.secret).where(schema.study.c.id == study_id)))


def _code(secret: str, name: str) -> str:
    return hmac.new(bytes.fromhex(secret), f"forgotten {name}".encode(), hashlib.sha256).hexdigest()


def erase_in_backups(store: Store, names: Iterable[str], mark: Mark, erase: Erasure) -> dict[str, str]:
    """Erase a rater from these backups; returns the backups that could not be changed, with the reasons."""
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
    """Files beside the database, other than backups, that may contain the rater: PostgreSQL dumps and copies."""
    if store.path is None:
        return ()
    with store.read() as connection:
        secret = _secret(connection, mark.study_id)
    own = {store.path, *backups(store.path)}
    files = (path for path in store.path.parent.iterdir() if path not in own and path.is_file())
    return tuple(str(path) for path in sorted(files) if _may_hold(path, mark, secret))


def rewrite_file(path: Path) -> bool:
    """Vacuum the file, so that it contains no deleted data; returns whether that succeeded."""
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
        partial.unlink(missing_ok=True)  # of a process with this number that was killed
        create_private(partial)
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
        tables = sa.inspect(connection).get_table_names(schema=name)
        revision = schema.revision.name in tables and connection.scalar(sa.select(schema.revision.c.version_num))
        if revision != migrations.newest():
            raise TutelageError(f"its schema revision is not {migrations.newest()}")
        rater = _held(connection, mark)
        if rater is not None:
            erase(connection, rater)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in tables:
            connection.exec_driver_sql(f'VACUUM FULL "{name}"."{table}"')


def _held(connection: Connection, mark: Mark) -> Rater | None:
    """The rater in a backup; None if absent or already erased."""
    name = connection.scalar(sa.select(schema.rater.c.name).where(schema.rater.c.id == mark.rater_id))
    if name is None or _code(_secret(connection, mark.study_id), name) != mark.code:
        return None
    return lock_rater(connection, mark.rater_id)


def _may_hold(path: Path, mark: Mark, secret: str) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(200)
        if head.startswith(_DUMPS):
            return True
        if not head.startswith(HEADER):
            return False
        with _read_only(path) as copy:
            row = copy.execute(_COPY, (mark.rater_id, secret)).fetchone()
        return row is not None and _code(secret, row[0]) == mark.code
    except sqlite3.OperationalError:  # another program's database
        return False
    except (OSError, sqlite3.DatabaseError):  # unreadable, so it may contain the rater
        return True

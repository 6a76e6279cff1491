"""Opening a database: made where there is none; checked, backed up and brought up to date where there is one.

What cannot be trusted is refused with the name of the backup, rather than repaired or begun afresh.
"""

import contextlib
import sqlite3
import time
from pathlib import Path

import sqlalchemy as sa

from tutelage.errors import TutelageError
from tutelage.people.migrations import MIGRATIONS
from tutelage.people.store import schema
from tutelage.people.store.backup import backup, newest_backup_sentence
from tutelage.people.store.engine import Clock, Connection, Damaged, Store, connect, explained

_HEADER = b"SQLite format 3\0"
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs")
_OLDEST_SQLITE = (3, 35)
CHECKED_BYTES = 50_000_000


def open_store(
    url: str | Path, *, create: bool = True, clock: Clock = time.time, lasting: bool = True
) -> Store:
    """Open the database at a path or URL (SQLite), or a postgresql:// URL.

    A new one is made if there is none and `create` allows it. An older schema is migrated after a backup. `clock` gives
    seconds since the epoch; simulations may bring their own. They may also do without `lasting`, which spares them the
    wait for the disk at each answer: what a power cut takes can be simulated again.

    Raises:
        TutelageError: there is none and `create` is False; there is none but backups of it lie where it should be; it
            is damaged, of another program, of a newer version of Tutelage, or on a network drive.
        Unavailable: it is locked, or the disk is full.
    """
    store = Store(connect(str(url)), clock, lasting=lasting)
    try:
        if store.path is not None:
            _check_place(store.path, create)
            if store.path.exists() and store.path.stat().st_size:
                _check_file(store, store.path)
        _bring_up_to_date(store, create)
    except Damaged as error:
        store.close()
        assert store.path is not None  # only files are found damaged
        raise Damaged(f"{error} {newest_backup_sentence(store.path)}") from error
    except BaseException:
        store.close()
        raise
    return store


def _check_place(path: Path, create: bool) -> None:
    if path.is_dir():
        raise TutelageError(
            f"{path} is a folder; name the database file in it, for example {path / 'study.sqlite'}."
        )
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise TutelageError(
            "The SQLite library of this Python is older than 3.35; use a newer Python or PostgreSQL."
        )
    if not path.exists() or not path.stat().st_size:
        if not create:
            raise TutelageError(f"There is no database at {path}.")
        sentence = newest_backup_sentence(path)
        if not sentence.startswith("There is no backup"):
            raise TutelageError(f"There is no database at {path}, but there was one. {sentence}")
        path.parent.mkdir(parents=True, exist_ok=True)
    kind = _file_system(path.parent)
    if kind in _NETWORK:
        raise TutelageError(
            f"{path} lies on a network drive ({kind}), where SQLite loses votes; use a local disk or PostgreSQL."
        )


def _file_system(folder: Path) -> str:
    """The type of the file system that holds the folder, where Linux tells; else nothing."""
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, point, found, *_ = line.split(" ")
            inside = point == "/" or folder == Path(point) or Path(point) in folder.parents
            if inside and len(point) >= len(best):
                best, kind = point, found
    return kind


def _check_file(store: Store, path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(len(_HEADER))
    if header != _HEADER:
        raise TutelageError(f"{path} is not a SQLite database. {newest_backup_sentence(path)}")
    if path.stat().st_size <= CHECKED_BYTES:
        check(store)


def check(store: Store) -> None:
    """Read the whole database and look whether it holds together (SQLite; PostgreSQL looks after itself). Done on
    opening where it takes less than about a second.

    Raises:
        Damaged: it does not hold together.
    """
    if store.path is None:
        return
    try:
        with store.engine.connect() as connection:
            found = list(connection.exec_driver_sql("PRAGMA quick_check(3)").scalars())
    except sa.exc.DBAPIError as error:
        raise explained(error, store.address) from error
    if found != ["ok"]:
        raise Damaged(f"The database {store.path} is damaged ({'; '.join(found)}); nothing was changed.")


def _bring_up_to_date(store: Store, create: bool) -> None:
    version = _version(store)
    if version is None and not create:
        raise TutelageError(f"There is no study in {store.address}.")
    if version is None:
        _make_tables(store)
    elif version < schema.VERSION:
        _migrate(store, backup(store, f"v{version}"))


def _make_tables(store: Store) -> None:
    with store.write(alone=True) as connection:
        if _version_within(store, connection) is None:  # another program may have been quicker
            schema.metadata.create_all(connection)
            _stamp(connection, schema.VERSION, store.now())


def _migrate(store: Store, saved: str) -> None:
    try:
        with store.write(alone=True) as connection:
            version = _version_within(store, connection) or 0
            for step in (step for step in MIGRATIONS if step.version > version):
                for statement in step.statements:
                    connection.exec_driver_sql(statement)
                _stamp(connection, step.version, store.now())
    except sa.exc.SQLAlchemyError as error:
        raise TutelageError(
            f"{store.address} could not be brought up to date ({error}); nothing was changed. Its backup is {saved}."
        ) from error


def _version(store: Store) -> int | None:
    with store.read() as connection:
        return _version_within(store, connection)


def _version_within(store: Store, connection: Connection) -> int | None:
    """The version of the schema; None where the database is empty."""
    tables = set(sa.inspect(connection).get_table_names())
    if schema.schema_version.name not in tables:
        ours = tables & set(schema.metadata.tables)
        if tables and (store.sqlite or ours):
            raise TutelageError(
                f"{store.address} holds tables ({', '.join(sorted(tables)[:3])}, …) but none of them says that it is "
                "Tutelage's; name another database."
            )
        return None
    version = connection.scalar(sa.select(sa.func.max(schema.schema_version.c.version)))
    if version is None:
        raise TutelageError(f"{store.address} does not say which version its tables are. Restore a backup.")
    if version > schema.VERSION:
        raise TutelageError(
            f"{store.address} was written by a newer version of Tutelage (its tables are of version {version}, this "
            f"program knows {schema.VERSION}); upgrade Tutelage. Nothing was changed."
        )
    return version


def _stamp(connection: Connection, version: int, now: int) -> None:
    connection.execute(schema.schema_version.insert(), {"version": version, "applied": now})

"""Opening a database: create a new one, or check, back up and migrate an existing one.

Databases that fail the checks are refused, with the name of the newest backup, instead of being repaired or recreated.
"""

import contextlib
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from tutelage.base.config.files import create_private
from tutelage.base.errors import TutelageError
from tutelage.people.store import migrations, schema
from tutelage.people.store.backup import HEADER, copy_database, newest_backup_sentence
from tutelage.people.store.engine import BUSY_SECONDS, Clock, Connection, DamagedStore, Store, connect, explain_error

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs")
_OLDEST_SQLITE = (3, 35)
CHECKED_BYTES = 50_000_000


def open_store(url: str | Path, *, create: bool = True, clock: Clock = time.time, lasting: bool = True) -> Store:
    """Open the database at a path or URL (SQLite), or a postgresql:// URL.

    If `create` is true, a missing database is created. Tables of an earlier release are migrated after a backup.
    `clock` returns seconds since the epoch and may be replaced by simulations, which may also set `lasting=False` to
    skip the wait for the disk at each commit: what a power cut loses can be simulated again.

    Raises:
        TutelageError: the database does not exist and `create` is False; it does not exist but has backups; it is
            damaged, of another program, of a newer or an unreleased version of Tutelage, or on a network drive.
        Unavailable: it is locked, or the disk is full.
    """
    store = Store(connect(str(url)), clock, lasting=lasting)
    try:
        if store.path is not None:
            _check_place(store.path, create)
            if store.path.exists() and store.path.stat().st_size:
                _check_file(store, store.path)
        _bring_up_to_date(store, create)
    except DamagedStore as error:
        store.close()
        raise with_backup(error, store) from error
    except BaseException:
        store.close()
        raise
    return store


def with_backup(error: DamagedStore, store: Store) -> DamagedStore:
    """Add the newest sound backup of the database, and the command that restores it, to the error."""
    assert store.path is not None  # only files can be damaged
    return DamagedStore(f"{error} {newest_backup_sentence(store.path)}")


def database_revision(url: str | Path) -> tuple[str, str]:
    """Address of a database, and its schema revision, without migrating it (see `open_store`).

    Raises:
        TutelageError: see `open_store` with `create=False`.
    """
    with closing(Store(connect(str(url)))) as store:
        try:
            if store.path is not None:
                _check_place(store.path, create=False)
                _check_file(store, store.path)
            with store.read() as connection:
                revision = _revision(store, connection)
        except DamagedStore as error:
            raise with_backup(error, store) from error
        if revision is None:
            raise TutelageError(f"There is no study in {store.address}.")
        return store.address, revision


def sqlite_version() -> str:
    """Version of the SQLite library."""
    return sqlite3.sqlite_version


def _check_place(path: Path, create: bool) -> None:
    if path.is_dir():
        raise TutelageError(f"{path} is a folder; name the database file in it, for example {path / 'study.sqlite'}.")
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise TutelageError("The SQLite library of this Python is older than 3.35; use a newer Python or PostgreSQL.")
    if not path.exists() or not path.stat().st_size:
        if not create:
            raise TutelageError(
                f"There is no database at {path}: give a study's folder, or create one with `tutelage collect init`."
            )
        sentence = newest_backup_sentence(path)
        if not sentence.startswith("There is no backup"):
            raise TutelageError(f"There is no database at {path}, but there was one. {sentence}")
        path.parent.mkdir(parents=True, exist_ok=True)
    kind = _file_system(path.parent)
    if kind in _NETWORK:
        raise TutelageError(
            f"{path} is on a network drive ({kind}), where SQLite loses votes; use a local disk or PostgreSQL."
        )
    with contextlib.suppress(OSError):  # it exists, or SQLite says why it cannot
        create_private(path)  # SQLite gives its log the same permissions


def _file_system(folder: Path) -> str:
    """Type of the file system of the folder, on Linux; else empty."""
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, point, candidate, *_ = line.split(" ")
            inside = point == "/" or folder == Path(point) or Path(point) in folder.parents
            if inside and len(point) >= len(best):
                best, kind = point, candidate
    return kind


def _check_file(store: Store, path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(len(HEADER))
    if header != HEADER:
        raise TutelageError(f"{path} is not a SQLite database. {newest_backup_sentence(path)}")
    _check_tables(store, path)
    if path.stat().st_size <= CHECKED_BYTES:
        check(store)


def _check_tables(store: Store, path: Path) -> None:
    """Refuse a file by its tables before `store` connects, which would switch the file to write-ahead logging."""
    plain = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_SECONDS}, poolclass=sa.NullPool
    )
    try:
        with plain.connect() as connection:
            _revision(store, connection)
    except sa.exc.DBAPIError as error:
        raise explain_error(error, store.address) from error


def check(store: Store) -> None:
    """Check the integrity of a SQLite database (PostgreSQL does so itself). Part of opening if it takes less than about
    a second. Raises DamagedStore if the check failed."""
    if store.path is None:
        return
    try:
        with store.engine.connect() as connection:
            report = list(connection.exec_driver_sql("PRAGMA quick_check(3)").scalars())
    except sa.exc.DBAPIError as error:
        raise explain_error(error, store.address) from error
    if report != ["ok"]:
        raise DamagedStore(f"The database {store.path} is damaged ({'; '.join(report)}); nothing was changed.")


def _bring_up_to_date(store: Store, create: bool) -> None:
    with store.read() as connection:
        revision = _revision(store, connection)
    if revision is None and not create:
        raise TutelageError(f"There is no study in {store.address}.")
    if revision is None:
        with store.write(alone=True) as connection:
            if _revision(store, connection) is None:  # another process may have created them
                schema.metadata.create_all(connection)
                migrations.stamp(connection, migrations.newest())
    elif revision != migrations.newest():
        _migrate(store)


def _migrate(store: Store) -> None:
    """Migrate the database of an earlier release, unless another process does so first."""
    with store.write(alone=True) as connection:
        revision = _revision(store, connection)
        if revision == migrations.newest():
            return
        saved = copy_database(store, connection, str(revision))
    try:
        with store.rebuild() as connection:
            migrations.upgrade(connection)
    except (sa.exc.SQLAlchemyError, TutelageError) as error:
        raise TutelageError(
            f"Cannot migrate {store.address} ({error}); nothing was changed. Its backup is {saved}."
        ) from error


def _revision(store: Store, connection: Connection) -> str | None:
    """Schema revision; None if the database is empty."""
    tables = set(sa.inspect(connection).get_table_names())
    if schema.revision.name not in tables:
        ours = tables & set(schema.metadata.tables)
        if tables and (store.sqlite or ours):
            raise TutelageError(
                f"{store.address} holds tables ({', '.join(sorted(tables)[:3])}, …) but no {schema.revision.name}, "
                "which every release of Tutelage writes; use another database, or open this one with the program that "
                "wrote it."
            )
        return None
    revision = connection.scalar(sa.select(schema.revision.c.version_num))
    if revision is None:
        raise TutelageError(f"{store.address} has no schema revision. Restore a backup.")
    migrations.check_revision(revision, store.address)
    return str(revision)

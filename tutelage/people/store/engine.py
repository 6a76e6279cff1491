"""An opened database: reading, writing, the clock, and the few settings that make SQLite safe with many raters.

SQLite, measured with 12 concurrent raters: a transaction that begins as a reader and then writes fails at once with
"database is locked" whatever the timeout is; begun with `BEGIN IMMEDIATE` it waits its turn and never fails. The
timeout has to be set before the switch to write-ahead logging, which itself needs a lock. `synchronous=FULL` makes
every commit wait for the disk, so that a vote that was acknowledged survives a power cut. What may be lost in one (a
lease) does not wait, and that is half of the time of asking and answering; the log keeps its order, so a vote that is
on the disk never stands there without its lease.
"""

import contextlib
import dataclasses
import functools
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.store import schema

Connection: TypeAlias = sa.Connection
Clock: TypeAlias = Callable[[], float]
T = TypeVar("T")
DAY_MS = 86_400_000
BUSY_SECONDS = 30
_WRITERS = 7_489_122
_ALONE = sa.select(sa.func.pg_advisory_xact_lock(sa.bindparam("key", type_=sa.BigInteger)))
_TOGETHER = sa.select(sa.func.pg_advisory_xact_lock_shared(sa.bindparam("key", type_=sa.BigInteger)))


class Unavailable(TutelageError):
    """The database cannot be written just now (locked, full, gone). Nothing was saved; the same request may be
    sent again later."""


class DamagedStore(Unavailable):
    """The database file cannot be trusted any more."""


class Store:
    """An open database. Threads may share it; `clock` gives seconds since the epoch.

    Without `lasting` no commit waits for the disk: a power cut takes the last ones, a crash of the program none.
    `hints` is scratch memory of the search for a rater's next item (`assignment`) and of counts (`rater_progress`);
    losing it costs time, never correctness.
    """

    def __init__(self, engine: sa.Engine, clock: Clock = time.time, *, lasting: bool = True) -> None:
        self.engine = engine
        self.clock = clock
        self.lasting = lasting
        self.hints: dict[tuple[int | str, ...], int] = {}
        self._queue = threading.Lock()
        self._reader = engine if self.sqlite else engine.execution_options(isolation_level="REPEATABLE READ")

    @property
    def sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @property
    def path(self) -> Path | None:
        """The database file, or None where the database is a server."""
        name = self.engine.url.database
        return Path(name).resolve() if self.sqlite and name else None

    @property
    def address(self) -> str:
        """The address of the data, for people to read: an absolute path, or the server's URL without its password."""
        if self.path:
            return str(self.path)
        return self.engine.url.set(drivername="postgresql").render_as_string(hide_password=True)

    @property
    def busy(self) -> bool:
        """Whether a thread of this process is writing to SQLite, so that another writer would have to wait."""
        return self._queue.locked()

    def now(self) -> int:
        """Milliseconds since the epoch."""
        return int(self.clock() * 1000)

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A read transaction: one consistent state of the data; it never waits for writers."""
        with self._translated(), self._reader.connect() as connection, connection.begin():
            if self.sqlite:
                connection.exec_driver_sql("BEGIN")
            yield connection

    @contextlib.contextmanager
    def write(self, *, alone: bool = False, lasting: bool = True) -> Iterator[sa.Connection]:
        """A write transaction: committed and on the disk when the block ends, or nothing at all. With `alone`, no other
        writes meanwhile (on SQLite that is always so): for what looks at many rows and must not miss one. Without
        `lasting` the commit does not wait for the disk (the module says what that means).

        Raises:
            Unavailable: the database stayed locked by another process, or the disk is full.
        """
        lasting = lasting and self.lasting
        with self._turn(), self._translated(), self.engine.connect() as connection, connection.begin():
            if self.sqlite:
                _begin_writing(connection, lasting=lasting)
            else:
                connection.execute(_ALONE if alone else _TOGETHER, {"key": _WRITERS})
                if not lasting:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection

    @contextlib.contextmanager
    def rebuild(self) -> Iterator[sa.Connection]:
        """`write(alone=True)` for changing the tables. To make a table anew, SQLite must not look at references
        meanwhile; they are looked at before the commit.

        Raises:
            TutelageError: a row would refer to one that is not there.
        """
        with self._turn(), self._translated(), self.engine.connect() as connection:
            connection.detach()  # the pool must not get a connection back that looks at no references
            with connection.begin():
                if self.sqlite:
                    connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
                    _begin_writing(connection, lasting=True)
                else:
                    connection.execute(_ALONE, {"key": _WRITERS})
                yield connection
                if self.sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                    raise TutelageError(f"Rows of {self.address} would refer to rows that are not there.")

    def close(self) -> None:
        """Give the connections back. The store cannot be used afterwards."""
        self.engine.dispose()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """The threads of this process queue up for SQLite's one writer; SQLite itself would let them poll for it."""
        if not self.sqlite:
            yield
            return
        if not self._queue.acquire(timeout=BUSY_SECONDS):
            raise Unavailable(
                Sentence(
                    "%(database)s has been busy for more than %(seconds)s seconds; nothing was saved.",
                    database=self.address,
                    seconds=BUSY_SECONDS,
                )
            )
        try:
            yield
        finally:
            self._queue.release()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.IntegrityError:
            raise
        except sa.exc.DBAPIError as error:
            raise explain_error(error, self.address) from error


_COMPLAINTS: tuple[tuple[tuple[str, ...], type[TutelageError], Sentence], ...] = (
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED"),
        Unavailable,
        Sentence(
            "The database %(database)s has been locked by another process for more than %(seconds)s seconds; "
            "nothing was saved. Close the program that holds it and send the request again."
        ),
    ),
    (
        ("40001", "40P01"),
        Unavailable,
        Sentence("Two writers got in each other's way in %(database)s; nothing was saved. Send it again."),
    ),
    (
        ("SQLITE_FULL", "SQLITE_IOERR", "53100"),
        Unavailable,
        Sentence(
            "The disk under %(database)s is full or failing (%(reason)s); nothing was saved. Free some space."
        ),
    ),
    (
        ("SQLITE_CANTOPEN", "SQLITE_READONLY"),
        TutelageError,
        Sentence(
            "The database %(database)s cannot be opened for writing (%(reason)s); check its permissions."
        ),
    ),
    (
        ("SQLITE_CORRUPT", "SQLITE_NOTADB"),
        DamagedStore,
        Sentence("The database %(database)s is damaged (%(reason)s); nothing was saved."),
    ),
)
"""Codes of drivers, and the error and sentence for each."""
_LOST = Sentence("The connection to %(database)s is lost (%(reason)s); nothing was saved.")


def explain_error(error: sa.exc.DBAPIError, address: str) -> Exception:
    """The driver's complaint as a sentence for people, or the error itself where it is a defect of ours."""
    values, code = {"database": address, "reason": str(error.orig).strip()}, _code(error)
    for codes, kind, sentence in _COMPLAINTS:
        if code in codes:
            return kind(sentence.about(seconds=BUSY_SECONDS, **values))
    unreachable = isinstance(error, sa.exc.OperationalError) and not code
    if error.connection_invalidated or unreachable or code.startswith(("08", "57P")):
        return Unavailable(_LOST.about(**values))
    return error


def _code(error: sa.exc.DBAPIError) -> str:
    """SQLite's name of the error without its details (SQLITE_IOERR_WRITE is SQLITE_IOERR), or the SQLSTATE."""
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return "_".join(str(name).split("_")[:2])
    return getattr(error.orig, "sqlstate", None) or ""


def connect(url: str) -> sa.Engine:
    """An engine for `url`: a path or `sqlite:///path`, or `postgresql://…`, with the settings above.

    Raises:
        TutelageError: another kind of database, or a driver that is not installed.
    """
    parsed = sa.make_url(url if "://" in url else f"sqlite:///{url}")
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise TutelageError(
                "A study needs a file to live in; a database in memory would lose every vote. Name a path."
            )
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        return engine
    if parsed.drivername != "postgresql+psycopg":
        raise TutelageError(
            f"{parsed.drivername} is not supported: give a path (SQLite) or a postgresql:// URL."
        )
    try:
        return sa.create_engine(parsed, pool_size=20, max_overflow=20)
    except ModuleNotFoundError as error:
        raise TutelageError(
            "PostgreSQL needs the driver psycopg: pip install 'tutelage[postgres]'."
        ) from error


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # BEGIN is said by `Store`, not by the driver
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
    _log_ahead(cursor)
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _log_ahead(cursor: DBAPICursor) -> None:
    """Switch to write-ahead logging, which SQLite refuses at once, whatever its timeout, while another program
    writes."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
            time.sleep(0.01)


def _begin_writing(connection: sa.Connection, *, lasting: bool) -> None:
    """Begin a transaction of SQLite as its writer."""
    wanted = "FULL" if lasting else "NORMAL"
    if connection.info.get("synchronous") != wanted:
        connection.exec_driver_sql(f"PRAGMA synchronous={wanted}")
        connection.info["synchronous"] = wanted
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def lock(connection: sa.Connection, table: sa.Table, row_id: int) -> sa.RowMapping:
    """The row, locked until the transaction ends (SQLite has locked everything already).

    Raises:
        TutelageError: there is no such row.
    """
    query = sa.select(table).where(table.c.id == row_id).with_for_update()
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise TutelageError(f"There is no {table.name} {row_id} in this database.")
    return row


def record_event(
    connection: sa.Connection,
    study_id: int | None,
    at: int,
    actor: str,
    action: str,
    subject: str,
    **detail: object,
) -> int:
    """Write one line of the audit trail; returns its number."""
    row = {"study_id": study_id, "at": at, "actor": actor, "action": action, "subject": subject}
    row["detail"] = json.dumps(detail, ensure_ascii=False, sort_keys=True)
    return insert_row(connection, schema.event, row)


def several(count: int, things: Literal["items", "judgements", "notices"]) -> str:
    """The subject of an event about so many things, as it is stored; pages say it in the language of the reader."""
    return f"{count} {things}"


def value_of(kind: type[T], row: sa.RowMapping, /, **others: object) -> T:
    """A dataclass from the columns of a row that bear the names of its fields; `others` are the fields that differ."""
    names = (field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names if name not in others}, **others)


def chunks(rows: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """The sequence in pieces that fit into one statement."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@functools.cache
def _insertion(table: sa.Table) -> sa.Insert:
    """The insert statement of a table, cached, because SQLAlchemy compiles an equal statement again."""
    return table.insert()


def insert_row(connection: sa.Connection, table: sa.Table, row: Mapping[str, object]) -> int:
    """Insert one row; returns its id."""
    result = connection.execute(_insertion(table), row)
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])

"""An open database: transactions, the clock, and the settings that make SQLite safe with many raters.

SQLite, measured with 12 concurrent raters: a transaction that starts with a read and then writes fails at once with
"database is locked", whatever the timeout; with `BEGIN IMMEDIATE` it waits its turn and never fails. The timeout has to
be set before the switch to write-ahead logging, which itself needs a lock. With `synchronous=FULL`, every commit waits
for the disk, so that an acknowledged vote survives a power cut. Commits that may be lost (leases) do not wait, which
saves half of the time per question; the log preserves their order, so a vote on disk always has its lease.
"""

import contextlib
import dataclasses
import functools
import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.pool import ConnectionPoolEntry

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.store import schema

Connection: TypeAlias = sa.Connection
Clock: TypeAlias = Callable[[], float]
T = TypeVar("T")
P = ParamSpec("P")
DAY_MS = 86_400_000
BUSY_SECONDS = 30
_WRITERS = 7_489_122
_ALONE = sa.select(sa.func.pg_advisory_xact_lock(sa.bindparam("key", type_=sa.BigInteger)))
_TOGETHER = sa.select(sa.func.pg_advisory_xact_lock_shared(sa.bindparam("key", type_=sa.BigInteger)))


class Unavailable(TutelageError):
    """The database cannot be written at the moment (locked, full, unreachable). Nothing was saved; the request may be
    retried."""


class DamagedStore(Unavailable):
    """The database file is corrupt."""


class Store:
    """An open database, shared between threads; `clock` returns seconds since the epoch.

    Without `lasting`, commits do not wait for the disk: a power cut loses the last ones, a crash of the process none.
    `hints` is a cache of the search for a rater's next item (`assignment`) and of counts (`rater_progress`); losing it
    affects speed, not correctness.
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
        """Path of the database file; None for a database server."""
        name = self.engine.url.database
        return Path(name).resolve() if self.sqlite and name else None

    @property
    def address(self) -> str:
        """Address of the database for messages: an absolute path, or the URL without its password."""
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
        """Read transaction: a consistent snapshot of the data; it never waits for writers."""
        with self._translated(), self._reader.connect() as connection, connection.begin():
            if self.sqlite:
                connection.exec_driver_sql("BEGIN")
            yield connection

    @contextlib.contextmanager
    def write(self, *, alone: bool = False, lasting: bool = True) -> Iterator[sa.Connection]:
        """Write transaction: committed and on disk when the block ends, or rolled back. With `alone`, no other
        transaction writes meanwhile (always so on SQLite): for bulk reads that must not miss a row. Without `lasting`,
        the commit does not wait for the disk (see the module). Raises Unavailable if the database stayed locked by
        another process, or the disk is full."""
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
        """`write(alone=True)` for schema changes. Foreign keys are off while SQLite recreates tables, and checked
        before the commit. Raises TutelageError if a row would refer to a missing row."""
        with self._turn(), self._translated(), self.engine.connect() as connection:
            connection.detach()  # a connection without foreign keys must not return to the pool
            with connection.begin():
                if self.sqlite:
                    connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
                    _begin_writing(connection, lasting=True)
                else:
                    connection.execute(_ALONE, {"key": _WRITERS})
                yield connection
                if self.sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                    raise TutelageError(f"Rows of {self.address} would refer to missing rows.")

    def close(self) -> None:
        """Close all connections. The store cannot be used afterwards."""
        self.engine.dispose()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Queue the writing threads of this process; SQLite itself would let them poll for its lock."""
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
        Sentence("Two writes to %(database)s conflicted; nothing was saved. Send the request again."),
    ),
    (
        ("SQLITE_FULL", "SQLITE_IOERR", "53100"),
        Unavailable,
        Sentence("The disk under %(database)s is full or failing (%(reason)s); nothing was saved. Free some space."),
    ),
    (
        ("SQLITE_CANTOPEN", "SQLITE_READONLY"),
        TutelageError,
        Sentence("The database %(database)s cannot be opened for writing (%(reason)s); check its permissions."),
    ),
    (
        ("SQLITE_CORRUPT", "SQLITE_NOTADB"),
        DamagedStore,
        Sentence("The database %(database)s is damaged (%(reason)s); nothing was saved."),
    ),
)
"""Error class and sentence for each driver code."""
_LOST = Sentence("The connection to %(database)s is lost (%(reason)s); nothing was saved.")


def explain_error(error: sa.exc.DBAPIError, address: str) -> Exception:
    """Translate a driver error into an error with a sentence for people; other errors, which are bugs, are returned
    unchanged."""
    values, code = {"database": address, "reason": str(error.orig).strip()}, _code(error)
    for codes, kind, sentence in _COMPLAINTS:
        if code in codes:
            return kind(sentence.about(seconds=BUSY_SECONDS, **values))
    unreachable = isinstance(error, sa.exc.OperationalError) and not code
    if error.connection_invalidated or unreachable or code.startswith(("08", "57P")):
        return Unavailable(_LOST.about(**values))
    return error


def _code(error: sa.exc.DBAPIError) -> str:
    """SQLite's error name without its suffix (SQLITE_IOERR_WRITE becomes SQLITE_IOERR), or the SQLSTATE."""
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        return "_".join(str(name).split("_")[:2])
    return getattr(error.orig, "sqlstate", None) or ""


def without_password(place: str) -> str:
    """A path, or a URL with *** in place of its password."""
    return sa.make_url(place).render_as_string(hide_password=True) if "://" in place else place


def connect(url: str) -> sa.Engine:
    """Create an engine for a path, a `sqlite:///path` URL or a `postgresql://…` URL, with the settings above. Raises
    TutelageError for an unsupported kind of database, or a driver that is not installed."""
    parsed = sa.make_url(url if "://" in url else f"sqlite:///{url}")
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise TutelageError(
                "A study needs a database file; a database in memory would lose every vote. Give a path."
            )
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        return engine
    if parsed.drivername != "postgresql+psycopg":
        raise TutelageError(f"{parsed.drivername} is not supported: give a path (SQLite) or a postgresql:// URL.")
    try:
        return sa.create_engine(parsed, pool_size=20, max_overflow=20)
    except ModuleNotFoundError as error:
        raise TutelageError("PostgreSQL needs the driver psycopg: pip install 'tutelage[postgres]'.") from error


def _prepare_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # `Store` issues BEGIN, not the driver
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
    _log_ahead(cursor)
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _log_ahead(cursor: DBAPICursor) -> None:
    """Switch to write-ahead logging, which SQLite refuses at once, whatever its timeout, while another process
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
    """Begin a SQLite transaction with the write lock."""
    level = "FULL" if lasting else "NORMAL"
    if connection.info.get("synchronous") != level:
        connection.exec_driver_sql(f"PRAGMA synchronous={level}")
        connection.info["synchronous"] = level
    connection.exec_driver_sql("BEGIN IMMEDIATE")


LEAST_FREE = 16 * 1024**2
"""Bytes that must be free beside a SQLite database; its log takes a few megabytes."""


def reading(function: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Store | Connection, P], T]:
    """Decorate a function of a transaction, so that it also takes a store, which it reads in a transaction of its
    own."""

    @functools.wraps(function)
    def read(source: Store | Connection, /, *arguments: P.args, **named: P.kwargs) -> T:
        if isinstance(source, Store):
            with source.read() as connection:
                return function(connection, *arguments, **named)
        return function(source, *arguments, **named)

    return read


def check_room(store: Store) -> None:
    """Raises Unavailable if the disk of a SQLite database is full, so that no answer could be saved."""
    if store.path is not None and shutil.disk_usage(store.path.parent).free < LEAST_FREE:
        raise Unavailable(Sentence("The disk of the database is full: no answer can be saved. Free some space."))


def lock(connection: sa.Connection, table: sa.Table, row_id: int) -> sa.RowMapping:
    """Lock a row until the transaction ends and return it (SQLite has locked everything already). Raises TutelageError
    if there is no such row."""
    query = sa.select(table).where(table.c.id == row_id).with_for_update()
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise TutelageError(f"There is no {table.name} {row_id} in this database.")
    return row


def record_event(
    connection: sa.Connection, study_id: int | None, at: int, actor: str, action: str, subject: str, **detail: object
) -> int:
    """Insert an event into the audit trail; returns its id."""
    row = {"study_id": study_id, "at": at, "actor": actor, "action": action, "subject": subject}
    row["detail"] = json.dumps(detail, ensure_ascii=False, sort_keys=True)
    return insert_row(connection, schema.event, row)


def several(count: int, things: Literal["items", "judgements", "notices"]) -> str:
    """Subject of an event about several rows, as stored; pages translate it."""
    return f"{count} {things}"


def value_of(kind: type[T], row: sa.RowMapping, /, **others: object) -> T:
    """Construct a dataclass from the columns named like its fields; `others` are the fields that differ."""
    names = (field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names if name not in others}, **others)


def chunks(rows: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Split a sequence into pieces that fit into one statement."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@functools.cache
def _insertion(table: sa.Table) -> sa.Insert:
    """Insert statement of a table, cached, because SQLAlchemy compiles equal statements again."""
    return table.insert()


def insert_row(connection: sa.Connection, table: sa.Table, row: Mapping[str, object]) -> int:
    """Insert one row; returns its id."""
    result = connection.execute(_insertion(table), row)
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])

"""The same tests on SQLite and, where its programs are installed, on PostgreSQL."""

import functools
import itertools
import tempfile
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
import sqlalchemy as sa
from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient

from tutelage.people import Store, open_store

from .cluster import cluster, programs
from .hooks import Received, webhook_server
from .mail import mail_server
from .worlds import Clock, opened

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def _one_event_loop() -> Iterator[None]:
    """Test clients share an event loop: each request would start a thread and a loop of its own, twice."""
    with start_blocking_portal() as portal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestClient, "portal", portal)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The socket folder of a PostgreSQL cluster."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver psycopg is not installed here")
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed here")
    with cluster(found) as folder:
        yield folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder."""
    with tempfile.TemporaryDirectory(prefix="tutelage-") as name:
        yield Path(name)


POSTGRESQL = ("store", "test_assignment.py", "test_submission.py")
"""Where `make test` has PostgreSQL too: the statements themselves, and their order among many raters."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        is_elsewhere = here not in item.path.parents or item.path.relative_to(here).parts[0] in POSTGRESQL
        both = parameters.get("elsewhere") == "postgresql"  # between two servers: files and servers are there both ways
        if parameters.get("url") == "postgresql" and (both or not is_elsewhere):
            item.add_marker(pytest.mark.long)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The address of a database that does not exist yet (SQLite) or is empty (PostgreSQL); a `store` is opened on one
    that has its tables."""
    if request.param == "sqlite":
        yield str(folder / "study.sqlite")
        return
    socket = request.getfixturevalue("postgres")
    yield fresh_database(socket, with_tables(socket) if "store" in request.fixturenames else "template1")


@functools.cache
def with_tables(folder: str) -> str:
    """The name of a database with the tables of a study, made once; copies of it take a tenth of the time."""
    url = fresh_database(folder)
    open_store(url).close()
    return url.split("/")[3].partition("?")[0]


def fresh_database(folder: str, template: str = "template1") -> str:
    name = f"study_{next(_numbers)}"
    admin = sa.create_engine(f"postgresql+psycopg://tutelage@/postgres?host={folder}", isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    admin.dispose()
    return f"postgresql://tutelage@/{name}?host={folder}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Store]:
    made = open_store(url, clock=clock) if url.startswith("postgresql") else opened(Path(url), clock)
    yield made
    made.close()


@pytest.fixture
def lite(folder: Path, clock: Clock) -> Iterator[Store]:
    """SQLite only, for what is peculiar to files."""
    made = opened(folder / "study.sqlite", clock)
    yield made
    made.close()


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Received]]]:
    """A server that takes webhooks: its address, and what came."""
    with webhook_server() as server:
        yield server


@pytest.fixture
def mailbox() -> Iterator[tuple[str, list[EmailMessage]]]:
    """A server that takes mail: its address, and what came."""
    with mail_server() as server:
        yield server

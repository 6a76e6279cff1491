"""What holds for all tests, and what several folders of them share."""

import asyncio
import fcntl
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typechecks
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TUTELAGE_PRODUCTS", "own")  # not what is fastest, which may differ from run to run
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts a job in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start would inherit it

MEMORY = Path("/dev/shm")
"""Holds all temporary files where it has the room: runs and checkpoints are forced to the disk, each in 5 to 10 ms, and
no test is about disks. They are removed at the end, those of failed tests too: set TMPDIR to keep them."""
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    tempfile.tempdir = tempfile.mkdtemp(prefix="tests-", dir=MEMORY)
    os.environ["TMPDIR"] = tempfile.tempdir  # of the workers, and of the programs that tests start
    Finalize(None, shutil.rmtree, (tempfile.tempdir, True), exitpriority=-200)  # after multiprocessing's own folder

# A machine that others use too may be slow at any moment. `make test-long` looks at more examples of every law.
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("quick")

TESTS = Path(__file__).parent
SLOW = """
    commands compatibility demo engines examples learn models rollout train
    people/kinds people/store people/web/pages people/web/test_identity.py people/web/test_openid_provider.py
    people/web/test_serving.py people/web/test_wheel.py people/test_assignment.py
    people/test_live_conversation.py people/test_correction_data.py people/test_crowd.py people/test_export.py
    people/test_faults.py people/test_vote_import.py people/test_load.py people/test_training_data.py
    people/test_submission.py
    report/test_faults_are_named.py report/test_metrics.py stats/test_copy_evidence.py stats/test_model_choice.py
    docs/test_reference.py test_docs_python.py test_import_time.py test_typechecks.py
"""
MARKS = {"browser": "browser", "engines/cpu": "kernels", "peers": "peers"} | dict.fromkeys(SLOW.split(), "slow")
"""The mark of the tests in a folder, or in a file, of `tests`. A single test may have more."""

typechecks.install()
gc.set_threshold(20_000, 20, 20)  # collections in the middle of tests: a twentieth of the usual


@cache
def marks_of(path: Path) -> set[str]:
    """The marks of a file or a folder below `tests`: those of the folders that it lies in."""
    below = [path, *path.parents]
    return {mark for place, mark in MARKS.items() if TESTS / place in below}


def pytest_configure(config: pytest.Config) -> None:
    gone = [place for place in MARKS if not (TESTS / place).exists()]
    if gone:
        raise pytest.UsageError(f"MARKS of tests/conftest.py names what is not in tests: {', '.join(gone)}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether no test of a file or folder can be selected: with `-m "not slow and not browser"` none that has these
    marks is imported, which takes longer than to run the rest."""
    excluding = re.fullmatch(r"not \w+( and not \w+)*", config.option.markexpr)
    without = set(re.findall(r"not (\w+)", excluding[0])) if excluding else set()
    return True if marks_of(collection_path) & without else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in sorted(marks_of(item.path)):
            item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """No garbage collection while modules and tests are made, which all stay; later collections leave them out."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _cache() -> Iterator[None]:
    """The cache of compiled kernels, whose names are hashes of their sources: `build/cache`, not the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(TESTS.parent / "build" / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _servers_end_soon() -> Iterator[None]:
    """uvicorn looks every 0.1 s whether it should end, and then waits 0.1 s more; the servers of the standard library
    look every 0.5 s. In tests they wait a tenth of that, or less."""
    hurried = SimpleNamespace(**vars(asyncio))
    hurried.sleep = lambda seconds: asyncio.sleep(seconds / 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uvicorn.server.asyncio", hurried)
        patch.setattr("socketserver.BaseServer.serve_forever.__defaults__", (0.01,))
        yield


@pytest.fixture(scope="session", autouse=True)
def _statements_compiled_once() -> Iterator[None]:
    """SQLAlchemy keeps the compiled statements of an engine by its dialect: the databases of all tests share both."""
    if "sqlalchemy" not in sys.modules:
        yield
        return
    import sqlalchemy

    create = sqlalchemy.create_engine
    shared = create("sqlite://")
    shared.connect().close()  # its dialect knows the version of SQLite from now on

    def create_sharing(url: Any, **settings: Any) -> sqlalchemy.Engine:
        engine = create(url, **settings)
        if type(engine.dialect) is type(shared.dialect):
            engine.dialect, engine._compiled_cache = shared.dialect, shared._compiled_cache
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlalchemy, "create_engine", create_sharing)
        yield


@pytest.fixture(autouse=True)
def _annotations_checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only the tests of the annotated rooms check annotations: the checks double the time of whole trainings."""
    typechecks.Checks.test += 1
    with nullcontext() if typechecks.is_subject(request.path) else typechecks.unchecked():
        yield


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """`tiny_model(family, **changes)`: the folder of a tiny random model (see `tiny.py`), made once and only read."""
    import tiny

    made: dict[str, str] = {}

    def folder(family: str, **changes: Any) -> str:
        key = f"{family} {sorted(changes.items())}"
        if key not in made:
            made[key] = tiny.save(family, Path(tmp_path_factory.mktemp(family)), **changes)
        return made[key]

    return folder


@pytest.fixture(scope="session")
def once_per_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Callable[[Path], None]], Path]:
    """`once_per_run(name, make)`: a folder that `make` fills once, in whichever process of the run asks first; it is
    only read."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base  # that of all workers of xdist

    def folder(name: str, make: Callable[[Path], None]) -> Path:
        place, done = shared / name, shared / f".{name}.done"
        with (shared / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                make(place)
                done.touch()
        return place

    return folder


@pytest.fixture(scope="session")
def tiny_runs(once_per_run: Callable[[str, Callable[[Path], None]], Path]) -> Any:
    """The chain of tiny trained models (see `tiny_runs.py`), trained once for all tests that read it."""
    import tiny_runs

    folder = once_per_run("tiny-runs", tiny_runs.train)
    return tiny_runs.TinyRuns(folder, folder)

"""What holds for all tests, and what several folders of them share."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typechecks
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TUTELAGE_PRODUCTS", "own")  # not what is fastest, which may differ from run to run

settings.register_profile("shared", deadline=None)  # a machine that others use too may be slow at any moment
settings.load_profile("shared")

typechecks.install()
gc.set_threshold(20_000, 20, 20)  # collections in the middle of tests: a twentieth of the usual


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
        patch.setenv("XDG_CACHE_HOME", str(Path(__file__).parents[1] / "build" / "cache"))
        yield


@pytest.fixture(autouse=True)
def _annotations_checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only the tests of the annotated rooms check annotations: the checks double the time of whole trainings."""
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

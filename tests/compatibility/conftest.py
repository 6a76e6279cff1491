"""A folder with the artefacts of an earlier release as its commands wrote them, in which commands are run."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from .archives import ARCHIVES, FIXTURES, unpack


@pytest.fixture(params=[folder.name for folder in ARCHIVES])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`place(*names)` unpacks archives of one version into an empty working directory, and returns it.

    Artefacts name each other by paths relative to that directory. The module of reward functions is found there too.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FIXTURES))

    def unpacked(*names: str) -> Path:
        unpack(FIXTURES / request.param, tmp_path, *names)
        return tmp_path

    return unpacked


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The artefacts were made with one thread, and sums depend on how they are split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    sys.modules.pop("release_rewards", None)

"""The tests of this folder concern the CPU engine, whatever engine the suite runs with."""

import pytest

from tutelage.engines.cpu import cpu_engine


@pytest.fixture(autouse=True)
def _cpu_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTELAGE_ENGINE", "cpu")


@pytest.fixture
def multiplying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in bfloat16 whatever the processor: elsewhere they are slow, and no other."""
    monkeypatch.setattr(cpu_engine, "multiplies_bf16", lambda: True)

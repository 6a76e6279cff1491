"""The tests of this folder concern the CPU engine, whatever engine the suite runs with."""

import pytest


@pytest.fixture(autouse=True)
def _cpu_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTELAGE_ENGINE", "cpu")

"""Trackers: refused before the run when they cannot work, never a reason to stop afterwards."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tutelage.errors import TutelageError
from tutelage.train.run.trackers import trackers


def test_an_unknown_tracker_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match=r"no tracker 'wandbb'; the known ones are wandb, tensorboard"):
        trackers(["wandbb"], tmp_path, {})


@pytest.mark.parametrize(
    ("name", "package"), [("wandb", "wandb"), ("tensorboard", "torch.utils.tensorboard")]
)
def test_a_tracker_that_is_not_installed_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TutelageError, match=rf'pip install "tutelage\[{name}\]"'):
        trackers([name], tmp_path, {})


class Pretended(ModuleType):
    """Stands for wandb: remembers what it is sent, and fails from step 2 on."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.sent: list[tuple[int, dict[str, float]]] = []
        self.options: dict[str, Any] = {}

    def init(self, **options: Any) -> "Pretended":
        self.options = options
        return self

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if step >= 2:
            raise ConnectionError("no network")
        self.sent.append((step, dict(metrics)))


def test_a_tracker_gets_the_metrics_and_its_failures_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wandb = Pretended()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    (track,) = trackers(["wandb"], tmp_path / "first", {"seed": 3})
    for step in (1, 2, 3):
        track(step, {"loss": 0.5})
    assert wandb.sent == [(1, {"loss": 0.5})]
    assert wandb.options["config"] == {"seed": 3}
    assert wandb.options["name"] == "first"
    assert caplog.text.count("The tracker wandb fails (no network)") == 1


def test_a_tracker_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Pretended()
    monkeypatch.setattr(wandb, "init", lambda **options: 1 / 0)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(TutelageError, match="wandb does not start: division by zero"):
        trackers(["wandb"], tmp_path, {})

"""Trackers: a broken one is refused before the run; a failure during the run does not stop it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.train.run.trackers import Past, start_tracker


def test_an_unknown_tracker_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        TutelageError, match=r"no tracker 'wandbb'; the known ones are wandb, .*, mlflow, and module:NAME"
    ):
        start_tracker("wandbb", tmp_path, {})


@for_each(
    [("wandb", "wandb"), ("tensorboard", "torch.utils.tensorboard"), ("trackio", "trackio"), ("mlflow", "mlflow")]
)
def test_a_tracker_that_is_not_installed_says_how_to_get_it(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(TutelageError, match=rf'pip install "tutelage\[{name}\]"'):
        start_tracker(name, tmp_path, {})


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
    track = start_tracker("wandb", tmp_path, {"seed": 3})
    for step in (1, 2, 3):
        track(step, {"loss": 0.5})
    assert wandb.sent == [(1, {"loss": 0.5})]
    assert wandb.options["config"] == {"seed": 3}
    assert wandb.options["name"] == tmp_path.name
    assert caplog.text.count("The tracker wandb fails (no network)") == 1


def test_a_tracker_that_does_not_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Pretended()
    monkeypatch.setattr(wandb, "init", lambda **options: 1 / 0)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(TutelageError, match="wandb does not start: division by zero"):
        start_tracker("wandb", tmp_path, {})


class Own:
    """One's own tracker: remembers everything that happens to it."""

    started: "Own"

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        self.seen: list[object] = [path, settings]
        Own.started = self

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        self.seen.append((step, dict(metrics)))

    def close(self) -> None:
        self.seen.append("closed")


def no_tracker(path: Path, settings: Mapping[str, object]) -> None:
    """What forgets to return a tracker."""


def failing(path: Path, settings: Mapping[str, object]) -> None:
    raise ImportError("no library of mine")


def test_ones_own_tracker_is_started_told_and_closed(tmp_path: Path) -> None:
    track = start_tracker(f"{__name__}:Own", tmp_path, {"seed": 3})
    track(1, {"loss": 0.5})
    track.close()
    assert Own.started.seen == [tmp_path, {"seed": 3}, (1, {"loss": 0.5}), "closed"]


@for_each(
    [
        ("nowhere_at_all:Own", "'nowhere_at_all:Own' cannot be imported"),
        (":Own", "':Own' cannot be imported"),
        (f"{__name__}:Other", "'Other'"),
        (f"{__name__}:__name__", "__name__' is not a function"),
        (f"{__name__}:no_tracker", "must return a function of a step and its metrics; it returned None"),
        (f"{__name__}:failing", "does not start: no library of mine"),
    ]
)
def test_ones_own_tracker_that_cannot_be_used_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match=message):
        start_tracker(name, tmp_path, {})


def test_a_failing_end_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    track = start_tracker(f"{__name__}:Own", tmp_path, {})
    del Own.started.seen
    track.close()
    assert "fails (" in caplog.text


class Service(ModuleType):
    """Stands for trackio or mlflow: the calls that reach it, by name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[Any, ...]] = []

    def init(self, **options: Any) -> "Service":
        self.calls.append(("init", options))
        return self

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.calls.append(("log", dict(metrics), step))

    def finish(self) -> None:
        self.calls.append(("finish",))

    def MlflowClient(self) -> "Service":
        return self

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return f"id of {name}"

    def create_run(self, experiment: str, run_name: str) -> SimpleNamespace:
        self.calls.append(("create_run", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_param(self, run: str, name: str, value: object) -> None:
        self.calls.append(("param", run, name, value))

    def log_batch(self, run: str, metrics: list[tuple[Any, ...]]) -> None:
        self.calls.append(("metrics", run, [(name, value, step) for name, value, _, step in metrics]))

    def update_run(self, run: str, status: str) -> None:
        self.calls.append(("update", run, status))

    def set_terminated(self, run: str, status: str) -> None:
        self.calls.append(("end", run, status))


def test_trackio_gets_steps_and_waits_until_they_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service("trackio")
    monkeypatch.setitem(sys.modules, "trackio", service)
    track = start_tracker("trackio", tmp_path, {"seed": 3})
    track(1, {"loss": 0.5})
    track.close()
    (_, options), *calls = service.calls
    assert options["name"].startswith(f"{tmp_path.name}-")
    assert options | {"name": ""} == {
        "project": "tutelage", "name": "", "config": {"seed": 3}, "resume": "allow",
    }  # fmt: skip
    assert calls == [("log", {"loss": 0.5}, 1), ("finish",)]


@pytest.mark.parametrize(("finished", "status"), [(True, "FINISHED"), (False, "KILLED")])
def test_mlflow_gets_settings_steps_and_how_the_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool, status: str
) -> None:
    service, entities = Service("mlflow"), ModuleType("mlflow.entities")
    entities.Metric = lambda *values: values  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", service)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    track = start_tracker("mlflow", tmp_path, {"model": {"path": "a"}})
    track(2, {"loss": 0.5, "kl/old": 0.1})
    if finished:
        (tmp_path / "summary.json").write_text("{}")
    track.close()
    assert service.calls == [
        ("create_run", "id of tutelage", tmp_path.name),
        ("param", "r", "model.path", "a"),
        ("metrics", "r", [("loss", 0.5, 2), ("kl/old", 0.1, 2)]),
        ("end", "r", status),
    ]


@for_each(["wandb", "trackio", "mlflow"])
def test_a_run_that_goes_on_keeps_its_id_and_repeats_no_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, entities = Service(name), ModuleType("mlflow.entities")
    entities.Metric = lambda *values: values  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, service)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)

    def session(past: Past, *steps: int) -> tuple[Any, list[int]]:
        """The id of a run whose tracker is started and told some steps, and the steps that reach the service."""
        service.calls.clear()
        track = start_tracker(name, tmp_path, {}, past)
        for step in steps:
            track(step, {"loss": 0.5})
        track.close()
        options = [call[1] for call in service.calls if call[0] == "init"]
        names = [(given.get("id"), given["name"]) for given in options] or [call[1] for call in service.calls[-1:]]
        return names, [call[-1] for call in service.calls if call[0] == "log"] + [
            row[-1] for call in service.calls if call[0] == "metrics" for row in call[2]
        ]

    first, told = session(Past(), 0, 1, 2, 3)
    assert told == [0, 1, 2, 3]
    assert session(Past(logged=3, kept=1), 2) == (first, [])  # stopped at once, before it had caught up
    assert session(Past(logged=2, kept=1), 2, 3, 4) == (first, [4])
    (tmp_path / "trackers.json").unlink()
    assert session(Past(logged=4, kept=1), 2, 3)[1] == [2, 3]  # new to the tracker

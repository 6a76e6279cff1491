"""Runs with the real wandb (offline), trackio and MLflow (in a file): begun, stopped, resumed, and read back.

make test-trackers
"""

import importlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tutelage.base.config.bases import RunSettings
from tutelage.base.errors import TutelageError
from tutelage.commands.runs import open_run

METRICS = {"loss": 0.5, "kl/old": math.nan, "grad/norm": math.inf, "tokens": 3}


def stopped_and_resumed(settings: RunSettings) -> None:
    """Steps 0 to 5 with a checkpoint at 3, then 4 to 7 with the same values, then the end."""
    with open_run(settings) as run:
        for step in range(6):
            run.log(step, METRICS | {"step/double": 2 * step})
            if step == 3:
                run.checkpoint(3, lambda folder: (folder / "state").touch())
    with open_run(replace(settings, resume=True)) as run:
        assert run.start == 3
        for step in range(4, 8):
            run.log(step, METRICS | {"step/double": 2 * step})
        run.finish({})


def refused(settings: RunSettings) -> None:
    """A folder with other things is refused before the tracker starts."""
    folder = settings.out.parent / "other"
    folder.mkdir()
    (folder / "notes.txt").touch()
    with pytest.raises(TutelageError, match="holds other things"), open_run(replace(settings, out=folder)):
        pass
    assert [file.name for file in folder.iterdir() if not file.name.startswith(".")] == ["notes.txt"]


def settings_of(tracker: str, folder: Path) -> RunSettings:
    return RunSettings(out=folder / "run", trackers=(tracker,))


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    settings = settings_of("wandb", tmp_path)
    stopped_and_resumed(settings)
    refused(settings)
    files = sorted(settings.out.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1  # the id of the run
    rows = []
    for file in files:
        for message in logged(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(message)
            if record.HasField("history"):
                values = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                rows.append((record.history.step.num, json.loads(values["step/double"])))
    assert rows == [(step, 2 * step) for step in range(8)]


def logged(data: bytes) -> Iterator[bytes]:
    """The messages in a log in LevelDB's format, which wandb writes behind a header of 7 bytes."""
    position, parts = 7, b""
    while position + 7 <= len(data):
        if position % 32768 > 32768 - 7:
            position += 32768 - position % 32768
            continue
        size, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole message, or the end of one
            yield parts
            parts = b""


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip("trackio")
    settings = settings_of("trackio", tmp_path)
    stopped_and_resumed(settings)
    refused(settings)
    (run,) = trackio.Api().runs("tutelage")
    rows = importlib.import_module("trackio.sqlite_storage").SQLiteStorage.get_logs("tutelage", run.name)
    assert [(row["step"], row["step/double"]) for row in rows] == [(step, 2 * step) for step in range(8)]


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    settings = settings_of("mlflow", tmp_path)
    stopped_and_resumed(settings)
    refused(settings)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("tutelage").experiment_id
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FINISHED"
    assert run.data.params["out"] == str(settings.out)
    assert math.isnan(run.data.metrics["kl/old"])
    history = client.get_metric_history(run.info.run_id, "step/double")
    assert [(each.step, each.value) for each in history] == [(step, 2.0 * step) for step in range(8)]

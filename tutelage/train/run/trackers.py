"""Optional trackers: the metrics of a run, sent elsewhere too. Once they are set up they never stop a run."""

import importlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tutelage.config.differences import flat
from tutelage.errors import TutelageError

log = logging.getLogger(__name__)

Tracker: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""Takes a step and its metrics."""
Start: TypeAlias = Callable[[Path, Mapping[str, object]], Tracker]
"""Starts a tracker for the run in a folder, with its settings. A tracker that has a method `close` is closed with the
run."""


class KeptTracker:
    """A tracker whose failures are logged once and otherwise ignored."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self.name = name
        self._tracker = tracker
        self._warned = False

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step."""
        self._try(lambda: self._tracker(step, metrics))

    def close(self) -> None:
        """End what was started, where the tracker has an end."""
        self._try(getattr(self._tracker, "close", lambda: None))

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            if not self._warned:
                log.warning(f"The tracker {self.name} fails ({error}); the run goes on without it.")
            self._warned = True


def trackers(names: Iterable[str], path: Path, settings: Mapping[str, object]) -> tuple[KeptTracker, ...]:
    """The trackers called `names` (wandb, tensorboard, trackio, mlflow, or one's own as `module:NAME`) for the run in
    `path`.

    Raises TutelageError for an unknown name and for a tracker that is not installed or does not start.
    """
    return tuple(KeptTracker(name, _start(name, path, settings)) for name in names)


def _start(name: str, path: Path, settings: Mapping[str, object]) -> Tracker:
    own = ":" in name
    start = _named(name) if own else _KNOWN.get(name)
    if start is None:
        raise TutelageError(
            f"There is no tracker {name!r}; the known ones are {', '.join(_KNOWN)}, and module:NAME is your own."
        )
    try:
        tracker = start(path, settings)
    except Exception as error:
        if isinstance(error, ImportError) and not own:
            raise TutelageError(
                f'The tracker {name} is not installed: pip install "tutelage[{name}]".'
            ) from error
        raise TutelageError(f"The tracker {name} does not start: {error}") from error
    if not callable(tracker):
        raise TutelageError(
            f"{name} is called with the folder of the run and its settings, and must return a function of a step and "
            f"its metrics; it returned {tracker!r}."
        )
    return tracker


def _named(name: str) -> Start:
    """The function or class that `module:NAME` names."""
    module, _, attribute = name.partition(":")
    try:
        start: Start = getattr(importlib.import_module(module), attribute)
    except (ImportError, ValueError) as error:
        raise TutelageError(f"The module of the tracker {name!r} cannot be imported: {error}.") from error
    except AttributeError as error:
        raise TutelageError(f"The module {module!r} has no tracker {attribute!r}.") from error
    if not callable(start):
        raise TutelageError(f"The tracker {name!r} is neither a function nor a class.")
    return start


def _wandb(path: Path, settings: Mapping[str, object]) -> Tracker:
    wandb = importlib.import_module("wandb")  # an extra, not there to be checked

    run = wandb.init(project="tutelage", name=path.name, dir=str(path), config=dict(settings), resume="allow")
    return lambda step, metrics: run.log(dict(metrics), step=step)


def _tensorboard(path: Path, settings: Mapping[str, object]) -> Tracker:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(log_dir=str(path / "tensorboard"))

    def track(step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return track


class _Trackio:
    """A run of trackio, in its project `tutelage`; a resumed run goes on in it."""

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        trackio: Any = importlib.import_module("trackio")
        self._run = trackio.init(project="tutelage", name=path.name, config=dict(settings), resume="allow")

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Wait until everything is sent."""
        self._run.finish()


class _MLflow:
    """A run of the MLflow experiment `tutelage`, where MLFLOW_TRACKING_URI says. A resumed run begins another."""

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        mlflow: Any = importlib.import_module("mlflow")
        self._path = path
        self._metric: Any = importlib.import_module("mlflow.entities").Metric
        self._client = mlflow.MlflowClient()
        known = self._client.get_experiment_by_name("tutelage")
        experiment = known.experiment_id if known else self._client.create_experiment("tutelage")
        self._id = self._client.create_run(experiment, run_name=path.name).info.run_id
        for name, value in flat(settings).items():
            self._client.log_param(self._id, name, value)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        rows = [self._metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._id, metrics=rows)

    def close(self) -> None:
        """Say how the run ended."""
        finished = (self._path / "summary.json").exists()
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")


_KNOWN: dict[str, Start] = {
    "wandb": _wandb,
    "tensorboard": _tensorboard,
    "trackio": _Trackio,
    "mlflow": _MLflow,
}

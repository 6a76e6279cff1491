"""Optional experiment trackers. After setup, their failures never stop a run."""

import importlib
import json
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, cast

from tutelage.base.config.files import write_atomically
from tutelage.base.config.mapping import flat
from tutelage.base.errors import TutelageError
from tutelage.base.modules import function_named

log = logging.getLogger(__name__)

Tracker: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""Function of a step and its metrics."""
Start: TypeAlias = Callable[[Path, Mapping[str, object]], Tracker]
"""Starts a tracker, given the folder of the run and its settings. A tracker with a method `close` is closed with the
run."""
SEEN = "trackers.json"
"""File in the run directory with the progress of each tracker, so that a resumed run keeps its id."""
WRITTEN = (SEEN, "tensorboard", "wandb")
"""Files that trackers write into the run directory."""


@dataclass(frozen=True)
class Past:
    """Progress of a tracker in a resumed run."""

    logged: int = -1
    """Last step logged before the run stopped."""
    kept: int = -1
    """Last step that the run keeps; later ones are recomputed."""
    id: str = ""
    """Id assigned by the tracker; empty for a new run."""


class _RunTracker(ABC):
    """Built-in tracker: called with a step and its metrics, closed with the run."""

    id: str
    """Id assigned by the tracker."""
    repeats: ClassVar[bool] = False
    """Whether recomputed steps are logged again. Otherwise only later steps are logged: a resumed run computes the
    same values."""

    @abstractmethod
    def __init__(self, path: Path, settings: Mapping[str, object], past: Past) -> None: ...

    @abstractmethod
    def __call__(self, step: int, metrics: Mapping[str, float]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class _ServiceTracker(_RunTracker):
    """Tracker of a service with `log` and `finish`, which waits until everything is sent."""

    _run: Any

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class KeptTracker:
    """Tracker whose failures are logged once and otherwise ignored."""

    def __init__(self, name: str, tracker: Tracker, after: int = -1) -> None:
        self.name = name
        self._tracker = tracker
        self._after = after
        self._warned = False

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step, unless the tracker already has it."""
        if step > self._after:
            self._try(lambda: self._tracker(step, metrics))

    def close(self) -> None:
        """Close the tracker, if it has a method `close`."""
        self._try(getattr(self._tracker, "close", lambda: None))

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            if not self._warned:
                log.warning(f"The tracker {self.name} fails ({error}); the run continues without it.")
            self._warned = True


def start_tracker(name: str, path: Path, settings: Mapping[str, object], past: Past | None = None) -> KeptTracker:
    """Start the tracker `name` (wandb, tensorboard, trackio, mlflow, or a custom one as `module:NAME`) for the run in
    `path`.

    A resumed run continues in the same run of the tracker. Raises TutelageError for an unknown name and for a
    tracker that is not installed or does not start.
    """
    if ":" in name:
        return KeptTracker(name, _own(name, path, settings))
    kind = _TRACKERS.get(name)
    if kind is None:
        raise TutelageError(
            f"There is no tracker {name!r}; the known ones are {', '.join(_TRACKERS)}, and module:NAME is your own."
        )
    pasts: dict[str, Past] = {}
    if (path / SEEN).exists():
        content = json.loads((path / SEEN).read_text(encoding="utf-8"))
        pasts = {each: Past(**of_run) for each, of_run in content.items()}
    present, past = past or Past(), Past()
    if name in pasts:
        past = replace(pasts[name], kept=present.kept, logged=max(present.logged, pasts[name].logged))
    try:
        tracker = kind(path, settings, past)
    except ImportError as error:
        raise TutelageError(f'The tracker {name} is not installed: pip install "tutelage[{name}]".') from error
    except Exception as error:
        raise TutelageError(f"The tracker {name} does not start: {error}") from error
    pasts |= {name: replace(past, id=tracker.id)}
    write_atomically(path / SEEN, json.dumps({each: asdict(of_run) for each, of_run in pasts.items()}))
    return KeptTracker(name, tracker, -1 if kind.repeats else past.logged)


def _own(name: str, path: Path, settings: Mapping[str, object]) -> Tracker:
    start = cast(Start, function_named(name))
    try:
        tracker = start(path, settings)
    except Exception as error:
        raise TutelageError(f"The tracker {name} does not start: {error}") from error
    if not callable(tracker):
        raise TutelageError(
            f"{name} is called with the folder of the run and its settings, and must return a function of a step and "
            f"its metrics; it returned {tracker!r}."
        )
    return tracker


class _Wandb(_ServiceTracker):
    """Weights & Biases run in the project `tutelage`; a resumed run keeps its id."""

    def __init__(self, path: Path, settings: Mapping[str, object], past: Past) -> None:
        wandb: Any = importlib.import_module("wandb")  # an optional extra, without types
        self.id = past.id or secrets.token_hex(4)
        self._run = wandb.init(
            project="tutelage", name=path.name, id=self.id, dir=str(path), config=dict(settings), resume="allow"
        )


class _TensorBoard(_RunTracker):
    """TensorBoard event files in the folder `tensorboard` of the run. Recomputed steps replace earlier ones."""

    repeats = True

    def __init__(self, path: Path, settings: Mapping[str, object], past: Past) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.id = "tensorboard"
        behind = past.kept + 1 if past.id else None
        self._writer = SummaryWriter(log_dir=str(path / "tensorboard"), purge_step=behind)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class _Trackio(_ServiceTracker):
    """Trackio run in the project `tutelage`. Trackio resumes the latest run of a name, so the name includes an id."""

    def __init__(self, path: Path, settings: Mapping[str, object], past: Past) -> None:
        trackio: Any = importlib.import_module("trackio")
        self.id = past.id or f"{path.name}-{secrets.token_hex(2)}"
        self._run = trackio.init(project="tutelage", name=self.id, config=dict(settings), resume="allow")


class _MLflow(_RunTracker):
    """MLflow run in the experiment `tutelage` at MLFLOW_TRACKING_URI."""

    def __init__(self, path: Path, settings: Mapping[str, object], past: Past) -> None:
        mlflow: Any = importlib.import_module("mlflow")
        self._path = path
        self._metric: Any = importlib.import_module("mlflow.entities").Metric
        self._client = mlflow.MlflowClient()
        self.id = past.id
        if past.id:
            self._client.update_run(self.id, status="RUNNING")
            return
        found = self._client.get_experiment_by_name("tutelage")
        experiment = found.experiment_id if found else self._client.create_experiment("tutelage")
        self.id = self._client.create_run(experiment, run_name=path.name).info.run_id
        for name, value in flat(settings).items():
            self._client.log_param(self.id, name, value)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        rows = [self._metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self.id, metrics=rows)

    def close(self) -> None:
        """Report the final status of the run."""
        finished = (self._path / "summary.json").exists()
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


_TRACKERS: Mapping[str, type[_RunTracker]] = {
    "wandb": _Wandb,
    "tensorboard": _TensorBoard,
    "trackio": _Trackio,
    "mlflow": _MLflow,
}

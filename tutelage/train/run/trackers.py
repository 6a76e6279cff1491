"""Optional trackers: the metrics of a run, sent elsewhere too. Once they are set up they never stop a run."""

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from tutelage.errors import TutelageError

log = logging.getLogger(__name__)

Tracker: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""Takes a step and its metrics."""


def trackers(names: Iterable[str], path: Path, settings: Mapping[str, object]) -> tuple[Tracker, ...]:
    """The trackers called `names` (wandb, tensorboard) for the run in `path`.

    Raises TutelageError for an unknown name and for a tracker that is not installed or does not start.
    """
    return tuple(_never_raising(name, _start(name, path, settings)) for name in names)


def _start(name: str, path: Path, settings: Mapping[str, object]) -> Tracker:
    if name not in _KNOWN:
        raise TutelageError(f"There is no tracker {name!r}; the known ones are {', '.join(_KNOWN)}.")
    try:
        return _KNOWN[name](path, settings)
    except ImportError as error:
        raise TutelageError(
            f'The tracker {name} is not installed: pip install "tutelage[{name}]".'
        ) from error
    except Exception as error:
        raise TutelageError(f"The tracker {name} does not start: {error}") from error


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


def _never_raising(name: str, tracker: Tracker) -> Tracker:
    warned = False

    def track(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal warned
        try:
            tracker(step, metrics)
        except Exception as error:
            if not warned:
                log.warning(f"The tracker {name} fails ({error}); the run goes on without it.")
            warned = True

    return track


_KNOWN: dict[str, Callable[[Path, Mapping[str, object]], Tracker]] = {
    "wandb": _wandb,
    "tensorboard": _tensorboard,
}

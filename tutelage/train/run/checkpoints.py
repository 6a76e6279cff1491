"""Checkpoints on disk: each is complete or not there, whatever happens while it is written.

A checkpoint is written into `.tmp-step-N`, forced to disk, and renamed to `step-N`. Older ones go only after
that, by a rename first, so that a folder called `step-N` is always whole.
"""

import errno
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tutelage.base.errors import TutelageError

NOTE = "checkpoint.json"
"""The file in each checkpoint that holds its step and its metric."""

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES}
"""What the system answers when it is the disk that will not take the files."""


class CheckpointFolder:
    """The folder of one run's checkpoints: the newest `keep`, and the best one by metric."""

    def __init__(self, path: Path, *, keep: int, higher_is_better: bool) -> None:
        self.path, self.keep, self.higher_is_better = path, keep, higher_is_better
        path.mkdir(exist_ok=True)
        self._clear_remains()

    def all(self) -> list[Path]:
        """The checkpoints, oldest first."""
        named = (path for path in self.path.iterdir() if re.fullmatch(r"step-\d+", path.name))
        return sorted((path for path in named if (path / NOTE).is_file()), key=step_of)

    def latest(self) -> Path | None:
        """The newest checkpoint."""
        return max(self.all(), key=step_of, default=None)

    def best(self) -> Path | None:
        """The checkpoint with the best metric (of equals the newest), among those that have one."""
        rated = [(metric, path) for path in self.all() if (metric := metric_of(path)) is not None]
        sign = 1 if self.higher_is_better else -1
        return max(rated, key=lambda pair: (sign * pair[0], step_of(pair[1])), default=(0.0, None))[1]

    def write(self, step: int, save: Callable[[Path], object], metric: float | None) -> Path:
        """Have `save` fill a folder, make it the checkpoint of `step`, and remove the ones no longer kept.

        Raises TutelageError when it cannot be written (a full disk): what was written of it is removed and
        the previous checkpoints stay. Any other error of `save` passes through, after the same removal.
        """
        place = self.path / f"step-{step}"
        partial = unfinished(place)
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            save(partial)
            note = {"step": step, "metric": metric if metric is not None and math.isfinite(metric) else None}
            (partial / NOTE).write_text(json.dumps(note) + "\n", encoding="utf-8")
            _sync(partial)
        except BaseException as error:
            written = _size(partial)
            shutil.rmtree(partial, ignore_errors=True)
            if _is_about_writing(error):
                raise TutelageError(self._failure(step, error, written)) from error
            raise
        old = self.path / f".old-{place.name}"
        if place.exists():
            place.rename(old)
        partial.rename(place)
        _sync_folder(self.path)
        shutil.rmtree(old, ignore_errors=True)
        keep = {*self.all()[-self.keep :], self.best()}
        for path in self.all():
            if path not in keep:
                shutil.rmtree(path.rename(unfinished(path)), ignore_errors=True)
        return place

    def _clear_remains(self) -> None:
        """Undo what a crash left behind: half-written or half-deleted folders, a replacement cut in two."""
        for old in self.path.glob(".old-step-*"):
            place = self.path / old.name.removeprefix(".old-")
            if not place.exists():
                old.rename(place)
        for remains in (*self.path.glob(".tmp-step-*"), *self.path.glob(".old-step-*")):
            shutil.rmtree(remains, ignore_errors=True)

    def _failure(self, step: int, error: BaseException, written: int) -> str:
        previous = self.latest()
        needed = max(written, _size(previous) if previous else 0)
        free = shutil.disk_usage(self.path).free
        state = f"that of step {step_of(previous)} is kept" if previous else "there is no earlier one"
        return (
            f"The checkpoint of step {step} could not be written to {self.path} ({_reason(error)}); {state}. "
            f"At least {_megabytes(needed)} are needed and {_megabytes(free)} are free: make room, then go on "
            "with --resume."
        )


def unfinished(checkpoint: Path) -> Path:
    """Where a checkpoint is while it is written."""
    return checkpoint.with_name(f".tmp-{checkpoint.name}")


def step_of(checkpoint: Path) -> int:
    """The step whose end a checkpoint holds."""
    return int(checkpoint.name.removeprefix("step-"))


def metric_of(checkpoint: Path) -> float | None:
    """The metric given with a checkpoint, if any."""
    metric = json.loads((checkpoint / NOTE).read_text(encoding="utf-8"))["metric"]
    return None if metric is None else float(metric)


def _is_about_writing(error: BaseException) -> bool:
    """Whether the disk is at fault, not the program. safetensors and torch have their own errors for it."""
    safetensors = sys.modules.get("safetensors")
    if safetensors is not None and isinstance(error, safetensors.SafetensorError):
        return "I/O error" in str(error)
    if isinstance(error, RuntimeError):
        return "PytorchStreamWriter" in str(error) or "inline_container" in str(error)
    return isinstance(error, OSError) and error.errno in DISK_ERRORS


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return "the file would be larger than this account may write"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "torch could not write all of a file" if isinstance(error, RuntimeError) else str(error)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _sync(folder: Path) -> None:
    """Force a folder and everything in it to disk, files before the folders that name them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as opened:
                os.fsync(opened.fileno())
    for inner in folder.rglob("*/"):
        _sync_folder(inner)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"

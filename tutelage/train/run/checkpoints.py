"""Atomic checkpoints.

A checkpoint is written to `.tmp-step-N`, synced to disk and renamed to `step-N`. Old checkpoints are deleted
afterwards, after a rename, so that a folder named `step-N` was complete when it was written. Its note holds the size
and the SHA-256 of each file, with which a resumed run recognises damage.
"""

import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted

log = logging.getLogger(__name__)

NOTE = "checkpoint.json"
"""File in each checkpoint with its step, its metric, and the size and SHA-256 of its other files."""

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES}
"""Errors of the operating system that concern the disk."""


class CheckpointFolder:
    """Checkpoints of one run: the newest `keep`, and the best one by metric, of which lower values are better."""

    def __init__(self, path: Path, *, keep: int) -> None:
        self.path, self.keep = path, keep
        path.mkdir(exist_ok=True)
        self._clear_remains()

    def all(self) -> list[Path]:
        """Checkpoints, oldest first."""
        return sorted((path for path in self.path.iterdir() if re.fullmatch(r"step-\d+", path.name)), key=step_of)

    def latest(self) -> Path | None:
        """Newest checkpoint."""
        return max(self.all(), key=step_of, default=None)

    def best(self) -> Path | None:
        """Checkpoint with the best metric, if any has one (the newest in a tie)."""
        rated = [(metric, path) for path in self.all() if (metric := metric_of(path)) is not None]
        return min(rated, key=lambda pair: (pair[0], -step_of(pair[1])), default=(0.0, None))[1]

    def set_damaged_aside(self) -> None:
        """Rename damaged checkpoints to `damaged-step-N`, with a warning each.

        Raises TutelageError if there are checkpoints but none is intact.
        """
        checkpoints, damaged = self.all(), dict[Path, str]()
        for path in reversed(checkpoints):  # those that are read: the newest intact one, and the best
            if not (reason := damage(path)):
                break
            damaged[path] = reason
        damaged |= {path: f"{NOTE} cannot be read" for path in checkpoints if path not in damaged and not _note(path)}
        best = self.best()
        if best is not None and best not in damaged and best != path and (reason := damage(best)):
            damaged[best] = reason
        if damaged and len(damaged) == len(checkpoints):
            each = "; ".join(f"{path.name}: {reason}" for path, reason in damaged.items())
            raise TutelageError(
                f"No checkpoint in {self.path} is intact ({each}). Restore the files from a copy, or start again with "
                "another --out."
            )
        for path, reason in damaged.items():
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
            log.warning(
                f"The checkpoint of step {step_of(path)} is damaged ({reason}): it is not used, and now {aside}."
            )

    def write(self, step: int, save: Callable[[Path], object], metric: float | None) -> Path:
        """Write the checkpoint of `step` with `save`, which fills a folder, and delete checkpoints beyond `keep`.

        Raises TutelageError if it cannot be written (a full disk): the partial checkpoint is removed and previous
        ones remain. Other errors of `save` propagate after the same removal.
        """
        place = self.path / f"step-{step}"
        partial = unfinished(place)
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            save(partial)
            note: dict[str, Any] = {
                "step": step,
                "metric": metric if metric is not None and math.isfinite(metric) else None,
            }
            files = list(_files(partial))
            with ThreadPoolExecutor() as pool:  # digests release the interpreter's lock
                digests = list(pool.map(_description, files))
            note["files"] = {str(path.relative_to(partial)): one for path, one in zip(files, digests, strict=True)}
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
        """Clean up after a crash: half-written or half-deleted folders, unfinished replacements."""
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
    """Temporary folder of a checkpoint while it is written."""
    return checkpoint.with_name(f".tmp-{checkpoint.name}")


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def metric_of(checkpoint: Path) -> float | None:
    """Metric of a checkpoint, if any."""
    metric = _note(checkpoint).get("metric")
    return float(metric) if isinstance(metric, int | float) else None


def damage(checkpoint: Path) -> str:
    """The first difference of a checkpoint's files from those that were written, in words; "" if there is none."""
    note = _note(checkpoint)
    if not note:
        return f"{NOTE} cannot be read"
    files = note.get("files", {})
    if not isinstance(files, dict):
        return f"{NOTE} cannot be read"
    for name, bytes_written in files.items():
        path = checkpoint / name
        try:
            if not path.is_file():
                return f"{name} is missing"
            if (size := path.stat().st_size) != bytes_written["bytes"]:
                return f"{name} has {counted(size, 'byte')} instead of {bytes_written['bytes']:,}"
            if _description(path) != bytes_written:
                return f"{name} has other content than was written"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return ""


def _note(checkpoint: Path) -> dict[str, Any]:
    """The content of the note; empty if it is missing or damaged."""
    try:
        note = json.loads((checkpoint / NOTE).read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _description(file: Path) -> dict[str, int | str]:
    with file.open("rb") as opened:
        return {"bytes": file.stat().st_size, "sha256": hashlib.file_digest(opened, "sha256").hexdigest()}


def _is_about_writing(error: BaseException) -> bool:
    """Whether an error is about writing to disk. safetensors and torch have their own error types for it."""
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
    return sum(path.stat().st_size for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sync(folder: Path) -> None:
    """Sync a folder and its content to disk, files before folders."""
    for path in _files(folder):
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

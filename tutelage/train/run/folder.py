"""Run directory: the output of a training command, from which it can resume.

    config.json      format, settings, versions, git revision, seed, date, command, a fingerprint of the data
    metrics.jsonl    one object per step: {"step", "seconds", ...}
    samples.jsonl    {"step", "prompt", "completion", ...}
    checkpoints/     step-N, written atomically
    trackers.json    progress of the trackers, if any
    summary.json     final metrics; present only if the run is finished

`kill -9` at any moment loses at most the steps since the last checkpoint. With several ranks, rank 0 opens the run;
the others use a `Follower`.
"""

import datetime
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Self

from tutelage.base.config import difference, to_mapping, with_defaults
from tutelage.base.config.bases import INCIDENTAL
from tutelage.base.config.files import RUN_FORMAT, read_mapping, write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.version import __version__
from tutelage.engines.ranks.ranks import ALONE, PeerError, Ranks
from tutelage.train.run.checkpoints import CheckpointFolder, step_of, unfinished
from tutelage.train.run.json_lines import JsonLines, json_text, keep_until, read_lines
from tutelage.train.run.trackers import SEEN, WRITTEN, Past, Tracker


class Run:
    """Open run directory, locked against other processes until closed. Create with `Run.open`."""

    def __init__(self, path: Path, lock: IO[str], checkpoints: CheckpointFolder, ranks: Ranks, resumes: bool) -> None:
        self.path = path
        self.ranks = ranks
        """Ranks that compute the run; this process writes it."""
        self._lock, self._checkpoints, self._resumes = lock, checkpoints, resumes
        self._trackers: list[Tracker] = []
        if not self.finished:
            checkpoints.set_damaged_aside()
        date = json.loads((path / "config.json").read_text(encoding="utf-8")).get("date")
        self.date = datetime.date.fromisoformat(date) if date else datetime.date.today()
        """Date on which the run began, which chat templates write."""
        latest = checkpoints.latest()
        reached = step_of(latest) if latest else -1
        self.start = max(0, reached)
        """Step to resume after: the latest checkpoint when opened, or 0 for a new run."""
        last = math.inf if self.finished else reached
        logged = [step for row in read_lines(path / "metrics.jsonl") if isinstance(step := row.get("step"), int)]
        rows = keep_until(path / "metrics.jsonl", last)
        keep_until(path / "samples.jsonl", last)
        self._metrics = JsonLines(path / "metrics.jsonl")
        self._samples = JsonLines(path / "samples.jsonl")
        self.last = rows[-1] if rows else {}
        """Metrics of the step to resume after; empty for a new run."""
        self.past = Past(max(logged, default=-1), reached)
        """Progress of the trackers."""
        seconds = self.last.get("seconds", 0.0)
        self._began = time.monotonic() - (seconds if isinstance(seconds, int | float) else 0.0)

    @classmethod
    def open(
        cls,
        path: Path | str,
        settings: object,
        *,
        resume: bool = False,
        data: str = "",
        keep: int = 2,
        ranks: Ranks = ALONE,
    ) -> "Run":
        """Start a run in a new or empty folder, or open an existing one.

        A finished run opens as it is (see `finished`). An unfinished one requires `resume` and continues after its
        latest intact checkpoint, with a warning about damaged ones: later lines of metrics.jsonl and samples.jsonl are
        dropped. `data` is a fingerprint of the rows that the run reads, or "". The newest `keep` checkpoints are kept.

        Without `resume`, a run that ended before its first step starts from scratch with the new settings.

        Raises TutelageError if the folder is in use, is not a run, has another format, or belongs to other settings
        (naming the keys that differ) or other data, for an unfinished run without `resume`, and for one whose
        checkpoints are all damaged.
        """
        path = Path(path)
        lock = _lock(path)
        try:
            _check_or_begin(path, settings, data, resume)
            return cls(path, lock, CheckpointFolder(path / "checkpoints", keep=keep), ranks, resume)
        except BaseException:
            lock.close()
            raise

    def add_tracker(self, tracker: Tracker) -> None:
        """Send all further metrics to a tracker."""
        self._trackers.append(tracker)

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return (self.path / "summary.json").exists()

    @property
    def resume_command(self) -> str:
        """Command that resumes this run: the same command, with --resume if it is required."""
        words = _command()
        return shlex.join(words if self._resumes else [*words, "--resume"])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append a line to metrics.jsonl and send it to the trackers."""
        self._check_open()
        seconds = round(time.monotonic() - self._began, 3)
        numbers = {name: value if isinstance(value, int) else float(value) for name, value in metrics.items()}
        self._metrics.append({"step": step, "seconds": seconds, **numbers})
        for tracker in self._trackers:
            tracker(step, numbers)

    def samples(self, step: int, rows: Iterable[Mapping[str, object]]) -> None:
        """Append rows such as {"prompt", "completion", "score"} to samples.jsonl."""
        self._check_open()
        for row in rows:
            self._samples.append({"step": step, **row})

    def checkpoint(
        self,
        step: int,
        save: Callable[[Path], object],
        metric: float | None = None,
        share: Callable[[Path], object] | None = None,
    ) -> Path:
        """Write a checkpoint of `step`: `save` fills its folder, then every rank calls `share`.

        The best checkpoint by `metric` is kept in addition to the newest. Raises TutelageError if it cannot be
        written; previous checkpoints remain.
        """
        self._check_open()

        def both(folder: Path) -> None:
            save(folder)
            if share is not None:
                share(folder)

        return self._checkpoints.write(step, both, metric)

    def latest(self) -> Path | None:
        """Newest checkpoint; `step_of` returns its step."""
        return self._checkpoints.latest()

    def best(self) -> Path | None:
        """Checkpoint with the best metric, if any has one."""
        return self._checkpoints.best()

    def finish(self, summary: Mapping[str, object]) -> None:
        """Write summary.json, which marks the run as finished."""
        self._check_open()
        write_atomically(self.path / "summary.json", json_text(summary))

    def close(self) -> None:
        """Unlock the folder."""
        self._metrics.close()
        self._samples.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.finished:
            raise RuntimeError(f"the run in {self.path} is finished; nothing may be added to it")


@dataclass(frozen=True)
class Opening:
    """State of the run when rank 0 opened it, for the other ranks."""

    path: Path
    start: int
    last: dict[str, Any]
    finished: bool
    latest: Path | None
    date: datetime.date

    @classmethod
    def of(cls, run: Run) -> Self:
        """State of a newly opened run."""
        return cls(run.path, run.start, run.last, run.finished, run.latest(), run.date)


class Follower(Run):
    """Read-only view of the run of rank 0.

    It reflects the run when rank 0 opened it. Checkpoints are read from a disk shared by all ranks.
    """

    def __init__(self, opening: Opening, ranks: Ranks) -> None:
        self.path, self.start, self.last, self.ranks = opening.path, opening.start, opening.last, ranks
        self.date, self._opening = opening.date, opening

    @property
    def finished(self) -> bool:
        """Whether the run was finished when opened."""
        return self._opening.finished

    @property
    def resume_command(self) -> str:
        """Empty: rank 0 prints the command."""
        return ""

    def latest(self) -> Path | None:
        """Newest checkpoint when the run was opened."""
        return self._opening.latest

    def best(self) -> Path | None:
        """Raises RuntimeError: use `run.ranks.shared(run.best)`."""
        raise RuntimeError("only rank 0 knows the best checkpoint: use run.ranks.shared(run.best)")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Do nothing: rank 0 writes the metrics."""

    def samples(self, step: int, rows: Iterable[Mapping[str, object]]) -> None:
        """Do nothing: rank 0 writes the samples."""

    def checkpoint(
        self,
        step: int,
        save: Callable[[Path], object],
        metric: float | None = None,
        share: Callable[[Path], object] | None = None,
    ) -> Path:
        """Write the `share` of this rank; rank 0 writes the rest. Returns the folder of the checkpoint.

        Raises PeerError if it cannot be written; rank 0 reports the cause.
        """
        place = self.path / "checkpoints" / f"step-{step}"
        if share is not None:
            try:
                share(unfinished(place))
            except OSError as error:
                raise PeerError("the checkpoint could not be written") from error
        return place

    def finish(self, summary: Mapping[str, object]) -> None:
        """Do nothing: rank 0 writes the summary."""

    def close(self) -> None:
        """Do nothing: a follower has no open files."""


def _lock(path: Path) -> IO[str]:
    """Lock a folder, created if necessary, until it is closed.

    The kernel releases the lock when the process ends, so it is never stale.

    Raises TutelageError on Windows, which has no such locks, and if the folder is in use or not writable.
    """
    try:
        import fcntl
    except ModuleNotFoundError as error:
        raise TutelageError(
            "Runs need file locks, which Linux and macOS have and this system does not. On Windows, run "
            "this command under WSL, the Windows Subsystem for Linux."
        ) from error
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise TutelageError(
            f"Cannot write to the output folder {path}: {error.strerror}. Choose another --out."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise TutelageError(
            f"The folder {path} is in use by another process (pid {holder}): wait for it, or choose another --out."
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _check_or_begin(path: Path, settings: object, data: str, resume: bool) -> None:
    config = path / "config.json"
    left = not resume and config.exists() and _left_at_once(path)
    if left or not config.exists():
        others = sorted(file.name for file in path.iterdir() if not file.name.startswith("."))
        if others and not left:
            raise TutelageError(
                f"The folder {path} holds other things than a run ({', '.join(others[:3])}): choose another --out."
            )
        (path / SEEN).unlink(missing_ok=True)
        write_atomically(config, json_text(_description(settings) | ({"data": data} if data else {})))
        return
    if any(path.glob("*.safetensors")) or any(path.glob("pytorch_model*.bin")):
        raise TutelageError(f"The folder {path} holds a model, not a run: choose another --out.")
    stored = with_defaults(type(settings), read_mapping(config))
    differing = [one for one in difference(stored, settings) if not {one.key, one.key.split(".")[0]} & set(INCIDENTAL)]
    if differing:
        raise TutelageError(
            f"The folder {path} belongs to a run with other settings (stored against given): "
            f"{', '.join(map(str, differing))}. Choose another --out, or give the stored settings with "
            f"--config {config}."
        )
    if not resume and not (path / "summary.json").exists():
        raise TutelageError(
            f"The folder {path} holds an unfinished run: add --resume to continue it, or choose another --out."
        )
    began_with = json.loads(config.read_text(encoding="utf-8")).get("data", "none")
    if data and began_with != data:
        raise TutelageError(
            f"The data changed since the run in {path} began: it read {began_with}, and now there are {data}. Use the "
            "original rows, in their order, or choose another --out."
        )


def _left_at_once(path: Path) -> bool:
    """Whether a run ended before its first step, for example because its model could not be loaded. Such a run may
    restart with other settings."""
    names = {file.name for file in path.iterdir()} - {".lock", "config.json"}
    logs = {"metrics.jsonl", "samples.jsonl"}
    return names <= logs | {"checkpoints", *WRITTEN} and not (
        any((path / name).stat().st_size for name in names & logs)
        or ("checkpoints" in names and any((path / "checkpoints").iterdir()))
    )


def _description(settings: object) -> dict[str, object]:
    versions = {"python": platform.python_version(), "tutelage": __version__}
    for package in ("torch", "transformers", "peft", "numpy"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "format": RUN_FORMAT,
        "settings": to_mapping(settings),
        "versions": versions,
        "revision": _revision(),
        "seed": getattr(settings, "seed", None),
        "date": datetime.date.today().isoformat(),
        "command": _command(),
    }


def _command() -> list[str]:
    """Command as typed; `python -m tutelage` has a file name in its place."""
    name = Path(sys.argv[0]).name
    return ["tutelage" if name == "__main__.py" else name, *sys.argv[1:]]


@cache
def _revision() -> str | None:
    """Git revision of the code that this process has loaded, if it is a checkout; "+" marks uncommitted changes."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()

"""Run directory for ranks that do not write it."""

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tutelage.engines.ranks.ranks import PeerError, Ranks
from tutelage.train.run.checkpoints import unfinished
from tutelage.train.run.folder import Run


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

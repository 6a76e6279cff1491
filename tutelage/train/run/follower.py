"""A run directory as the ranks see it that do not write it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tutelage.engines.ranks.ranks import PeerError, Ranks
from tutelage.train.run.checkpoints import unfinished
from tutelage.train.run.folder import Run


@dataclass(frozen=True)
class Opening:
    """What rank 0 found when it opened a run, for the other ranks."""

    path: Path
    start: int
    last: dict[str, Any]
    finished: bool
    latest: Path | None

    @classmethod
    def of(cls, run: Run) -> Self:
        """The state of a run that was just opened."""
        return cls(run.path, run.start, run.last, run.finished, run.latest())


class Follower(Run):
    """The run of rank 0 on another rank, which writes nothing.

    It knows the run as it was when rank 0 opened it. Checkpoints are read from a disk that all ranks share.
    """

    def __init__(self, opening: Opening, ranks: Ranks) -> None:
        self.path, self.start, self.last, self.ranks = opening.path, opening.start, opening.last, ranks
        self._opening = opening

    @property
    def finished(self) -> bool:
        """Whether the run was finished when it was opened."""
        return self._opening.finished

    def latest(self) -> Path | None:
        """The newest checkpoint when the run was opened."""
        return self._opening.latest

    def best(self) -> Path | None:
        """Raises RuntimeError: only rank 0 knows. Use `run.ranks.shared(run.best)`."""
        raise RuntimeError("only rank 0 knows the best checkpoint: use run.ranks.shared(run.best)")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Rank 0 writes the metrics."""

    def samples(self, step: int, rows: Iterable[Mapping[str, object]]) -> None:
        """Rank 0 writes the samples."""

    def checkpoint(
        self,
        step: int,
        save: Callable[[Path], object],
        metric: float | None = None,
        share: Callable[[Path], object] | None = None,
    ) -> Path:
        """Rank 0 writes the checkpoint but for the `share` of this rank. Returns its folder.

        Raises PeerError where it cannot be written, which rank 0 explains.
        """
        place = self.path / "checkpoints" / f"step-{step}"
        if share is not None:
            try:
                share(unfinished(place))
            except OSError as error:
                raise PeerError("the checkpoint could not be written") from error
        return place

    def finish(self, summary: Mapping[str, object]) -> None:
        """Rank 0 writes the summary."""

    def close(self) -> None:
        """A follower holds no file open."""

"""Weight synchronisation with servers, through a folder per version or directly; every server is then tested."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from tutelage.base.config.bases import SyncName
from tutelage.base.errors import TutelageError
from tutelage.data.transport import HttpRefusal, Unanswered
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.api import Handover
from tutelage.rollout.server.fleet import Fleet
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.rollout_servers import RolloutServer


class WeightSync:
    """Transfers the policy's weights to servers through folders below `folder`, which every server can read.

    `keep` versions stay loaded. With `wait`, a server finishes running requests before it loads new weights. A
    `direct` handover writes no folder and does not call `save`. Versions have labels that are unique to the run, so
    that weights of another run are detected.
    """

    def __init__(
        self,
        how: SyncName,
        save: Callable[[Path], object],
        folder: Path,
        probe: Probe,
        *,
        keep: int = 1,
        wait: bool = True,
        direct: Handover | None = None,
    ) -> None:
        self.how, self.save, self.folder, self.probe = how, save, folder.resolve(), probe
        self.keep, self.wait, self.direct = keep, wait, direct
        self.versions: dict[str, int] = {}
        """Version of each label that servers hold, oldest first. Replaced, never mutated, because other threads read
        it."""
        self.adapter = ""
        """Name of the adapter that every server has; "" for none."""
        self._run = uuid.uuid4().hex[:8]

    def handover(self, server: RolloutServer) -> Handover:
        """Weight transfer for a server. Raises TutelageError, with the required options, if there is none."""
        offered = (one for one in server.kind.handovers if one.adapters == (self.how == "lora"))
        handover = self.direct or next(offered, None)
        if handover is None:
            raise TutelageError(
                f"{server.url} is {server.release}, which cannot load new weights: only "
                "completions of a fixed model can come from it."
            )
        if not handover.is_possible(server.connection):
            raise TutelageError(
                f"The server {server.url} cannot load weights by --sync {self.how}. Start it with {handover.needs}."
            )
        return handover

    def push(self, fleet: Fleet, version: int) -> None:
        """Write the weights, make every server load them, and test each. Raises RolloutError if one fails."""
        label = f"{self._run}-{version}"
        place = self.folder / label
        if self.direct is None:
            self._write(place)
        self.versions = {**self.versions, label: version}
        fleet.each(lambda server: self._give(server, place, label))
        if self.how != "lora":  # an adapter may be reloaded, if a server has no room for all of them
            shutil.rmtree(place, ignore_errors=True)
        else:
            self.adapter = label
        self._prune(fleet)

    def _write(self, place: Path) -> None:
        try:
            place.mkdir(parents=True, exist_ok=True)
            self.save(place)
        except OSError as error:
            raise RolloutError(
                f"The weights cannot be written to {place}: {error.strerror}. Choose another --sync-folder."
            ) from error

    def _give(self, server: RolloutServer, place: Path, label: str) -> None:
        handover = self.handover(server)
        try:
            handover.give(server.connection, place, label, wait=self.wait)
        except HttpRefusal as error:
            reads = f"It has to read {place}, so it needs the same path there (--sync-folder), and must"
            raise RolloutError(
                f"{error} {reads if self.direct is None else 'It must'} have been started with {handover.needs}. "
                f"{handover.after_failure}".rstrip()
            ) from error
        self.probe.check(server, label if handover.adapters else "")

    def _prune(self, fleet: Fleet) -> None:
        """Drop versions beyond the newest `keep`."""
        for label in list(self.versions)[: -self.keep]:
            self.versions = {name: kept for name, kept in self.versions.items() if name != label}
            for server in fleet.live:
                try:
                    self.handover(server).drop(server.connection, label)
                except (HttpRefusal, Unanswered):
                    continue  # a restarted server does not have it
            shutil.rmtree(self.folder / label, ignore_errors=True)

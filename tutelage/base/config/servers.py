"""The settings of verbs whose answers may come from servers."""

from dataclasses import dataclass
from typing import Literal

from tutelage.base.config.pieces import Lora
from tutelage.base.errors import TutelageError

SyncName = Literal["lora", "disk", "nccl"]
"""How servers get new weights: as an adapter, as a whole model by a folder, or from GPU to GPU."""


@dataclass(frozen=True, kw_only=True)
class AnswerServers:
    """Servers that write answers with a model that stays as it is."""

    rollouts: str = ""
    """Addresses of vLLM or SGLang servers that write the answers, joined by commas, such as http://localhost:8000; when
    empty they are written in this process. A key, if the servers want one, is read from TUTELAGE_ENDPOINT_KEY."""


@dataclass(frozen=True, kw_only=True)
class RolloutServers(AnswerServers):
    """Servers that write answers with a policy that is being trained."""

    sync: Literal["auto", SyncName] = "auto"
    """How the servers of --rollouts get new weights: lora, as an adapter; disk, as a whole model; nccl, as a whole
    model from GPU to GPU; auto takes lora where --lora.rank is set, else disk."""
    sync_folder: str = ""
    """Folder in which new weights wait for the servers, which see it at the same path; one in --out when empty."""

    @property
    def sync_by(self) -> SyncName:
        """How new weights get to the servers."""
        if self.sync != "auto":
            return self.sync
        return "lora" if self._rank else "disk"

    @property
    def _rank(self) -> int:
        lora = getattr(self, "lora", Lora())
        return int(lora.rank)

    def check_servers(self) -> None:
        """Raise TutelageError for settings that contradict each other or do nothing."""
        if not self.rollouts and (self.sync != "auto" or self.sync_folder):
            raise TutelageError(
                "--sync and --sync-folder say how weights get to the servers of --rollouts, and there are none: leave "
                "them out."
            )
        if self.sync == "lora" and not self._rank:
            raise TutelageError(
                "--sync lora hands an adapter over, but --lora.rank is 0, which trains every weight. Use --sync disk."
            )
        if self.sync == "nccl" and self._rank:
            raise TutelageError(
                "--sync nccl sends every weight, and --lora.rank trains an adapter: use --sync lora, which sends that "
                "alone."
            )
        if self.sync == "nccl" and self.sync_folder:
            raise TutelageError("--sync nccl writes no folder: leave --sync-folder out.")

"""Settings of the export of a run to a trainer for clusters."""

from dataclasses import dataclass
from typing import Literal

from tutelage.config.limits import at_least
from tutelage.workflows.settings.improve import ImproveSettings


@dataclass(frozen=True, kw_only=True)
class ExportSettings(ImproveSettings):
    """Write a run of improve for verl or OpenRLHF, which train on many machines: its prompts, its reward and a launch
    script. It takes the flags of improve; --out is the folder that is written."""

    to: Literal["verl", "openrlhf"]
    """The trainer: verl 0.9 or OpenRLHF 0.11."""
    gpus: int = 8
    """GPUs of the whole run."""
    gpus_per_node: int = 8
    """GPUs of one machine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, gpus=1, gpus_per_node=1)

    @property
    def nodes(self) -> int:
        """Machines of the run."""
        return -(-self.gpus // self.gpus_per_node)

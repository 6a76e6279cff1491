"""Settings of a plan: its devices, combined with the settings of each training command."""

import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutelage.base.config.bounds import at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.table import COMMANDS

RESULT = 64
"""Tokens that an episode is planned to read between two turns."""


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Devices that a run is planned for, and lengths of its texts."""

    gpu: str = ""
    """GPU of the table: b200, h200, h100, a100-80, a100-40, mi300x, l40s, l4 or 4090. If omitted, this machine is
    measured."""
    gpus: int = 1
    """Number of GPUs, one process each, those that serve included."""
    gpus_per_node: int = 8
    """GPUs per machine."""
    network: float = 400.0
    """Gbit/s per GPU between machines."""
    servers: int = 0
    """GPUs that generate responses as servers (vLLM or SGLang, in bf16) instead of the training GPUs."""
    price: float = 0.0
    """Price per GPU and hour, in any currency; 0 prints no cost."""
    prompt_tokens: int = 0
    """Mean tokens of a prompt; 0 counts them in the data with the model's tokenizer."""
    response_tokens: int = 0
    """Mean tokens of a response, in episodes of a turn; 0 counts them in the data, or uses the limit for generated
    responses."""
    mean_turns: float = 0.0
    """Mean turns of an episode; 0 for their limit, --turns."""
    result_tokens: int = RESULT
    """Mean tokens that an episode reads between two turns, such as the result of a tool."""

    def __post_init__(self) -> None:
        at_least(self, gpus=1, gpus_per_node=1, servers=0, price=0, prompt_tokens=0, response_tokens=0)
        at_least(self, mean_turns=0, result_tokens=0)
        if not self.network > 0:
            raise TutelageError(f"--network is {self.network}; it must be above 0.")
        if self.servers >= self.gpus:
            raise TutelageError(
                f"--servers {self.servers} of --gpus {self.gpus} leaves no GPU to train on: give more --gpus."
            )
        if not self.gpu and (self.gpus > 1 or self.servers):
            raise TutelageError("--gpus and --servers plan for GPUs of the table: name one with --gpu.")

    def check_lengths(self, *, has_episodes: bool) -> None:
        """Raise TutelageError for lengths of episodes without episodes."""
        if not has_episodes and (self.mean_turns or self.result_tokens != RESULT):
            raise TutelageError("--mean-turns and --result-tokens are about episodes; this run plays none: omit them.")


@dataclass(frozen=True, kw_only=True)
class PlanFlags(PlanSettings):
    """Plan a run: memory per GPU, time by phase, bottleneck, cheapest setting that fits, cost. Takes the flags of the
    run. `tutelage COMMAND ... --dry-run` is equivalent."""

    out: Path = Path("unused")
    """Unused by a plan."""
    json: bool = False
    """Print the plan as JSON: bytes, seconds, operations."""


def _plan_of(name: str, run: type[Any]) -> type[Any]:
    """Create the settings class of a plan for a run of the command `name`."""

    def check(self: Any) -> None:
        PlanSettings.__post_init__(self)
        run.__post_init__(self)

    doc = f"Plan a run of {name}, by its own flags."
    body = {"__post_init__": check, "__doc__": doc, "__module__": __name__}
    cls = types.new_class(f"Plan{run.__name__}", (PlanFlags, run), exec_body=lambda space: space.update(body))
    return dataclass(frozen=True, kw_only=True)(cls)


SUBCOMMANDS = {command.name: _plan_of(command.name, command.settings) for command in COMMANDS if command.trains}

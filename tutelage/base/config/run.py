"""The settings of verbs that write a run directory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tutelage.base.config.limits import a_seed, at_least
from tutelage.base.config.pieces import Checkpoints


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Where a run is written, and how it is kept."""

    out: Path
    """Folder of the run: settings, metrics, samples, checkpoints, the final model."""
    seed: int = 0
    """Seed of every random choice; the same seed on the same machine gives the same run."""
    resume: bool = False
    """Go on with an unfinished run in this folder from its latest checkpoint."""
    quiet: bool = False
    """Show no progress and no tables."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    trackers: tuple[str, ...] = ()
    """Where else the metrics go: wandb, tensorboard, trackio, mlflow, or module:NAME of your own."""
    profile: bool = False
    """Record where the time of three steps goes: profile.txt, a table, and trace.json, for Perfetto."""

    def __post_init__(self) -> None:
        a_seed(self)


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """What a training run computes twice to hold less in memory. It computes the same."""

    activation_checkpointing: bool = False
    """Keep one hidden state per layer and token, and compute each layer again in the backward pass: much less memory,
    about a third more time. Computed by the plain engine."""


@dataclass(frozen=True, kw_only=True)
class ShardSettings:
    """Where the weights of a run over several processes lie."""

    shard: Literal["none", "full", "hybrid"] = "none"
    """none: every process holds all weights, gradients and moments; full: its share of them, and layers are gathered
    from all while they compute (FSDP); hybrid: the processes of a machine share them, and every machine has a copy.
    Computed by the plain engine."""


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How many examples make a step, and how many tokens are held at once."""

    batch_size: int = 16
    """Examples of one optimiser step."""
    tokens_at_once: int | None = None
    """Padded tokens of one forward pass; as many as there is memory for when left out. Smaller needs less memory and
    gives the same result. Halved where memory runs out all the same."""
    max_length: int = 1024
    """Tokens of prompt and response together; longer ones are cut and counted."""

    def __post_init__(self) -> None:
        at_least(self, batch_size=1, max_length=2)
        if self.tokens_at_once is not None:
            at_least(self, tokens_at_once=1)

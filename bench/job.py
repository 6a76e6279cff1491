"""What a job is, and what its two processes are told and give back."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.flops import Decoding
from bench.shapes import SHAPES, Shape


@dataclass(frozen=True)
class Place:
    """Where a job finds its model and data, and how often it repeats."""

    world: Path
    """Folder of the texts and of one folder for each model."""
    job: Path
    """Folder of the job's own data."""
    out: Path
    """Empty folder for what a side writes."""
    shape: Shape
    steps: int
    """Steps that are measured, after one that is not."""
    seed: int = 0
    profile: bool = False
    """Whether our side also writes where its time goes."""
    rated: bool = True
    """Whether the machine's rate may be measured between the steps."""
    precision: str = ""
    """That of the job; "" for the usual one of the device."""

    @property
    def model(self) -> str:
        """Folder of the model."""
        return str(self.world / self.shape.name)

    @property
    def device(self) -> str:
        """cpu or cuda."""
        return self.shape.device

    @property
    def dtype(self) -> str:
        """That of the job, or else float32 on a processor, bf16 on a GPU."""
        return self.precision or ("bf16" if self.device == "cuda" else "float32")

    def facts(self) -> dict[str, Any]:
        """What `prepare` wrote down about the data."""
        told: dict[str, Any] = json.loads((self.job / "facts.json").read_text())
        return told

    def note(self, **facts: object) -> None:
        """Write down what the other processes need to know about the data."""
        (self.job / "facts.json").write_text(json.dumps(facts))


@dataclass(frozen=True)
class Measurement:
    """What a side tells: seconds of each measured step, of parts of it by name, and whatever else is worth a number."""

    seconds: list[float]
    parts: Mapping[str, list[float]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    """Operations per second of a matrix product around each step's update, where they were asked for: the machine's
    speed changes from one second to the next."""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Needs:
    """What one step needs at least. A part of a step is named as in `Measurement.parts`; "" is the whole of it."""

    update: float = 0.0
    """Operations of the update, if it had to compute everything by itself."""
    updating: str = ""
    decoding: Decoding | None = None
    sampling: str = ""
    tokens: float = 0.0
    """Tokens of a step, for the rate: those trained on, or those sampled."""
    judging: float = 0.0
    """Operations of the models that judge what was sampled."""
    kept: float = 0.0
    """Operations that each token kept from sampling spares the update (`tokens/kept` in `Measurement.facts`)."""

    @property
    def operations(self) -> float:
        """Of a whole step, if its update had to compute everything by itself."""
        return (self.decoding.whole if self.decoding else 0.0) + self.judging + self.update


@dataclass(frozen=True)
class Job:
    """A thing that both sides do. `about` says what, `settings` how the peer is set."""

    name: str
    about: str
    peer: str
    settings: str
    environment: str
    """The peer's environment: the name of its list of packages beside this file."""
    shape: str
    prepare: Callable[[Place], None]
    ours: Callable[[Place], Measurement]
    theirs: Callable[[Place], Measurement]
    needs: Callable[[Place], Needs]
    faster: float | None = None
    """The peer's time over ours that is aimed at."""
    leaner: float | None = None
    """Our peak memory over the peer's that is aimed at."""
    steps: int = 4
    rounds: int = 2
    """How often each side runs, in turn with the other: a machine that is shared changes its speed within minutes."""
    precision: str = ""
    """float32 or bf16, of both sides; "" for the usual one of the shape's device."""

    def place(self, world: Path, out: Path) -> Place:
        """The folders of this job in a world."""
        folders = (world, world / "jobs" / self.name, out)
        return Place(*folders, SHAPES[self.shape], self.steps, precision=self.precision)

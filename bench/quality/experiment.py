"""What an experiment is: parts that are run one by one on a real model, and a section of docs/results.md from them."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Figures = Mapping[str, Any]
"""What a part has found, as JSON values: all numbers that the section and its drawings show."""


@dataclass(frozen=True)
class Part:
    """One piece of an experiment that is finished or not there: a run of one method with one seed, say."""

    name: str
    settings: Mapping[str, Any]
    """Everything that decides the outcome, as JSON values."""
    seed: int = 0

    @property
    def folder(self) -> str:
        """Name of the folder of its run."""
        return f"{self.name}-{self.seed}-{self.fingerprint()[:8]}"

    def fingerprint(self, *others: str) -> str:
        """A hash of name, seed, settings and what else decides the outcome."""
        told = json.dumps([self.name, self.seed, self.settings, *others], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Place:
    """Where an experiment finds its model and data, and where its runs are written."""

    model: str
    """Folder of a chat model."""
    data: str
    """A file of preferences, which is read and not kept."""
    runs: Path
    """Folder of the runs; one that was interrupted goes on from there."""
    peers: str = ""
    """The interpreter of the environment in which TRL is installed."""

    def run(self, part: Part) -> Path:
        """Folder of the run of a part."""
        return self.runs / part.folder


@dataclass(frozen=True)
class Line:
    """A finished part with how it was made: a line of the experiment's file of results."""

    part: str
    seed: int
    settings: Mapping[str, Any]
    fingerprint: str
    model: str
    data: str
    """Digest of the file of data."""
    figures: Figures
    seconds: float
    processor_seconds: float
    date: str
    machine: str
    threads: int

    @property
    def of(self) -> Part:
        """The part that it belongs to."""
        return Part(self.part, self.settings, self.seed)


@dataclass(frozen=True)
class Experiment:
    """One published claim, tried."""

    name: str
    about: str
    """One line for the terminal."""
    parts: Callable[[int], Sequence[Part]]
    """The parts of one seed."""
    run: Callable[[Part, Place], Figures]
    section: Callable[[Sequence[Line]], str]
    """The section of docs/results.md: what was claimed, what was seen."""
    figures: Callable[[Sequence[Line]], Mapping[str, str]]
    """The drawings of the section, as SVG, by the names of their files without ending."""
    enough: Callable[[Sequence[Line]], bool] = bool
    """Whether the parts that are finished make a section."""
    world: bool = False
    """Whether it is on the demonstration's world, without the model and the data."""

    def current(self, lines: Sequence[Line]) -> list[Line]:
        """The lines of parts as they are defined now, in the order of the parts, seed by seed."""
        known = {(line.part, line.seed, line.of.fingerprint()): line for line in lines}
        seeds = sorted({line.seed for line in lines})
        wanted = [part for seed in seeds for part in self.parts(seed)]
        keys = [(part.name, part.seed, part.fingerprint()) for part in wanted]
        return [known[key] for key in keys if key in known]


def of(lines: Sequence[Line], name: str) -> list[Line]:
    """The lines of the parts of one name, over all seeds."""
    return [line for line in lines if line.part == name]


# Files of results: a line of JSON for each finished part -------------------------------------------------------------


def read_lines(file: Path) -> list[Line]:
    """The lines of a file; none where it is not there."""
    if not file.is_file():
        return []
    return [Line(**json.loads(text)) for text in file.read_text(encoding="utf-8").splitlines()]


def append_line(file: Path, line: Line) -> None:
    """Add a line, in place of an earlier one of the same fingerprint."""
    kept = [one for one in read_lines(file) if one.fingerprint != line.fingerprint]
    texts = [json.dumps(asdict(one)) + "\n" for one in (*kept, line)]
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    unfinished.write_text("".join(texts), encoding="utf-8")
    os.replace(unfinished, file)


def digest(file: str) -> str:
    """A hash of a file's bytes."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]

"""What an experiment is: a run on a real model whose outcome was published, and its part of docs/results.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]
"""The outcome of an experiment as JSON values: all figures that its section shows, and the settings behind them."""


@dataclass(frozen=True)
class Place:
    """Where an experiment finds its model and data, and where its runs are written."""

    model: str
    """What `--model` takes: a folder, a .gguf file, or smollm2."""
    data: str
    """A file of preferences, which is read and not kept."""
    runs: Path
    """Folder of the runs; one that was interrupted goes on from there."""
    seeds: int = 1
    """Runs of each setting."""


@dataclass(frozen=True)
class Experiment:
    """One published claim, tried."""

    name: str
    about: str
    """One line for the terminal."""
    run: Callable[[Place], Result]
    section: Callable[[Result], str]
    """The section of docs/results.md: what was claimed, what was seen, by which command."""
    figure: Callable[[Result], str]
    """The drawing beside it, as SVG."""

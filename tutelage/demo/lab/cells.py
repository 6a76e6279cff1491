"""The cells of an experiment: run one by one, skipped when they are done, never thrown away silently."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutelage.base.config import identity
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.train.run.interrupt import Interrupted
from tutelage.train.run.json_lines import json_text, read_lines

log = logging.getLogger(__name__)

CELL, SUMMARY = ".cell.json", "summary.json"


@dataclass(frozen=True)
class Cell:
    """One part of an experiment. `settings` (dataclasses) decide what it does; `run` does it in a folder, or goes on
    with what it finds there, and returns the figures for `summary.json`."""

    name: str
    title: str
    settings: tuple[object, ...]
    run: Callable[[Path], Mapping[str, Any]]


@dataclass(frozen=True)
class CellResult:
    """What a finished cell left in its folder: its figures, its measurements by step, its sampled answers."""

    place: Path
    title: str
    figures: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The name of the cell, which is that of its folder."""
        return self.place.name

    def column(self, name: str) -> list[float]:
        """One measurement over the steps; NaN where it is missing."""
        return [_number(row.get(name)) for row in self.steps]


def run_cells(folder: Path, start: str, cells: Sequence[Cell]) -> list[CellResult]:
    """Run the cells that are not done yet, each announced by a remark. `start` is the fingerprint of the demonstration
    that all cells begin with.

    Raises TutelageError when the folder holds a cell of this name that was made with other settings or another start.
    """
    for number, cell in enumerate(cells, 1):
        place = folder / cell.name
        _claim(place, cell, start)
        if (place / SUMMARY).is_file():
            log.info(f"{cell.title} ({number} of {len(cells)}): done already")
            continue
        log.info(f"{cell.title} ({number} of {len(cells)})")
        try:
            with phase(cell.title):
                figures = cell.run(place)
        except Interrupted as stopped:
            raise Interrupted("Stopped; what is finished is kept, and the same command goes on.") from stopped
        write_atomically(place / SUMMARY, json_text(figures))
    return [read_cell(folder / cell.name, cell.title) for cell in cells]


def read_cell(place: Path, title: str) -> CellResult:
    """What a finished cell left in its folder."""
    return CellResult(
        place=place,
        title=title,
        figures=json.loads((place / SUMMARY).read_text(encoding="utf-8")),
        steps=read_lines(place / "metrics.jsonl"),
        samples=read_lines(place / "samples.jsonl"),
    )


def _claim(place: Path, cell: Cell, start: str) -> None:
    """Write down whose folder this is, or see that it is this cell's."""
    settings = [identity(settings) for settings in cell.settings]
    text = json.dumps([start, cell.name, settings], sort_keys=True, default=str)
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    note = place / CELL
    if not note.is_file():
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(note, json_text({"fingerprint": mark, "start": start, "settings": settings}))
    elif json.loads(note.read_text(encoding="utf-8")).get("fingerprint") != mark:
        raise TutelageError(
            f"{place} was made with other settings, or from another demonstration. Choose another --out, or delete "
            "that folder."
        )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")

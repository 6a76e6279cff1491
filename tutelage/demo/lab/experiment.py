"""Experiments: cells that leave data, then a page about the data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tutelage.demo.lab.cells import Cell, CellResult, run_cells
from tutelage.demo.lab.page import LabPage, write_data, write_page
from tutelage.demo.lab.start import Start

S = TypeVar("S")


@dataclass(frozen=True)
class ExperimentSetting(Generic[S]):
    """The setting of an experiment: the demonstration to begin from, the size, the seed."""

    start: Start
    size: S
    seed: int
    quiet: bool


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """An experiment: its cells and its page as functions of its size, and two sizes."""

    full: S
    quick: S
    cells: Callable[[ExperimentSetting[S]], list[Cell]]
    page: Callable[[Sequence[CellResult], S, str], LabPage]

    def conduct(
        self,
        folder: Path,
        start: Start,
        size: S,
        *,
        seed: int,
        quiet: bool,
        command: str,
    ) -> tuple[LabPage, Path]:
        """Run the cells that are not done, write data and page, and return the page and where it is."""
        cells = self.cells(ExperimentSetting(start, size, seed, quiet))
        done = run_cells(folder / "cells", start.fingerprint, cells)
        page = self.page(done, size, command)
        write_data(folder, done)
        return page, write_page(folder, page)

"""Experiments: cells that produce data, then a page about the data."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from jinja2 import ChoiceLoader, PackageLoader

from tutelage.base.config import identity
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.number_text import fixed
from tutelage.base.progress.phases import phase
from tutelage.data.record_files import write_jsonl
from tutelage.demo.lab.measurements import Measurement
from tutelage.demo.lab.start import Start
from tutelage.report.figures import Axis, BarChart, Chart, Names, Rule, Series, Svg, ValueBar, draw, standalone
from tutelage.report.figures.charts import Mark
from tutelage.report.json_files import number, string
from tutelage.report.page import environment
from tutelage.report.sample_answers import SampleAnswer, Strand
from tutelage.train.run.interrupt import Interrupted
from tutelage.train.run.json_lines import json_text, read_lines

log = logging.getLogger(__name__)

WIDTH = 470.0
"""Width of the laboratory's charts in pixels."""
CELL, SUMMARY = ".cell.json", "summary.json"


@dataclass(frozen=True)
class Cell:
    """Part of an experiment. `settings` (dataclasses) determine it; `run` executes it in a folder, resuming partial
    results, and returns the figures for `summary.json`."""

    name: str
    title: str
    settings: tuple[object, ...]
    run: Callable[[Path], Mapping[str, Any]]


@dataclass(frozen=True)
class Seed:
    """Seed of random numbers, as a setting of a cell."""

    seed: int


@dataclass(frozen=True)
class CellResult:
    """Data of a finished cell: its figures, its measurements by step, its recorded completions."""

    place: Path
    title: str
    figures: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """Name of the cell and of its folder."""
        return self.place.name

    def column(self, name: str) -> list[float]:
        """One measurement over the steps; NaN if missing."""
        values = (row.get(name) for row in self.steps)
        return [float(value) if isinstance(value, int | float) else float("nan") for value in values]

    def measured(self, name: str) -> Measurement:
        """Figure of the final policy with its standard error."""
        return Measurement(float(self.figures[name]), float(self.figures[f"{name}_error"]))


def run_cells(folder: Path, start: str, cells: Sequence[Cell]) -> list[CellResult]:
    """Run unfinished cells, each announced by a remark. `start` is the fingerprint of the common demonstration.

    Raises TutelageError if the folder holds a cell of this name with other settings or another start.
    """
    for index, cell in enumerate(cells, 1):
        place = folder / cell.name
        _claim(place, cell, start)
        if (place / SUMMARY).is_file():
            log.info(f"{cell.title} ({index} of {len(cells)}): done already")
            continue
        log.info(f"{cell.title} ({index} of {len(cells)})")
        try:
            with phase(cell.title):
                figures = cell.run(place)
        except Interrupted as stopped:
            raise Interrupted("Stopped; what is finished is kept, and the same command goes on.") from stopped
        write_atomically(place / SUMMARY, json_text(figures))
    return [read_cell(folder / cell.name, cell.title) for cell in cells]


def read_cell(place: Path, title: str) -> CellResult:
    """Read the data of a finished cell."""
    return CellResult(
        place=place,
        title=title,
        figures=json.loads((place / SUMMARY).read_text(encoding="utf-8")),
        steps=read_lines(place / "metrics.jsonl"),
        samples=read_lines(place / "samples.jsonl"),
    )


def _claim(place: Path, cell: Cell, start: str) -> None:
    """Mark a folder as this cell's, or check that it is."""
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


@dataclass(frozen=True)
class LabFigure:
    """Drawing with its caption; `name` is that of its file."""

    name: str
    title: str
    drawing: Svg
    caption: str
    wide: bool = False

    @classmethod
    def over_axes(
        cls,
        name: str,
        title: str,
        series: Sequence[Series],
        axes: tuple[Axis, Axis],
        caption: str,
        *,
        rules: tuple[Rule, ...] = (),
        names: Names = "ends",
        height: float = 300,
    ) -> "LabFigure":
        """Figure of series over two axes, in the laboratory's size."""
        return cls.of(name, Chart(title, tuple(series), *axes, rules, width=WIDTH, height=height), caption, names=names)

    @classmethod
    def dots(
        cls,
        name: str,
        title: str,
        measured: Iterable[tuple[str, Measurement, str, int]],
        axis: Axis,
        caption: str,
        *,
        rules: tuple[Rule, ...] = (),
    ) -> "LabFigure":
        """Dot plot of measurements with their intervals: name, value, text and colour of each."""
        bars = tuple(
            ValueBar(label, value.value, text, value.low, value.high, colour=colour)
            for label, value, text, colour in measured
        )
        return cls.of(name, BarChart(title, bars, axis, rules, "dot", width=WIDTH), caption)

    @classmethod
    def of(
        cls, name: str, chart: Chart | BarChart, caption: str, *, names: Names = "ends", wide: bool = False
    ) -> "LabFigure":
        """Figure of a chart whose series are named in the plot, or of a bar chart."""
        named = replace(chart, names=names) if isinstance(chart, Chart) else chart
        return cls(name, chart.title, draw(named), caption, wide)


def measured_series(
    x: Sequence[float], measured: Sequence[Measurement], label: str, *, colour: int, mark: Mark = "line"
) -> Series:
    """Measurements over x, with their 95 % intervals."""
    y, low, high = (tuple(getattr(one, end) for one in measured) for end in ("value", "low", "high"))
    return Series(tuple(x), y, label, mark=mark, colour=colour, low=low, high=high)


@dataclass(frozen=True)
class LabTable:
    """Rows of text under columns; the first names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @classmethod
    def of_policies(cls, title: str, named: Iterable[tuple[CellResult, str]]) -> "LabTable":
        """Score, gold and KL of final policies, each with its name."""
        rows = ((name, *(cell.measured(each).written for each in ("score", "gold", "kl"))) for cell, name in named)
        return cls(title, ("", "score", "gold", "KL, nats"), tuple(rows))


@dataclass(frozen=True)
class LabPage:
    """Content of an experiment's page. `findings` are sentences computed from its numbers."""

    title: str
    question: str
    command: str
    findings: tuple[str, ...]
    figures: tuple[LabFigure, ...]
    tables: tuple[LabTable, ...]
    method: tuple[str, ...]
    strands: tuple[Strand, ...] = ()
    numbers: Mapping[str, object] | None = None


def write_page(folder: Path, page: LabPage) -> Path:
    """Write report.html, figures/*.svg and summary.json (findings and numbers). Returns the path of the first."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in page.figures:
        write_atomically(folder / "figures" / f"{figure.name}.svg", standalone(figure.drawing))
    summary = {"findings": list(page.findings)} | dict(page.numbers or {})
    write_atomically(folder / "summary.json", json_text(summary))
    write_atomically(folder / "report.html", render(page))
    return folder / "report.html"


def render(page: LabPage) -> str:
    """Self-contained HTML of a page."""
    loader = ChoiceLoader([PackageLoader("tutelage.demo.lab"), PackageLoader("tutelage.report")])
    template = environment().overlay(loader=loader).get_template("lab.html")
    return template.render(page=page)


def write_data(folder: Path, cells: Sequence[CellResult]) -> None:
    """Write all measurements of all cells to data.jsonl: those of their steps, then their figures."""
    rows: list[dict[str, object]] = []
    for cell in cells:
        rows += [{"cell": cell.name, "title": cell.title, **row} for row in cell.steps]
        rows.append({"cell": cell.name, "title": cell.title, "final": True, **cell.figures})
    write_jsonl(folder / "data.jsonl", rows)


def followed(cell: CellResult, heading: str) -> list[Strand]:
    """Completions of the first prompt at the first, a middle and the last recorded step; empty without samples."""
    prompts = [string(row, "prompt") for row in cell.samples]
    rows = [row for row, prompt in zip(cell.samples, prompts, strict=True) if prompt == prompts[0]]
    moments = sorted({0, len(rows) // 2, len(rows) - 1}) if rows else []
    answers = tuple((f"step {number(rows[i], 'step'):.0f}", _answer(rows[i])) for i in moments)
    return [Strand(f"{heading}: {prompts[0]}", answers)] if answers else []


def _answer(row: Mapping[str, object]) -> SampleAnswer:
    scores = ((name, number(row, name)) for name in ("score", "gold"))
    return SampleAnswer(string(row, "completion"), tuple(f"{name} {fixed(v)}" for name, v in scores if v is not None))


S = TypeVar("S")


@dataclass(frozen=True)
class ExperimentSetting(Generic[S]):
    """Setting of an experiment: its demonstration, if it needs one, size and seed."""

    demonstration: Start | None
    size: S
    seed: int
    quiet: bool

    @property
    def start(self) -> Start:
        """The demonstration."""
        if self.demonstration is None:
            raise ValueError("this experiment has no demonstration")
        return self.demonstration


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """Experiment: its cells and its page as functions of its size."""

    size: S
    cells: Callable[[ExperimentSetting[S]], list[Cell]]
    page: Callable[[Sequence[CellResult], S, str], LabPage]

    def conduct(
        self, folder: Path, start: Start | None, size: S, *, seed: int, quiet: bool, command: str
    ) -> tuple[LabPage, Path]:
        """Run unfinished cells, and write data and page. Returns the page and its path."""
        cells = self.cells(ExperimentSetting(start, size, seed, quiet))
        done = run_cells(folder / "cells", start.fingerprint if start else "", cells)
        page = self.page(done, size, command)
        write_data(folder, done)
        return page, write_page(folder, page)

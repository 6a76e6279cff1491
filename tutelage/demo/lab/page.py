"""The page of an experiment, with its figures as files, its data, and its findings in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import ChoiceLoader, PackageLoader
from markupsafe import Markup

from tutelage.base.config.files import write_atomically
from tutelage.base.version import __version__
from tutelage.data.rows import write_jsonl
from tutelage.demo.lab.cells import CellResult
from tutelage.report.answers import Answer, Strand
from tutelage.report.figures import BarChart, Chart, Names, Svg, draw, standalone, stylesheet
from tutelage.report.json_values import number, string
from tutelage.report.page import environment
from tutelage.report.wording import fixed
from tutelage.train.run.json_lines import json_text


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption; `name` is that of its file."""

    name: str
    title: str
    drawing: Svg
    caption: str
    wide: bool = False

    @classmethod
    def of(
        cls, name: str, chart: Chart | BarChart, caption: str, *, names: Names = "ends", wide: bool = False
    ) -> "Figure":
        """The figure of a chart whose series are named in the plot, or of a bar chart."""
        named = replace(chart, names=names) if isinstance(chart, Chart) else chart
        return cls(name, chart.title, draw(named), caption, wide)


@dataclass(frozen=True)
class Table:
    """Rows of text under columns; the first names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Page:
    """The content of the page of an experiment. `findings` are sentences computed from its numbers."""

    title: str
    question: str
    command: str
    findings: tuple[str, ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    method: tuple[str, ...]
    strands: tuple[Strand, ...] = ()
    numbers: Mapping[str, object] | None = None


def write_page(folder: Path, page: Page) -> Path:
    """Write report.html, figures/*.svg and summary.json (findings and numbers), and return the path of the first."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in page.figures:
        write_atomically(folder / "figures" / f"{figure.name}.svg", standalone(figure.drawing))
    summary = {"findings": list(page.findings)} | dict(page.numbers or {})
    write_atomically(folder / "summary.json", json_text(summary))
    write_atomically(folder / "report.html", render(page))
    return folder / "report.html"


def render(page: Page) -> str:
    """The HTML text of a page, which needs no other file."""
    loader = ChoiceLoader([PackageLoader("tutelage.demo.lab"), PackageLoader("tutelage.report")])
    template = environment().overlay(loader=loader).get_template("lab.html")
    return template.render(page=page, style=Markup(stylesheet()), version=__version__)


def write_data(folder: Path, cells: Sequence[CellResult]) -> None:
    """Write every measurement of every cell as a line of data.jsonl: those of its steps, then its figures."""
    rows: list[dict[str, object]] = []
    for cell in cells:
        rows += [{"cell": cell.name, "title": cell.title, **row} for row in cell.steps]
        rows.append({"cell": cell.name, "title": cell.title, "final": True, **cell.figures})
    write_jsonl(folder / "data.jsonl", rows)


def followed(cell: CellResult, heading: str, prompts: int = 1) -> list[Strand]:
    """The answers to the same prompts at the first, a middle and the last of the steps that were kept."""
    by_prompt: dict[str, list[Mapping[str, object]]] = {}
    for row in cell.samples:
        by_prompt.setdefault(string(row, "prompt"), []).append(row)
    strands = []
    for prompt, rows in list(by_prompt.items())[:prompts]:
        moments = sorted({0, len(rows) // 2, len(rows) - 1})
        shown = tuple((f"step {number(rows[i], 'step'):.0f}", _answer(rows[i])) for i in moments)
        strands.append(Strand(f"{heading}: {prompt}", shown))
    return strands


def _answer(row: Mapping[str, object]) -> Answer:
    known = ((name, number(row, name)) for name in ("score", "gold"))
    return Answer(
        string(row, "completion"), tuple(f"{name} {fixed(v)}" for name, v in known if v is not None)
    )

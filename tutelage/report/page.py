"""A folder becomes one HTML file that needs nothing but itself: no network, no script."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tutelage import __version__
from tutelage.config.files import write_atomically
from tutelage.errors import TutelageError
from tutelage.report.folders import Round, read
from tutelage.report.headline import headline, timings, verdict
from tutelage.report.sections import section_of
from tutelage.report.story import DICTIONARY
from tutelage.report.words import clean


def write_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a run or of a round, and return its path.

    Raises TutelageError when the folder is neither (see `folders`), or cannot be written to.
    """
    path = folder / "report.html"
    html = render(read(folder))
    try:
        write_atomically(path, html)
    except OSError as error:
        raise TutelageError(f"Cannot write {path}: {error.strerror}.") from error
    return path


def render(told: Round) -> str:
    """The page as text."""
    sections = [section_of(stage, index) for index, stage in enumerate(told.stages, 1)]
    return (
        environment()
        .get_template("report.html")
        .render(
            told=told,
            sections=sections,
            findings=[(section, finding) for section in sections for finding in section.findings],
            judged=any(section.figures for section in sections),
            headline=headline(told),
            verdict=verdict(told),
            timings=timings(told),
            dictionary=DICTIONARY,
            version=__version__,
        )
    )


@cache
def environment() -> Environment:
    """Templates that escape all they are given, except drawings, which were escaped where they were made."""
    made = Environment(
        loader=PackageLoader("tutelage.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,  # a drawing is Markup, not str
    )
    made.filters["drawing"] = Markup
    return made

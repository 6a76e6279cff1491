"""The page about a run or a round: one HTML file that needs no network and no script."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.version import __version__
from tutelage.report.figures import stylesheet
from tutelage.report.figures.svg import clean
from tutelage.report.folders import RoundContent, read
from tutelage.report.headline import headline, timings, verdict
from tutelage.report.sections import section_of
from tutelage.report.texts import DICTIONARY


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


def render(round_: RoundContent) -> str:
    """The HTML text of the page about a round."""
    sections = [section_of(stage, index) for index, stage in enumerate(round_.stages, 1)]
    return (
        environment()
        .get_template("report.html")
        .render(
            round=round_,
            style=Markup(stylesheet()),
            sections=sections,
            findings=[(section, finding) for section in sections for finding in section.findings],
            judged=any(section.figures for section in sections),
            headline=headline(round_),
            verdict=verdict(round_),
            timings=timings(round_),
            dictionary=DICTIONARY,
            version=__version__,
        )
    )


@cache
def environment() -> Environment:
    """The environment of the templates. They escape every text but drawings (`Svg`), which are escaped already."""
    return Environment(
        loader=PackageLoader("tutelage.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,  # neither Svg nor Markup
    )

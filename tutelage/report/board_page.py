"""The page of a board: a frame with the choices, and the parts that it asks for again and again."""

from markupsafe import Markup

from tutelage.base.number_text import duration
from tutelage.base.version import __version__
from tutelage.report.board import POSITIONS, Board, View
from tutelage.report.figures import stylesheet
from tutelage.report.folders import seconds_of
from tutelage.report.page import environment


def render_frame(board: Board, nonce: str) -> str:
    """The page without its parts; `nonce` allows its only script."""
    template = environment().get_template("board.html")
    title, style = board.folder.resolve().name, Markup(stylesheet())
    return template.render(title=title, style=style, nonce=nonce, positions=POSITIONS, version=__version__)


def render_parts(board: Board, view: View) -> str:
    """The runs with their status, what asks for a look, the charts and the samples of a view."""
    runs = board.selected(view)
    charts, more = board.charts(view)
    samples, count = board.samples(view)
    rows = [
        (run, run in runs, run.content.last_step, duration(seconds) if (seconds := seconds_of(run.content)) else "")
        for run in board.runs.values()
    ]
    findings = [(run.name, title, finding) for run in runs for title, finding in run.findings]
    template = environment().get_template("board_parts.html")
    return template.render(
        rows=rows, findings=findings, charts=charts, more=more, opened=bool(more), samples=samples, count=count
    )

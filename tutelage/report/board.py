"""A folder of runs as they grow: what each has logged so far, and a page about some of them, a frame with the choices
and the parts that it asks for again and again.

A run is read from where it was read before: `metrics.jsonl` and `samples.jsonl` only grow, so that following one costs
as much as it writes. A file that was replaced, as when a run is resumed, is read again. Runs are not written to.
"""

import math
import os
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tutelage.base.errors import TutelageError
from tutelage.base.number_text import duration
from tutelage.report.diagnoses import smooth
from tutelage.report.figures import LINEAR, Axis, Chart, Series, draw
from tutelage.report.figures.drawing import thin
from tutelage.report.figures.scales import frame
from tutelage.report.folders import RunContent, holds_model, holds_run, kind_of, read_run, seconds_of, status_of
from tutelage.report.json_files import Object, number, parsed, string
from tutelage.report.metrics import metric_of
from tutelage.report.page import environment
from tutelage.report.panels import NOT_CURVES
from tutelage.report.stage_figures import AVERAGED, RunFigure, panels_of

DEPTH = 5
"""Levels of folders in which runs are looked for."""
QUIET = 60.0
"""Seconds without a new line after which an unfinished run counts as stopped."""
COLOURS, LINES = 6, 12
"""Colours of lines, further ones being dashed, and the maximum number of runs in a chart."""
ROWS = 2000
"""Maximum number of steps of a run that are read for a drawing."""
MARK = 4096
"""Bytes before the place up to which a file was read, by which it is recognised."""
SHOWN = 20
"""Maximum number of samples shown."""
Position = Literal["step", "tokens", "seconds"]
POSITIONS: tuple[Position, ...] = ("step", "tokens", "seconds")


class GrowingTable:
    """The rows of a JSON-lines file that grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[Object]()
        self.read, self.written = 0, 0.0
        """Bytes read, and the time of the last change of the file."""
        self._mark = b""
        """The last of the bytes read."""
        self._seen = (0, 0)
        """Size and nanosecond of the last look."""

    def grow(self) -> list[Object]:
        """Read what was added, and return the new rows: all of them if the file was replaced, none if it cannot be
        read."""
        try:
            status = self.path.stat()
            size_and_time = status.st_size, status.st_mtime_ns
            if size_and_time == self._seen:
                return []
            with self.path.open("rb") as file:
                file.seek(self.read - len(self._mark))
                if file.read(len(self._mark)) != self._mark:
                    self.rows, self.read, self._mark = [], 0, b""
                    file.seek(0)
                added = file.read()
        except OSError:
            return []
        self._seen, self.written = size_and_time, status.st_mtime
        whole = added[: added.rfind(b"\n") + 1]  # the rest of a line is still being written
        self.read += len(whole)
        self._mark = (self._mark + whole[-MARK:])[-MARK:]
        rows = [row for line in whole.splitlines() if (row := parsed(line)) is not None]
        self.rows += rows
        return rows


@dataclass(frozen=True)
class View:
    """What the page shows: the runs by name, all if none is named, over what, how, and where."""

    runs: tuple[str, ...] = ()
    over: Position = "step"
    log: bool = False
    low: float | None = None
    high: float | None = None
    search: str = ""
    more: bool = False
    """Whether all metrics are drawn."""

    def shows(self, place: float) -> bool:
        """Whether a position is within the part that is shown."""
        return (self.low is None or place >= self.low) and (self.high is None or place <= self.high)

    @classmethod
    def of(cls, query: Mapping[str, Sequence[str]]) -> "View":
        """The view of a query string; what cannot be read is as if it were not given."""

        def last(name: str) -> str:
            return query.get(name, [""])[-1]

        overs: list[Position] = [each for each in POSITIONS if each == last("over")]
        return cls(
            runs=tuple(query.get("run", ())),
            over=overs[0] if overs else "step",
            log=last("log") == "1",
            low=_number(last("low")),
            high=_number(last("high")),
            search=last("search").strip(),
            more=last("more") == "1",
        )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class FollowedRun:
    """A run that may still be written."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._metrics, self._samples = (GrowingTable(folder / f"{name}.jsonl") for name in ("metrics", "samples"))
        self._rows = list[dict[str, object]]()
        """One for each step, in order; of steps that were written twice, the last values count."""
        self._last = -math.inf
        self._files: tuple[float, ...] = ()
        self.content, self.trouble = RunContent(), ""

    def refresh(self) -> None:
        """Read what the run has written since."""
        before = len(self._metrics.rows)
        added, grown = self._metrics.grow(), self._samples.grow()
        if len(self._metrics.rows) < before + len(added):
            self._rows, self._last = [], -math.inf
        for row in added:
            self._add(row)
        files = tuple(_changed(self.folder / f"{name}.json") for name in ("config", "summary"))
        other, self._files = files != self._files, files
        if other:  # in the beginning and at the end
            try:
                self.content, self.trouble = read_run(self.folder), ""
            except TutelageError as error:
                self.content, self.trouble = RunContent(), str(error)
        if added or grown or other:
            samples = tuple(self._samples.rows) or self.content.samples
            self.content = replace(self.content, metrics=tuple(self._rows), samples=samples)

    def _add(self, row: Object) -> None:
        step = number(row, "step")
        if step is None:
            return
        if step > self._last:
            self._rows.append(dict(row))
            self._last = step
            return
        place = bisect_left(self._rows, step, key=lambda each: float(str(each["step"])))
        if self._rows[place]["step"] != step:
            self._rows.insert(place, {})
        self._rows[place].update(row)

    @property
    def written(self) -> float:
        """Time of its last line."""
        return max(self._metrics.written, self._samples.written, *self._files)

    @property
    def kind(self) -> str:
        """The kind of the run."""
        return kind_of(self.content, self.folder.resolve().name)

    @property
    def status(self) -> str:
        """done, waiting, running, or stopped: nothing was written for a while."""
        status = status_of(self.content)
        quiet = time.time() - self.written > QUIET
        return "stopped" if status == "running" and quiet else status

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that it logs, in order."""
        names = dict.fromkeys(name for row in self.content.metrics for name in row)
        return tuple(name for name in names if name not in NOT_CURVES)

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """What asks for a look: title of the chart and finding."""
        if self.trouble:
            return (("files", self.trouble),)
        panels = panels_of(self.kind)
        return tuple((panel.title, finding) for panel in panels if (finding := panel.diagnose(self.content)))

    def placed(self, view: View) -> list[tuple[float, Object]]:
        """The rows that a view shows, with their positions: at most `ROWS`, evenly. Empty if the run does not log what
        the positions need."""
        rows = zip(self._positions(view.over), self.content.metrics, strict=True)
        within = [(place, row) for place, row in rows if place is not None and view.shows(place)]
        return within[:: -(-len(within) // ROWS)] if len(within) > ROWS else within

    def _positions(self, over: Position) -> Iterator[float | None]:
        """Position of each step. Seconds restart from 0 when a run is resumed, and are summed."""
        seconds = tokens = last = 0.0
        for row in self.content.metrics:
            clock, rate = number(row, "seconds"), number(row, "tokens_per_second")
            passed = 0.0 if clock is None else clock - last if clock >= last else clock
            seconds, last = seconds + passed, last if clock is None else clock
            tokens += passed * (rate or 0.0)
            if over == "step":
                yield number(row, "step")
            elif over == "seconds":
                yield None if clock is None else seconds
            else:
                yield None if rate is None and not tokens else tokens


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@dataclass(frozen=True)
class Plot:
    """Where the horizontal axis of a drawing is: its first and last value, and their places as shares of the width."""

    low: float
    high: float
    start: float
    end: float


@dataclass(frozen=True)
class BoardFigure:
    """A chart, and its horizontal axis, from which the page finds what the pointer selects."""

    figure: RunFigure
    plot: Plot


@dataclass(frozen=True)
class FoundSample:
    """A sample that a search found: its run, step and texts."""

    run: str
    step: float | None
    prompt: str
    completion: str


@dataclass(frozen=True)
class Overlay:
    """A chart of one metric. A noisy one is drawn as its running average."""

    metric: str
    title: str
    y: Axis = LINEAR
    noisy: bool = True


@dataclass
class Board:
    """The runs in a folder."""

    folder: Path
    runs: dict[str, FollowedRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise TutelageError(f"There is no folder {self.folder}: give one with the folders of runs.")

    def refresh(self) -> None:
        """Find new runs, and read what all have written. Runs whose folders are gone leave."""
        folders = {self._name(path): path for path in run_folders(self.folder)}
        self.runs = {name: self.runs.get(name) or FollowedRun(name, path) for name, path in sorted(folders.items())}
        for run in self.runs.values():
            run.refresh()

    def _name(self, path: Path) -> str:
        return self.folder.resolve().name if path == self.folder else path.relative_to(self.folder).as_posix()

    def selected(self, view: View) -> list[FollowedRun]:
        """The runs of a view, at most `LINES`: the latest, if none is named."""
        named = [run for name, run in self.runs.items() if not view.runs or name in view.runs]
        return sorted(sorted(named, key=lambda run: run.written)[-LINES:], key=lambda run: run.name)

    def charts(self, view: View) -> tuple[list[BoardFigure], list[BoardFigure]]:
        """Overlaid curves of the runs: the metrics by which their kinds are judged, and all others."""
        runs = self.selected(view)
        named: dict[str, Overlay] = {}
        for kind in dict.fromkeys(run.kind for run in runs):
            for panel in panels_of(kind):
                for curve in panel.curves:
                    title = panel.title if len(panel.curves) == 1 else f"{panel.title}: {curve.label}"
                    named.setdefault(curve.metric, Overlay(curve.metric, title, panel.y, curve.noisy))
        logged = dict.fromkeys(name for run in runs for name in run.metrics)
        others = [Overlay(name, name) for name in logged if name not in named] if view.more or not named else []
        placed = [(run, run.placed(view)) for run in runs]
        main = (self._chart(each, placed, view) for name, each in named.items() if name in logged)
        rest = (self._chart(each, placed, view) for each in others)
        return [figure for figure in main if figure], [figure for figure in rest if figure]

    def _chart(
        self, overlay: Overlay, placed: Sequence[tuple[FollowedRun, Sequence[tuple[float, Object]]]], view: View
    ) -> BoardFigure | None:
        every = list(self.runs.values())
        series = []
        for run, rows in placed:
            logged = [(x, y) for x, row in rows if (y := number(row, overlay.metric)) is not None and math.isfinite(y)]
            if overlay.noisy and len(logged) >= AVERAGED:
                logged = list(zip((x for x, _ in logged), smooth([y for _, y in logged]), strict=True))
            points = [(x, y) for x, y in logged if not view.log or y > 0]
            if points:
                index = every.index(run)
                across, values = zip(*thin(points), strict=True)
                style: Literal["plain", "dashed"] = "plain" if index % (2 * COLOURS) < COLOURS else "dashed"
                series.append(Series(across, values, run.name, colour=index % COLOURS, style=style))
        if not series:
            return None
        upright = replace(overlay.y, log=True, low=None, high=None) if view.log else overlay.y
        chart = Chart(overlay.title, tuple(series), x=Axis(view.over, whole=view.over == "step"), y=upright)
        metric = metric_of(overlay.metric)
        figure = RunFigure(title=overlay.title, drawing=draw(chart), unit=metric.unit if metric else "")
        at = frame(chart).x
        return BoardFigure(figure, Plot(at.low, at.high, at.start / chart.width, at.end / chart.width))

    def samples(self, view: View) -> tuple[list[FoundSample], int]:
        """The latest samples of the runs that contain the text of the search, and how many there are in all."""
        words, matches = view.search.casefold(), list[FoundSample]()
        for run in self.selected(view):
            for row in run.content.samples:
                prompt, completion = string(row, "prompt"), string(row, "completion")
                if words in prompt.casefold() or words in completion.casefold():
                    matches.append(FoundSample(run.name, number(row, "step"), prompt, completion))
        matches.sort(key=lambda each: each.step or 0.0)
        return matches[-SHOWN:][::-1], len(matches)


def run_folders(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Folders of runs in a folder, itself included. Folders of models and checkpoints, links, and folders that cannot
    be read, such as those just deleted, are not entered."""
    try:
        with os.scandir(folder) as entries:
            inner = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        model, run = holds_model(folder), holds_run(folder) and not (folder / "round.json").exists()
    except OSError:
        return
    if model:
        return
    if run:
        yield folder
    for name in inner if depth else ():
        if name not in ("model", "checkpoints") and not name.startswith("."):
            yield from run_folders(folder / name, depth - 1)


def render_frame(board: Board, nonce: str) -> str:
    """The page without its parts; `nonce` allows its only script."""
    template = environment().get_template("board.html")
    return template.render(title=board.folder.resolve().name, nonce=nonce, positions=POSITIONS)


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

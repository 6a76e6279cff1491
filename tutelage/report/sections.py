"""The sections of the page, one per stage: its story, its numbers, its figures, its answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from tutelage.report import answers
from tutelage.report.facts import FACTS, Fact, between, steps
from tutelage.report.figures import ValueBar, interval_strip
from tutelage.report.figures.number_text import number as written
from tutelage.report.figures.number_text import percent
from tutelage.report.folders import StageContent, origin_of, settings_of
from tutelage.report.json_values import Object, flat, interval, items, number, objects, string
from tutelage.report.metric_figures import RunFigure
from tutelage.report.stage_figures import figures, further_figures
from tutelage.report.texts import STORIES, TITLES
from tutelage.report.wording import duration


@dataclass(frozen=True)
class RaterRow:
    """A row of the table of raters as text; `drawing` shows the reliability."""

    name: str
    votes: str
    reliability: str
    drawing: str
    left: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class RaterTable:
    """A table: each row has a name, values under the columns, and a note."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...], str], ...]


@dataclass(frozen=True)
class Section:
    """A stage in the form in which the template writes it. Everything but the title line may be empty."""

    number: int
    kind: str
    title: str
    state: str
    status: str
    time: str
    story: str
    facts: tuple[Fact, ...]
    figures: tuple[RunFigure, ...]
    more: tuple[RunFigure, ...]
    raters: tuple[RaterRow, ...]
    table: RaterTable | None
    balance: str
    groups: tuple[answers.AnswerGroup, ...]
    shown: str
    strands: tuple[answers.Strand, ...]
    settings: tuple[tuple[str, str], ...]
    summary: tuple[tuple[str, str], ...]
    origin: tuple[tuple[str, str], ...]
    troubles: tuple[str, ...]
    model_faults: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """The identifier of this section that links lead to."""
        return f"stage-{self.number}"

    @property
    def findings(self) -> tuple[str, ...]:
        """The sentences about what was noticed in this section's models and figures."""
        drawn = (figure.finding for figure in (*self.figures, *self.more) if figure.finding)
        return (*self.model_faults, *drawn)


def section_of(stage: StageContent, index: int) -> Section:
    """The section of a stage, which is the index-th of its round, counted from 1."""
    run = stage.run
    shown, more = figures(stage.kind, run), further_figures(stage.kind, run)
    groups = answers.groups(run.answers)
    return Section(
        number=index,
        kind=stage.kind,
        title=stage.title or TITLES.get(stage.kind, stage.name),
        state=stage.status,
        status=status(stage),
        time=duration(stage.seconds) if stage.seconds is not None else "",
        story=STORIES.get(stage.kind, ""),
        facts=tuple(FACTS.get(stage.kind, steps)(run)),
        figures=shown or more,
        more=more if shown else (),
        raters=raters(run.judgements),
        table=table(run.summary),
        balance=answers.balance(run.answers),
        groups=groups,
        shown=f"{sum(len(group.pairs) for group in groups)} of {len(run.answers)}",
        strands=answers.side_by_side(run) if stage.kind == "sample" else answers.changes(run),
        settings=listed(settings_of(run)),
        summary=listed(
            flat({key: value for key, value in run.summary.items() if key not in ("rows", "columns")})
        ),
        origin=listed(origin_of(run)),
        troubles=run.troubles,
        model_faults=run.mismatches,
    )


def status(stage: StageContent) -> str:
    """The status of a stage in words."""
    at = f" at step {stage.run.last_step}" if stage.run.last_step is not None else ""
    return {
        "done": "finished",
        "waiting": "not begun",
        "running": f"still running, or interrupted{at}",
        "failed": f"stopped by an error{at}",
    }[stage.status]


def listed(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Settings or results as pairs of a name and a text."""
    return tuple((key, spelled(value)) for key, value in values.items())


def spelled(value: object) -> str:
    """A JSON value as text: a number rounded, a list as words, null as a dash."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return " ".join(spelled(item) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return written(value, 4) if isinstance(value, float) else str(value)
    return str(value)


def raters(judgements: Object) -> tuple[RaterRow, ...]:
    """The rows of the table of raters, the most reliable first; a rater of unknown reliability comes last."""
    rows = objects(judgements, "raters")
    return tuple(rater(row) for row in sorted(rows, key=lambda row: -(number(row, "reliability") or 0.0)))


def rater(row: Object) -> RaterRow:
    """A row of the table of raters."""
    value, votes, left = (number(row, key) for key in ("reliability", "votes", "left_rate"))
    ends = interval(row, "interval")
    name = string(row, "name", "unnamed")
    low, high = ends or (None, None)
    estimate = ValueBar(
        name, value or 0.0, percent(value or 0.0), low, high, colour=1 if row.get("flags") else 0
    )
    return RaterRow(
        name=name,
        votes="" if votes is None else f"{votes:,.0f}",
        reliability="" if value is None else percent(value) + (f" ({between(*ends)})" if ends else ""),
        drawing="" if value is None else interval_strip(estimate, 0.0, 1.0, rule=0.5),
        left="" if left is None else percent(left),
        flags=tuple(flag(value) for value in items(row, "flags")),
    )


def flag(value: object) -> str:
    """A rater's flag as text; a flag is a word, or an object with a kind and its evidence."""
    if not isinstance(value, dict):
        return str(value).replace("_", " ")
    kind, evidence = string(value, "kind").replace("_", " "), string(value, "evidence")
    return ": ".join(filter(None, (kind, evidence)))


def table(summary: Object) -> RaterTable | None:
    """The table in a summary, which holds it as `columns` and `rows`; None without rows."""
    rows = tuple(
        (string(row, "name"), tuple(spelled(value) for value in items(row, "values")), string(row, "note"))
        for row in objects(summary, "rows")
    )
    return RaterTable(tuple(str(column) for column in items(summary, "columns")), rows) if rows else None

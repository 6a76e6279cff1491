"""One section of the page per stage: what happened, its numbers, its curves, its answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from tutelage.report import answers
from tutelage.report.bars import Bar, strip
from tutelage.report.charts import Axis
from tutelage.report.curves import Figure
from tutelage.report.facts import FACTS, Fact, between, steps
from tutelage.report.folders import Stage, origin_of, settings_of
from tutelage.report.json_values import Object, flat, interval, items, number, objects, string
from tutelage.report.pictures import figures, further_figures
from tutelage.report.scales import number as written
from tutelage.report.story import STORIES, TITLES
from tutelage.report.words import duration, percent


@dataclass(frozen=True)
class Rater:
    """A row of the table of raters, written out; `drawing` is the reliability as SVG."""

    name: str
    votes: str
    reliability: str
    drawing: str
    left: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of a name, values under the columns, and a note."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...], str], ...]


@dataclass(frozen=True)
class Section:
    """A stage as the page tells it. Everything but the first line may be absent."""

    number: int
    kind: str
    title: str
    state: str
    status: str
    time: str
    story: str
    facts: tuple[Fact, ...]
    figures: tuple[Figure, ...]
    more: tuple[Figure, ...]
    raters: tuple[Rater, ...]
    table: Table | None
    balance: str
    groups: tuple[answers.Group, ...]
    shown: str
    strands: tuple[answers.Strand, ...]
    settings: tuple[tuple[str, str], ...]
    summary: tuple[tuple[str, str], ...]
    origin: tuple[tuple[str, str], ...]
    troubles: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Where links to this section lead."""
        return f"stage-{self.number}"

    @property
    def findings(self) -> tuple[str, ...]:
        """What was noticed in the curves."""
        return tuple(figure.finding for figure in (*self.figures, *self.more) if figure.finding)


def section_of(stage: Stage, index: int) -> Section:
    """The section of the stage that is the index-th of its round."""
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
    )


def status(stage: Stage) -> str:
    """How far a stage has come, in words."""
    at = f" at step {stage.run.last_step}" if stage.run.last_step is not None else ""
    return {
        "done": "finished",
        "waiting": "not begun",
        "running": f"still running, or interrupted{at}",
        "failed": f"stopped by an error{at}",
    }[stage.status]


def listed(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Settings and figures, each as a line of text."""
    return tuple((key, spelled(value)) for key, value in values.items())


def spelled(value: object) -> str:
    """One value for reading: numbers rounded, lists as words, nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return " ".join(spelled(item) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return written(value, 4) if isinstance(value, float) else str(value)
    return str(value)


def raters(judgements: Object) -> tuple[Rater, ...]:
    """The table of raters, the most reliable first; those whose reliability is unknown come last."""
    told = objects(judgements, "raters")
    return tuple(rater(row) for row in sorted(told, key=lambda row: -(number(row, "reliability") or 0.0)))


def rater(row: Object) -> Rater:
    """One rater."""
    value, votes, left = (number(row, key) for key in ("reliability", "votes", "left_rate"))
    ends = interval(row, "interval")
    name = string(row, "name", "unnamed")
    low, high = ends or (None, None)
    estimate = Bar(name, value or 0.0, percent(value or 0.0), low, high, colour=1 if row.get("flags") else 0)
    return Rater(
        name=name,
        votes="" if votes is None else f"{votes:,.0f}",
        reliability="" if value is None else percent(value) + (f" ({between(*ends)})" if ends else ""),
        drawing="" if value is None else strip(estimate, Axis(percent=True, low=0.0, high=1.0), rule=0.5),
        left="" if left is None else percent(left),
        flags=tuple(flag(told) for told in items(row, "flags")),
    )


def flag(told: object) -> str:
    """A flag as words: it may come as a word, or as a kind with its evidence."""
    if not isinstance(told, dict):
        return str(told).replace("_", " ")
    kind, evidence = string(told, "kind").replace("_", " "), string(told, "evidence")
    return ": ".join(filter(None, (kind, evidence)))


def table(summary: Object) -> Table | None:
    """The table that a summary brings along as columns and rows."""
    rows = tuple(
        (string(row, "name"), tuple(spelled(value) for value in items(row, "values")), string(row, "note"))
        for row in objects(summary, "rows")
    )
    return Table(tuple(str(column) for column in items(summary, "columns")), rows) if rows else None

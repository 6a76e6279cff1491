"""HTML report of a run or a round: one file without scripts or external resources."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tutelage.base.config.files import write_atomically
from tutelage.base.config.mapping import flat
from tutelage.base.number_text import duration, percent
from tutelage.base.number_text import number as written
from tutelage.base.version import __version__
from tutelage.report import sample_answers as answers
from tutelage.report.facts import FACTS, Fact, between, headline, steps, timings, verdict
from tutelage.report.figures import ValueBar, interval_strip, stylesheet
from tutelage.report.figures.svg import clean
from tutelage.report.folders import RoundContent, StageContent, origin_of, read, settings_of
from tutelage.report.json_files import Object, interval, items, number, objects, string
from tutelage.report.stage_figures import RunFigure, figures, further_figures

TITLES: Mapping[str, str] = MappingProxyType(
    {
        "pretrain": "Pretraining",
        "sft": "Supervised fine-tuning",
        "sample": "Sampling",
        "judge": "Judging",
        "reward": "Reward model",
        "improve": "Policy optimisation",
        "distill": "Distillation",
        "evaluate": "Evaluation",
    }
)

STORIES: Mapping[str, str] = MappingProxyType(
    {
        "pretrain": (
            "An untrained model learns from plain text to predict the next token, a piece of a word."
            " It learns language, but not what a good answer is."
        ),
        "sft": (
            "The model is trained on prompts with example answers and learns to answer like them. The result is the"
            " initial policy of all later stages and, frozen, the reference."
        ),
        "sample": (
            "The fine-tuned model samples several completions of each prompt."
            " Pairs of such completions are what raters compare."
        ),
        "judge": (
            "Raters see two responses to the same prompt, side by side in random order, and choose the better one."
            " They disagree with each other, and sometimes with themselves, which limits the accuracy of any model"
            " trained on their votes."
        ),
        "reward": (
            "A second model is trained on the judgements to give preferred completions higher scores. It then"
            " replaces the raters, because training needs more judgements than people can give."
        ),
        "improve": (
            "The model, now called the policy, writes completions; the reward model scores them; those that score"
            " better than expected become more likely. A penalty on the distance from the reference, the KL,"
            " preserves fluent language."
        ),
        "distill": (
            "The model, the student, writes completions; the teacher gives its probabilities at every token, and the"
            " student's move towards them. The KL is measured against the teacher."
        ),
        "evaluate": (
            "The models before and after training answer held-out prompts. The measure of success is not the score,"
            " which was optimised, but what an independent judge says."
        ),
    }
)

DICTIONARY: tuple[tuple[str, str], ...] = (
    ("policy", "the model that is being trained to give better completions"),
    ("reference", "the model it started from, frozen; the KL is measured against it"),
    ("score", "the reward model's estimate of how much raters prefer a completion"),
    ("gold", "the true quality of a completion, known only for simulated raters; hidden from training"),
    ("KL", "distance of the policy from the reference, in nats; 0 if they are equal"),
    ("held out", "examples not used for training, to measure generalisation rather than memorisation"),
    ("win rate", "how often the new completion beats the old one; ties count half, 50% means no difference"),
    ("reward hacking", "raising the score by exploiting errors of the reward model"),
    ("entropy", "how uncertain the model is about its next token"),
    ("ceiling", "the accuracy of a perfect reward model, limited by the noise of single votes"),
    ("95% interval", "a range that contains the true value in 95 of 100 repetitions of the measurement"),
)


SHOWN = ("rows", "columns", "curves")
"""Entries of a summary that are shown as a table or a figure."""


@dataclass(frozen=True)
class RaterRow:
    """A row of the rater table, as text; `drawing` shows the reliability."""

    name: str
    votes: str
    reliability: str
    drawing: str
    left: str
    truth: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class ResultTable:
    """A table: each row has a name, values per column, and a note."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...], str], ...]


@dataclass(frozen=True)
class Section:
    """A stage as the template renders it. All fields after the title line may be empty."""

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
    table: ResultTable | None
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
        """The HTML id of the section."""
        return f"stage-{self.number}"

    @property
    def findings(self) -> tuple[str, ...]:
        """Messages about known problems in the section's models and figures."""
        charts = (*self.figures, *self.more)
        return (*self.model_faults, *(chart.finding for chart in charts if chart.finding))


def section_of(stage: StageContent, index: int) -> Section:
    """The section of a stage; `index` counts from 1."""
    run = stage.run
    charts, more = figures(stage.kind, run), further_figures(stage.kind, run)
    groups = answers.groups(run.answers)
    return Section(
        number=index,
        kind=stage.kind,
        title=stage.title or TITLES.get(stage.kind, stage.name),
        state=stage.status,
        status=status(stage),
        time=duration(stage.seconds) if stage.seconds is not None else "",
        story=stage.about or STORIES.get(stage.kind, ""),
        facts=tuple(FACTS.get(stage.kind, steps)(run)),
        figures=charts or more,
        more=more if charts else (),
        raters=raters(run.judgements),
        table=table(run.summary),
        balance=answers.balance(run.answers),
        groups=groups,
        shown=f"{sum(len(group.pairs) for group in groups)} of {len(run.answers)}",
        strands=answers.side_by_side(run) if stage.kind == "sample" else answers.changes(run),
        settings=listed(settings_of(run)),
        summary=listed(flat({key: value for key, value in run.summary.items() if key not in SHOWN})),
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
    """Settings or results as pairs of name and text."""
    return tuple((key, spelled(value)) for key, value in values.items())


def spelled(value: object) -> str:
    """A JSON value as text: a rounded number, a list as words, null as a dash."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return " ".join(spelled(item) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return written(value, 4) if isinstance(value, float) else str(value)
    return str(value)


def raters(judgements: Object) -> tuple[RaterRow, ...]:
    """The rows of the rater table, most reliable first and unknown reliability last."""
    rows = objects(judgements, "raters")
    return tuple(rater(row) for row in sorted(rows, key=lambda row: -(number(row, "reliability") or 0.0)))


def rater(row: Object) -> RaterRow:
    """A row of the rater table."""
    value, votes, left, truth = (number(row, key) for key in ("reliability", "votes", "left_rate", "truth"))
    ends = interval(row, "interval")
    name = string(row, "name", "unnamed")
    low, high = ends or (None, None)
    estimate = ValueBar(name, value or 0.0, percent(value or 0.0), low, high, colour=1 if row.get("flags") else 0)
    return RaterRow(
        name=name,
        votes="" if votes is None else f"{votes:,.0f}",
        reliability="" if value is None else percent(value) + (f" ({between(*ends)})" if ends else ""),
        drawing="" if value is None else interval_strip(estimate, 0.0, 1.0, rule=0.5),
        left="" if left is None else percent(left),
        truth="" if truth is None else percent(truth),
        flags=tuple(flag(value) for value in items(row, "flags")),
    )


def flag(value: object) -> str:
    """A rater's flag as text; a flag is a word, or an object with a kind and its evidence."""
    if not isinstance(value, dict):
        return str(value).replace("_", " ")
    kind, evidence = string(value, "kind").replace("_", " "), string(value, "evidence")
    return ": ".join(filter(None, (kind, evidence)))


def table(summary: Object) -> ResultTable | None:
    """The table under `columns` and `rows` in a summary; None without rows."""
    rows = tuple(
        (string(row, "name"), tuple(spelled(value) for value in items(row, "values")), string(row, "note"))
        for row in objects(summary, "rows")
    )
    return ResultTable(tuple(str(column) for column in items(summary, "columns")), rows) if rows else None


def write_report(folder: Path) -> Path:
    """Write `report.html` into the folder of a run or of a round, and return its path.

    Raises TutelageError if the folder is neither (see `folders`) or cannot be written to.
    """
    path = folder / "report.html"
    write_atomically(path, render(read(folder)))
    return path


def render(round_: RoundContent) -> str:
    """The HTML report of a round."""
    sections = [section_of(stage, index) for index, stage in enumerate(round_.stages, 1)]
    return (
        environment()
        .get_template("report.html")
        .render(
            round=round_,
            sections=sections,
            findings=[(section, finding) for section in sections for finding in section.findings],
            judged=any(section.figures for section in sections),
            headline=headline(round_),
            verdict=verdict(round_),
            timings=timings(round_),
            dictionary=DICTIONARY,
        )
    )


@cache
def environment() -> Environment:
    """The Jinja environment. Escapes all text except drawings (`Svg`), which are already escaped."""
    own = Environment(
        loader=PackageLoader("tutelage.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,  # neither Svg nor Markup
    )
    own.globals |= {"style": Markup(stylesheet()), "version": __version__}
    return own

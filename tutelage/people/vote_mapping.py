"""Settings and results of an import of votes: the roles of columns, the meanings of words for choices, the report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tutelage.base.sentences import Sentence
from tutelage.data.row_values import Unusable
from tutelage.data.tables import Table
from tutelage.data.vote_rows import CHOICES, MEANINGS, cell_time, fold_name
from tutelage.people.validation import FieldError, find_named


@dataclass(frozen=True)
class VoteMapping:
    """Roles of the columns of a table of votes, meanings of its choices, and rows that are left out. Side a of the
    table is the one that raters saw on the left."""

    prompt: tuple[str, ...] = ("prompt",)
    """Column of the prompt; several are joined by blank lines."""
    a: str = "completion_a"
    """Column of the first response."""
    b: str = "completion_b"
    """Column of the second response."""
    choice_column: str = "preference"
    """Column of the choice: a, b, tie, both_bad, a-is-better, b-is-slightly-better, …"""
    choice: tuple[str, ...] = field(default=(), metadata={"append": True})
    """Meaning of another word for a choice, such as 1=a; once per word."""
    rater: str = "evaluator"
    """Column of the rater."""
    annotators: tuple[str, ...] = ()
    """Columns with the choices of one rater each, named after the column, instead of the columns of choice and rater;
    an empty cell is no vote."""
    model_a: str | None = None
    """Column of the model of the first response, if any."""
    model_b: str | None = None
    """Column of the model of the second response, if any."""
    time: str | None = None
    """Column of the time of the vote, if any: ISO 8601, in UTC unless it has a zone, or seconds, milliseconds,
    microseconds or nanoseconds since 1970."""
    reason: str | None = None
    """Column of the rater's reason, if any."""
    keep_rejected: bool = False
    """Import work that a platform rejected, returned, discarded or cancelled, according to a column such as `status` or
    `was_cancelled`; by default it is left out."""
    partial: bool = False
    """Skip unusable votes; by default nothing is imported if there are any."""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise FieldError("prompt", "Choose at least one column for the prompt.")
        _ = self.meanings

    @property
    def meanings(self) -> dict[str, tuple[str, int]]:
        """Verdict and strength by word, as given by `choice`. A word may contain the equals sign itself. Raises
        FieldError if a word has no meaning, or an unknown one."""
        meanings = {}
        for each in self.choice:
            word, sign, meaning = each.rpartition("=")
            if not sign:
                raise FieldError(
                    "choice",
                    "The choice “%(given)s” has no meaning: write %(given)s=a for a word, or name a column as the "
                    "column of the choice.",
                    given=each[:50],
                )
            meanings[word] = meaning_of(meaning)
        return meanings

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns in use, by name, with the field that names each first."""
        voters = ("annotators",) if self.annotators else ("choice_column", "rater")
        used: dict[str, str] = {}
        for name in ("prompt", "a", "b", *voters, *OPTIONAL):
            value = getattr(self, name)
            for column in value if isinstance(value, tuple) else (value,):
                if column:
                    used.setdefault(column, name)
        return used


@dataclass(frozen=True)
class DroppedVotes:
    """Votes of a table that are not imported, for one reason."""

    reason: str
    fault: bool
    """Whether they cannot be used, so that nothing is imported unless `partial` is set."""
    count: int
    places: tuple[str, ...]
    """The first of them."""


@dataclass(frozen=True)
class ImportReport:
    """The result of an import."""

    votes: int
    """New votes."""
    revised: int
    """Votes of the table that another one of the same rater on the pair replaces."""
    known: int
    """Votes that were imported before."""
    items: int
    """New items."""
    raters: int
    """New raters."""
    dropped: tuple[DroppedVotes, ...]
    """Votes that are not imported."""
    remarks: tuple[str, ...]
    """Names in several spellings, columns without use, rejected work that was kept."""


@dataclass(frozen=True)
class ChoiceWord:
    """A choice of a table: the number of its votes, and its meaning, empty if unknown."""

    word: str
    count: int
    means: str


@dataclass(frozen=True)
class ExampleVote:
    """A vote of a table. `means` is its choice: a meaning of a word, in the order of the columns."""

    prompt: str
    first: str
    second: str
    rater: str
    means: str


@dataclass(frozen=True)
class ImportPreview:
    """The result that an import would have."""

    mapping: VoteMapping
    """Roles of the columns, as given and guessed."""
    votes: int
    raters: int
    new_raters: int
    items: int
    choices: tuple[ChoiceWord, ...]
    """The most frequent choices."""
    more_choices: int
    """Choices that are not listed."""
    faults: int
    """Votes that cannot be used: nothing is imported unless `partial` is set."""
    dropped: tuple[DroppedVotes, ...]
    remarks: tuple[str, ...]
    examples: tuple[ExampleVote, ...]


OPTIONAL = ("model_a", "model_b", "time", "reason")
"""Fields of columns that a table need not have."""
USUAL: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt", "question", "instruction", "input", "query", "context"),
    "a": ("completion_a", "response_a", "answer_a", "output_a", "response_1", "output_1", "answer_1", "a"),
    "b": ("completion_b", "response_b", "answer_b", "output_b", "response_2", "output_2", "answer_2", "b"),
    "choice_column": ("preference", "choice", "winner", "verdict", "label", "vote"),
    "rater": ("evaluator", "rater", "annotator", "annotator_id", "worker", "worker_id", "judge", "user"),
    "model_a": ("model_a", "model_1"),
    "model_b": ("model_b", "model_2"),
    "time": ("timestamp", "time", "created", "date"),
    "reason": ("reason", "why", "comment", "justification"),
}
"""Common column names, by the field of `VoteMapping`."""


def meaning_of(text: str) -> tuple[str, int]:
    """The verdict and strength of a word in `MEANINGS`. Raises FieldError if the word is not in `MEANINGS`."""
    refusal = Sentence("“%(given)s” is no meaning of a choice; it is one of %(known)s.")
    return find_named("choice", text.strip().lower(), CHOICES, refusal, known=MEANINGS)


def guess_mapping(table: Table, **given: Any) -> VoteMapping:
    """The mapping of a table: the values `given`, and for the others the columns with common names. A column of times
    begins with one."""
    spelt = {fold_name(column): column for column in reversed(table.columns)}
    values: dict[str, Any] = {}
    for name, usual in USUAL.items():
        column = next((spelt[each] for each in usual if each in spelt), None)
        if column is not None and (name != "time" or _begins_with_time(table, column)):
            values[name] = (column,) if name == "prompt" else column
    return VoteMapping(**values | given)


def _begins_with_time(table: Table, column: str) -> bool:
    """Whether the first cell of a column that is not empty holds a time."""
    try:
        return any(cell_time(row.values, column) for row in table.rows)
    except Unusable:
        return False

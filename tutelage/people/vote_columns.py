"""The columns of a table of votes: which hold what, and what the words for a choice mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tutelage.base.errors import TutelageError
from tutelage.data.tables import Table
from tutelage.people.fields import FieldError, find_named
from tutelage.people.kinds.kind import Kind
from tutelage.people.languages import Sentence, counted

CHOICES: Mapping[str, tuple[str, int]] = {
    "a": ("a", 2), "b": ("b", 2), "model_a": ("a", 2), "model_b": ("b", 2), "tie": ("tie", 0), "equal": ("tie", 0),
    "a-is-slightly-better": ("a", 1), "a-is-better": ("a", 2), "a-is-much-better": ("a", 3),
    "b-is-slightly-better": ("b", 1), "b-is-better": ("b", 2), "b-is-much-better": ("b", 3),
    "both_bad": ("both_bad", 0), "bothbad": ("both_bad", 0), "tie (bothbad)": ("both_bad", 0), "skip": ("skip", 0),
}  # fmt: skip
"""What the words for a choice mean: verdict and strength. Spelling in capitals or small letters does not matter."""
MEANINGS = tuple(
    word for word in CHOICES if word not in ("model_a", "model_b", "equal", "bothbad", "tie (bothbad)")
)
"""The words that a table's own words may be given the meaning of."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table of votes. `prompt` may be several, joined by blank lines. A row holds one vote, of the
    rater in `rater`; or, with `annotators`, the votes of so many raters, each in a column of its own that is named
    after the rater, where an empty cell is no vote. `time` is read as ISO 8601 or as seconds since the epoch; `choices`
    gives the meaning of other words than those in `CHOICES`."""

    prompt: str | tuple[str, ...] = "prompt"
    a: str = "completion_a"
    b: str = "completion_b"
    choice: str = "preference"
    rater: str = "evaluator"
    model_a: str | None = None
    model_b: str | None = None
    time: str | None = None
    reason: str | None = None
    choices: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    annotators: tuple[str, ...] = ()

    @property
    def prompts(self) -> tuple[str, ...]:
        """The columns that make up the prompt."""
        return (self.prompt,) if isinstance(self.prompt, str) else self.prompt


def meaning_of(text: str) -> tuple[str, int]:
    """The verdict and strength that a word of `MEANINGS` stands for.

    Raises:
        FieldError: it is none of them.
    """
    refusal = Sentence("“%(given)s” is no meaning of a choice; it is one of %(known)s.")
    return find_named("means", text.strip().lower(), CHOICES, refusal, known=MEANINGS)


def require_columns(table: Table, columns: Columns, kind: Kind) -> None:
    """Raises FieldError for the first column that the table lacks, with what it has; a table of pairs is told what to
    do."""
    needed = _needed(columns, kind)
    missing = {name: field for name, field in needed if name not in table.columns}
    if {"chosen", "rejected"} <= set(table.columns) and {"rater", "annotators"} & set(missing.values()):
        raise TutelageError(
            Sentence(
                "%(source)s holds pairs without votes (chosen, rejected). To ask people about them, make questions of "
                "them: tutelage collect init STUDY --from-pairs %(source)s.",
                source=str(table.source),
            )
        )
    if missing:
        raise FieldError(
            next(iter(missing.values())),
            Sentence(
                "%(source)s has no column %(missing)s; it has %(known)s. Say which columns hold the votes.",
                source=str(table.source),
                missing=", ".join(repr(name) for name in missing),
                known=_listed(table.columns),
            ),
        )


def _needed(columns: Columns, kind: Kind) -> list[tuple[str, str]]:
    """The columns that are read, each with the field of `Columns` that names it."""
    who = [(name, "annotators") for name in columns.annotators] or [(columns.rater, "rater")]
    if kind.traits.sides and not columns.annotators:
        who = [(columns.choice, "choice"), *who]
    others = ((getattr(columns, field), field) for field in ("model_a", "model_b", "time", "reason"))
    return [
        *((name, "prompt") for name in columns.prompts),
        (columns.a, "a"),
        (columns.b, "b"),
        *who,
        *((name, field) for name, field in others if name),
    ]


def _listed(names: Sequence[str], most: int = 30) -> str:
    shown = ", ".join(names[:most])
    if len(names) <= most:
        return shown
    return counted(
        "%(shown)s and %(count)s other",
        "%(shown)s and %(count)s others",
        count=len(names) - most,
        shown=shown,
    )

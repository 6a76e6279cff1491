"""Detection of the format of a table."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.data.readers import BrokenRow, TableRow, Values
from tutelage.data.row_values import is_provenance
from tutelage.data.tables import Table

SAMPLE = 2_000
"""Maximum number of rows from which the format is recognised."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


Arrangement: TypeAlias = tuple[Sequence[TableRow], Sequence[BrokenRow]]
"""Rows that are each parsed into one record, and rows of the source from which none could be created."""


def unchanged(rows: Sequence[TableRow]) -> Arrangement:
    """One record per row."""
    return rows, ()


@dataclass(frozen=True)
class RowFormat(Generic[T_co]):
    """Set of columns and its parser. `needs` are required columns, `also` optional ones; `fits` inspects values if
    the columns are ambiguous. `parse` creates the record or raises `Unusable` with the reason. `arrange` maps rows
    of the source to rows to parse, if they are not one to one. `remark` is a message about the format. Errors list
    the format as `listed`, by default its name. An `exhaustive` format guesses the prompt, so it must read every column
    of text. `metadata` are columns that it leaves out by its description. Column names are case-insensitive (see
    `spelt`)."""

    name: str
    needs: tuple[str, ...]
    parse: Callable[[Values], T_co]
    also: tuple[str, ...] = ()
    fits: Callable[[Values], bool] = lambda values: True
    arrange: Callable[[Sequence[TableRow]], Arrangement] = unchanged
    remark: Callable[[Sequence[TableRow]], str] = lambda rows: ""
    listed: str = ""
    exhaustive: bool = False
    metadata: frozenset[str] = frozenset()

    def matches(self, values: Values) -> bool:
        """Whether the row looks like this format; it may still fail to parse."""
        return all(values.get(column) is not None for column in self.needs) and self.fits(values)

    def columns(self, table: Table) -> tuple[str, ...]:
        """Columns of the table that this format reads."""
        return tuple(column for column in table.columns if column in self.needs + self.also)

    def check_exhaustive(self, table: Table) -> None:
        """Raise TutelageError if the format guesses the prompt although a column of texts is left over."""
        left = (c for c in table.columns if c not in self.needs + self.also and not is_provenance(c))
        column = (
            next((column for column in left if _may_hold_prompts(table, column)), None) if self.exhaustive else None
        )
        if column is not None:
            raise TutelageError(
                f"{table.source} would be read as {self.name}, but it has a column {column}, which may hold the "
                "prompts: rename it to prompt, or remove it if it is something else."
            )

    def spelt(self, table: Table) -> Table:
        """Rename the columns of this format to their canonical names: "Prompt" becomes "prompt", unless there is a
        "prompt" or another candidate."""
        names = _respelt(table.columns, (*self.needs, *self.also))
        return table.renamed(names) if names else table


def _may_hold_prompts(table: Table, column: str) -> bool:
    """Whether most rows have a text of several words in the column, and most of these texts differ."""
    texts = [value for row in table.rows if isinstance(value := row.values.get(column), str) and len(value.split()) > 1]
    return len(texts) * 2 >= len(table.rows) and len(set(texts)) * 2 > len(texts)


def _respelt(columns: Sequence[str], names: Sequence[str]) -> Mapping[str, str]:
    """Column -> canonical name, if they differ only in case or surrounding white space."""
    alike: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        alike[column.strip().casefold()].append(column)
    absent = (name for name in names if name not in columns)
    candidates_of = ((alike.get(name.casefold(), []), name) for name in absent)
    return {candidates[0]: name for candidates, name in candidates_of if len(candidates) == 1}


def recognise(
    table: Table, what: str, formats: Sequence[RowFormat[T]], others: Mapping[str, Sequence[RowFormat[object]]]
) -> RowFormat[T]:
    """First format that fits at least half of the rows (of SAMPLE evenly spaced ones, of a table with more); otherwise
    the one that fits most.

    Raises TutelageError with the columns of the table, the supported sets for `what`, and the name of the other kind
    of data (a key of `others`) that the table looks like.
    """
    sample = table.sample(SAMPLE)
    counts = [_matching(form, sample) for form in formats]
    enough = min(max(counts), (len(sample.rows) + 1) // 2)
    if enough:
        return next(form for form, count in zip(formats, counts, strict=True) if count >= enough)
    kin = (
        f" It looks like {kind} ({form.name})."
        for kind, forms in others.items()
        for form in forms
        if _matching(form, sample)
    )
    understood = " · ".join(dict.fromkeys(form.listed or form.name for form in formats))
    raise TutelageError(
        f"{table.source} has the columns {', '.join(table.columns)}, from which no {what} can be read.{next(kin, '')} "
        f"Understood as {what}: {understood}."
    )


def _matching(form: RowFormat[object], table: Table) -> int:
    return sum(form.matches(row.values) for row in form.spelt(table).rows)

"""Recognition of the format of a table."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.data.readers import BrokenRow, TableRow, Values
from tutelage.data.tables import Table

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def always(values: Values) -> bool:
    """Fits every row that has the columns."""
    return True


Arrangement: TypeAlias = tuple[Sequence[TableRow], Sequence[BrokenRow]]
"""Rows, each of which is parsed into one record, and those of the source from which none could be made."""


def unchanged(rows: Sequence[TableRow]) -> Arrangement:
    """One record for each row."""
    return rows, ()


def no_remark(rows: Sequence[TableRow]) -> str:
    """No remark."""
    return ""


@dataclass(frozen=True)
class RowFormat(Generic[T_co]):
    """A set of columns and what becomes of them. `needs` are the columns a row must have, `also` those that are read
    when they are there, `fits` looks at the values where the columns alone do not decide. `parse` makes the record or
    raises `Unusable` with the reason. `arrange` makes the rows that are parsed of those of the source, where one row
    holds several records or several rows one. `remark` is what the reader of the rows is told about the format. Errors
    that list what is understood have `listed` for it, its name where that is empty. Names of columns count in any case
    (see `spelt`)."""

    name: str
    needs: tuple[str, ...]
    parse: Callable[[Values], T_co]
    also: tuple[str, ...] = ()
    fits: Callable[[Values], bool] = always
    arrange: Callable[[Sequence[TableRow]], Arrangement] = unchanged
    remark: Callable[[Sequence[TableRow]], str] = no_remark
    listed: str = ""

    def matches(self, values: Values) -> bool:
        """Whether the row looks like this format; that it can be parsed is not promised."""
        return all(values.get(column) is not None for column in self.needs) and self.fits(values)

    def columns(self, table: Table) -> tuple[str, ...]:
        """The columns of the table that this format reads."""
        return tuple(column for column in table.columns if column in self.needs + self.also)

    def spelt(self, table: Table) -> Table:
        """The table with the columns of this format under the names that it knows: "Prompt" becomes "prompt" where
        there is no "prompt", and no second column that could be meant."""
        names = _respelt(table.columns, (*self.needs, *self.also))
        return table.renamed(names) if names else table


def _respelt(columns: Sequence[str], names: Sequence[str]) -> Mapping[str, str]:
    """Column -> the name by which it is known, where the two differ in case or surrounding white space alone."""
    alike: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        alike[column.strip().casefold()].append(column)
    absent = (name for name in names if name not in columns)
    candidates_of = ((alike.get(name.casefold(), []), name) for name in absent)
    return {candidates[0]: name for candidates, name in candidates_of if len(candidates) == 1}


def recognise(
    table: Table,
    what: str,
    formats: Sequence[RowFormat[T]],
    others: Mapping[str, Sequence[RowFormat[object]]],
) -> RowFormat[T]:
    """The first format that fits at least half of the rows; where none does, the one that fits most.

    Raises TutelageError with the columns found, the sets understood for `what`, and the name of the other kind of data
    (a key of `others`) that the table looks like.
    """
    counts = [_matching(form, table) for form in formats]
    enough = min(max(counts), (len(table.rows) + 1) // 2)
    if enough:
        return next(form for form, count in zip(formats, counts, strict=True) if count >= enough)
    kin = (
        f" It looks like {kind} ({form.name})."
        for kind, forms in others.items()
        for form in forms
        if _matching(form, table)
    )
    understood = " · ".join(dict.fromkeys(form.listed or form.name for form in formats))
    raise TutelageError(
        f"{table.source} has the columns {', '.join(table.columns)}, from which no {what} can be read.{next(kin, '')} "
        f"Understood as {what}: {understood}."
    )


def _matching(form: RowFormat[object], table: Table) -> int:
    return sum(form.matches(row.values) for row in form.spelt(table).rows)

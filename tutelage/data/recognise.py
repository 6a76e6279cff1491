"""Which of several known formats a table is in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tutelage.data.readers import Values
from tutelage.data.tables import Table
from tutelage.errors import TutelageError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def always(values: Values) -> bool:
    """Fits every row that has the columns."""
    return True


@dataclass(frozen=True)
class Format(Generic[T_co]):
    """A set of columns and what becomes of them. `needs` are the columns a row must have, `also` those that are read
    when they are there, `fits` looks at the values where the columns alone do not decide. `parse` makes the record or
    raises `Unusable` with the reason."""

    name: str
    needs: tuple[str, ...]
    parse: Callable[[Values], T_co]
    also: tuple[str, ...] = ()
    fits: Callable[[Values], bool] = always

    def matches(self, values: Values) -> bool:
        """Whether the row looks like this format; that it can be parsed is not promised."""
        return all(values.get(column) is not None for column in self.needs) and self.fits(values)

    def columns(self, table: Table) -> tuple[str, ...]:
        """The columns of the table that this format reads."""
        return tuple(column for column in table.columns if column in self.needs + self.also)


def recognise(
    table: Table, what: str, formats: Sequence[Format[T]], others: Mapping[str, Sequence[Format[object]]]
) -> Format[T]:
    """The first format that fits at least half of the rows; where none does, the one that fits most.

    Raises TutelageError with the columns found, the sets understood for `what`, and the name of the other kind of data
    (a key of `others`) that the table looks like.
    """
    counts = [sum(form.matches(row.values) for row in table.rows) for form in formats]
    enough = min(max(counts), (len(table.rows) + 1) // 2)
    if enough:
        return next(form for form, count in zip(formats, counts, strict=True) if count >= enough)
    kin = (
        f" It looks like {kind} ({form.name})."
        for kind, forms in others.items()
        for form in forms
        if any(form.matches(row.values) for row in table.rows)
    )
    understood = " · ".join(dict.fromkeys(form.name for form in formats))
    raise TutelageError(
        f"{table.source} has the columns {', '.join(table.columns)}, from which no {what} can be read.{next(kin, '')} "
        f"Understood as {what}: {understood}."
    )

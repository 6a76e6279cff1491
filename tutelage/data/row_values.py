"""Conversion of cells to values of records; raises `Unusable` with the reason, which is counted and printed.

`Cells` is a row that remembers what was read of it, so that an `Account` can list what a file contains and its records
do not: columns, and keys of the objects in them.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tutelage.base.nouns import counted
from tutelage.data.readers import Values, a_type
from tutelage.data.records import AssistantTurn


class Unusable(Exception):
    """Raised if a row cannot become a record. The text is the reason, the same for all rows with the same problem."""


class ImageInRow(Unusable):
    """Raised if a row has an image where only text is read."""


class LeftOut(Exception):
    """Raised for a valid row that is excluded (a duplicate prompt, a completion labelled bad). Counted separately: a
    number of `thing`, for one `reason`."""

    def __init__(self, thing: str, reason: str) -> None:
        super().__init__(reason)
        self.thing, self.reason = thing, reason


class Cells(Mapping[str, object]):
    """Cells of a row, or of an object in one of them; remembers which were read, and remarks on how. With `images`,
    its messages may have images."""

    __slots__ = ("_read", "_values", "images", "inside", "remarks")

    def __init__(self, values: Values, read: Iterable[str] = (), *, images: bool = False) -> None:
        self._values, self._read, self.images = values, set(read), images
        self.inside: tuple[tuple[str, Cells], ...] = ()
        """Objects within the cells, each with the name of its column."""
        self.remarks: tuple[str, ...] = ()
        """Rules by which cells were converted."""

    def __getitem__(self, column: str) -> object:
        self._read.add(column)
        return self._values[column]

    def get(self, column: str, default: Any = None) -> Any:
        """The cell, or the default if there is none."""
        self._read.add(column)
        return self._values.get(column, default)

    def __contains__(self, column: object) -> bool:
        return column in self._values

    def has_any(self, columns: Iterable[str]) -> bool:
        """Whether the row has one of the columns."""
        return not self._values.keys().isdisjoint(columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def unmarked(self) -> Values:
        """The cells, without a memory of which are read."""
        return self._values

    @property
    def read_columns(self) -> frozenset[str]:
        """Names of the cells that were read, or looked for."""
        return frozenset(self._read)

    def within(self, column: str, value: Values) -> "Cells":
        cells = Cells(value, images=self.images)
        self.inside += ((column, cells),)
        return cells

    def remark(self, text: str) -> None:
        """Add a rule by which cells were converted."""
        self.remarks += (text,)

    def unread(self) -> Iterator[str]:
        """Names of the cells that have a value and were not read; "messages.weight" for keys of objects in a cell."""
        if not self._values.keys() <= self._read:
            for column, value in self._values.items():
                if column not in self._read and not _is_blank(value):
                    yield column
        for column, cells in self.inside:
            for key in cells.unread():
                yield f"{column}.{key}"


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str | list | tuple | dict) and not value) or value != value


# fmt: off
PROVENANCE = frozenset((
    "", "unnamed: 0", "__index_level_0__", "id", "uuid", "guid", "key", "idx", "index", "hash", "source", "dataset",
    "url", "license", "licence", "meta", "metadata", "timestamp", "created", "created_at", "updated_at", "date",
    "model", "generator", "annotator", "language", "lang",
))
# fmt: on
"""Names of columns that say what a row is or where it is from. They need no remark if they are not read."""
NAMED = 8
"""Maximum number of unread columns in a remark."""


class Account:
    """What the rows of a file contain and its records do not, and how cells were converted: in how many rows, and
    where first. Identifiers and the provenance of a row are not listed."""

    def __init__(self) -> None:
        self.cells: dict[str, tuple[int, str]] = {}
        """Number of rows and place of the first, by the name of a cell that was not read."""
        self._remarks: dict[str, tuple[int, str]] = {}

    def add(self, cells: Cells, where: str) -> None:
        """Count a row from which a record was made."""
        for into, names in ((self.cells, cells.unread()), (self._remarks, cells.remarks)):
            for name in dict.fromkeys(names):
                count, first = into.get(name, (0, where))
                into[name] = count + 1, first

    @property
    def unread(self) -> tuple[str, ...]:
        """Names of all cells that were not read, without those of the provenance."""
        return tuple(name for name in self.cells if not is_provenance(name))

    def notes(self) -> Iterator[str]:
        """A sentence about all unread cells, and one for each conversion."""
        parts = [f"{name} ({self._place(*self.cells[name])})" for name in sorted(self.unread)]
        more = f", and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
        if parts:
            yield f"not used: {', '.join(parts[:NAMED])}{more}"
        for remark, place in self._remarks.items():
            yield f"{remark} ({self._place(*place)})"

    @staticmethod
    def _place(count: int, where: str) -> str:
        return f"{counted(count, 'row')}, from {where} on" if count > 1 else where


def is_provenance(name: str) -> bool:
    """Whether a column, or a key of an object in one, only says what a row is or where it is from."""
    last = name.rpartition(".")[2].strip().casefold()
    return last in PROVENANCE or last.endswith("_id")


def cell_if(values: Values, column: str, test: Callable[[object], bool]) -> Any:
    """The cell if it passes the test, otherwise None. A cell that does not is not counted as read."""
    value = (values.unmarked if isinstance(values, Cells) else values).get(column)
    return values.get(column) if test(value) else None


def text(values: Values, column: str) -> str:
    """Non-blank text, unchanged."""
    value = optional_text(values, column)
    if not value.strip():
        raise Unusable(f"{column} is empty" if values.get(column) is not None else f"{column} is missing")
    return value


def optional_text(values: Values, column: str) -> str:
    """Text, or "" if there is none."""
    value = values.get(column)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unusable(f"{column} is {a_type(value)}, not text")
    return encodable(value, column)


def holds_half_a_character(value: str) -> bool:
    """Whether the text has a lone surrogate, which UTF-8 cannot encode."""
    try:
        value.encode()  # a search for it takes four times as long
    except UnicodeEncodeError:
        return True
    return False


def as_object(value: object, place: str) -> Values:
    """The value, after checking that it is an object."""
    if not isinstance(value, Mapping):
        raise Unusable(f"{place} is {a_type(value)}, not an object")
    return value


def encodable(value: str, column: str) -> str:
    """The text, after checking that it has no lone surrogate."""
    if holds_half_a_character(value):
        raise Unusable(f"{column} holds half a character (a lone surrogate)")
    return value


def number(values: Values, column: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    """Finite number in [low, high]; the default if the column is absent, null or empty."""
    value = values.get(column)
    if value is None or value == "":
        return default
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unusable(f"{column} is {a_type(value)}, not a number")
    try:
        result = float(_with_point(value, column) if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        raise Unusable(f"{column} is not a number") from None
    if not math.isfinite(result):
        raise Unusable(f"{column} is {'NaN' if math.isnan(result) else 'infinite'}")
    if not low <= result <= high:
        raise Unusable(f"{column} is below {low:g}" if high == math.inf else f"{column} is outside [{low:g}, {high:g}]")
    return result


_COMMA = re.compile(r"\s*([+-]?\d*),(\d+)\s*")


def _with_point(value: str, column: str) -> str:
    """A number as text with a decimal point: "0,75", as many spreadsheets write it, is 0.75."""
    match = _COMMA.fullmatch(value)
    if match is None:
        return value
    if len(match[2]) == 3 and match[1].lstrip("+-0"):
        raise Unusable(f"{column} is {value!r}, where the comma may separate thousands or decimals")
    return f"{match[1]}.{match[2]}"


def truth(values: Values, column: str) -> bool:
    """true/false, 1/0, or either as text (csv)."""
    value = values.get(column)
    if not is_truth(value):
        raise Unusable(f"{column} is neither true nor false")
    return str(value).strip().lower() in _TRUE


_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")


def is_truth(value: object) -> bool:
    """Whether `truth` reads the value."""
    return isinstance(value, bool | int | float | str) and str(value).strip().lower() in (*_TRUE, *_FALSE)


def name(values: Values, column: str) -> str:
    """Id: text or an integer."""
    value = values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(values, column)


def require_answer(values: Values, column: str, answer: AssistantTurn) -> AssistantTurn:
    """The completion from a column, after checking that it is not blank."""
    if isinstance(answer, str) and not answer.strip():
        raise Unusable(f"the answer in {column} is empty" if values.get(column) is not None else f"{column} is missing")
    return answer

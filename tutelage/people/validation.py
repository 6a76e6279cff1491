"""Validation of settings: ranges of numbers, declared with dataclass fields, and errors by field."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence

T = TypeVar("T")
NO_NUMBER = Sentence("%(what)s is “%(given)s”; give a number from %(least)s to %(most)s.")
NO_SHARE = Sentence("%(what)s is “%(given)s”; give a share from 0 to %(most)s.")
NO_WHOLE_NUMBER = Sentence("%(what)s is “%(given)s”; give a whole number from %(least)s to %(most)s.")
LONGEST_SHOWN = 50
"""Maximum number of characters of an unknown name quoted in an error."""


def record_number(text: str) -> int:
    """The record number in a text; 0, which no record has, if invalid or beyond the integers of a database."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


class NumberRange(NamedTuple):
    """The range of a number, which is called `words` in errors. A `share` can be entered in per cent on pages."""

    words: Sentence
    least: float
    most: float
    share: bool = False


def number(
    words: Sentence, least: float, most: float, *, share: bool = False, default: Any = dataclasses.MISSING
) -> Any:
    """A dataclass field for a number from `least` to `most`, or None if its type allows it. The range is used by
    `check_ranges`, forms, flags and the API."""
    return dataclasses.field(default=default, metadata={"limits": NumberRange(words, least, most, share)})


def limits_of(field: "dataclasses.Field[Any]") -> NumberRange | None:
    """The declared range of a field; None if it has none."""
    return field.metadata.get("limits")


class StudyError(TutelageError):
    """An error that people read on pages, in their language: `message` is a `Sentence`, or the template of one with
    these `values`."""

    def __init__(self, message: str, /, **values: object) -> None:
        super().__init__(message if isinstance(message, Sentence) else Sentence(message, **values))


class FieldError(StudyError):
    """An invalid value of a field. `field` is the name of the field in its dataclass or function, and in the form,
    which shows the error next to the input."""

    def __init__(self, field: str, message: str, /, **values: object) -> None:
        super().__init__(message, **values)
        self.field = field


def check_range(field: str, what: Sentence, value: float, least: float, most: float) -> None:
    """Raises FieldError unless the value is a number from `least` to `most`; it is called `what` in the error."""
    if not math.isfinite(value) or not least <= value <= most:
        whole = all(isinstance(number, int) for number in (value, least, most))
        refusal = NO_WHOLE_NUMBER if whole else NO_NUMBER
        raise FieldError(field, refusal.about(what=what, given=value, least=least, most=most))


def check_ranges(settings: Any) -> None:
    """Raises FieldError for the first number of a dataclass outside the range of its field."""
    for field in dataclasses.fields(settings):
        limits, value = limits_of(field), getattr(settings, field.name)
        if limits is not None and value is not None:
            check_range(field.name, limits.words, value, limits.least, limits.most)


def find_named(field: str, name: str, among: Mapping[str, T], refusal: Sentence, *, known: Iterable[str] = ()) -> T:
    """The value called `name` in a mapping.

    Raises:
        FieldError: there is none. The message is `refusal`, a sentence with the placeholders `given` (the name) and
            `known` (the names in `known`, by default all).
    """
    if name not in among:
        names = ", ".join(known) or ", ".join(among)
        raise FieldError(field, refusal.about(given=name[:LONGEST_SHOWN], known=names))
    return among[name]


def storable(text: str) -> str:
    """A text that databases can store: zero characters and lone surrogates become U+FFFD, surrogate pairs their
    character."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", "\ufffd")


def refuse_unstorable(text: str, where: str, field: str = "") -> None:
    """Raises FieldError for a text with a zero character, which PostgreSQL cannot store, or a lone surrogate, which
    UTF-8 cannot encode. `where` is the name of the text, `field` that of the field."""
    if "\x00" in text:
        raise FieldError(field, "%(where)s contains a zero character, which cannot be stored; remove it.", where=where)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(
            field,
            "%(where)s contains half a surrogate pair at character %(number)s, which is no text; remove it.",
            where=where,
            number=error.start + 1,
        ) from error


class FormError:
    """The validation error of a page's form and the name of its field; both empty without an error.

    A template shows it next to that field if the form has it, and otherwise above the forms. Read `above` after the
    forms have been rendered: the layout renders them first.
    """

    def __init__(self, message: str = "", field: str = "") -> None:
        self.message = message
        self.field = field
        self._shown = False

    def __bool__(self) -> bool:
        return bool(self.message)

    def is_about(self, field: str) -> bool:
        """Whether the error belongs to the field."""
        return bool(self.message) and field == self.field

    def beside(self, field: str) -> str:
        """The message to show next to the field, marking it as shown; empty if it belongs to another field."""
        if not self.is_about(field):
            return ""
        self._shown = True
        return self.message

    @property
    def above(self) -> str:
        """The message to show above the forms; empty if it is shown next to its field."""
        return "" if self._shown else self.message

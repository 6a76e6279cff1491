"""Values of a setting: their ranges, declared with the fields of a dataclass, and errors by the name of the value."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence

T = TypeVar("T")
NO_NUMBER = Sentence("%(what)s is “%(given)s”; give a number from %(least)s to %(most)s.")
NO_WHOLE_NUMBER = Sentence("%(what)s is “%(given)s”; give a whole number from %(least)s to %(most)s.")
LONGEST_SHOWN = 50
"""The characters of an unknown name that an error repeats."""


class NumberRange(NamedTuple):
    """The range of a number; `words` name it in errors. A `share` may be written in per cent on a page."""

    words: Sentence
    least: float
    most: float
    share: bool = False


def number(
    words: Sentence, least: float, most: float, *, share: bool = False, default: Any = dataclasses.MISSING
) -> Any:
    """A field of a dataclass for a number from `least` to `most`, or None where its type and default say so.
    `check_ranges`, forms, flags and the API read the range."""
    return dataclasses.field(default=default, metadata={"limits": NumberRange(words, least, most, share)})


def limits_of(field: "dataclasses.Field[Any]") -> NumberRange | None:
    """The range that the field was declared with."""
    return field.metadata.get("limits")


class FieldError(TutelageError):
    """An error in one value of a setting. `field` is its name in the dataclass or function that takes it, and in the
    form, which shows the sentence beside that input."""

    def __init__(self, field: str, message: str, /, **values: object) -> None:
        """`message` is a `Sentence`, or the message of one with these `values`."""
        super().__init__(message if isinstance(message, Sentence) else Sentence(message, **values))
        self.field = field


def check_range(field: str, what: Sentence, value: float, least: float, most: float) -> None:
    """Raises FieldError unless the value is a number from `least` to `most`; `what` names it in the sentence."""
    if not math.isfinite(value) or not least <= value <= most:
        whole = all(isinstance(number, int) for number in (value, least, most))
        refusal = NO_WHOLE_NUMBER if whole else NO_NUMBER
        raise FieldError(field, refusal.about(what=what, given=value, least=least, most=most))


def check_ranges(settings: Any) -> None:
    """Raises FieldError for the first number of a dataclass outside the range that its field declares."""
    for field in dataclasses.fields(settings):
        limits, value = limits_of(field), getattr(settings, field.name)
        if limits is not None and value is not None:
            check_range(field.name, limits.words, value, limits.least, limits.most)


def find_named(
    field: str, name: str, among: Mapping[str, T], refusal: Sentence, *, known: Iterable[str] = ()
) -> T:
    """What is called `name` among things that have names.

    Raises:
        FieldError: nothing is. It says the `refusal`, a sentence without its values, about the name that was `given`
            and those that are `known`: all of them, where no fewer are to be told.
    """
    if name not in among:
        told = ", ".join(known) or ", ".join(among)
        raise FieldError(field, refusal.about(given=name[:LONGEST_SHOWN], known=told))
    return among[name]


def storable(text: str) -> str:
    """A text of a model that databases can store: a zero and half a surrogate pair become U+FFFD, two halves their
    character."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", "\ufffd")


def refuse_unstorable(text: str, where: str, field: str = "") -> None:
    """Raises FieldError for a text with a zero byte (PostgreSQL cannot store it) or half a surrogate pair (no encoding
    has it); `where` names the text, `field` the value of a form."""
    if "\x00" in text:
        raise FieldError(
            field, "%(where)s contains a zero character, which cannot be stored; remove it.", where=where
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(
            field,
            "%(where)s contains half a surrogate pair at character %(number)s, which is no text; remove it.",
            where=where,
            number=error.start + 1,
        ) from error

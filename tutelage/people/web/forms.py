"""Fields of forms, and what is wrong with them, told beside the field."""

from collections.abc import Callable, Mapping
from math import isfinite

from tutelage.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.web.call import Call


class FieldError(TutelageError):
    """What is wrong with one field of a form; `field` is its name."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def given_again(call: Call, problems: Mapping[str, str]) -> Callable[..., str]:
    """What the fields of a form hold: what was sent where there is a problem with it, else what they held before. The
    address of a page fills no form: it may have been written by somebody else."""
    return call.text if problems else lambda name, default="": default


def lines_of(call: Call, name: str) -> tuple[str, ...]:
    """The lines of a field without outer spaces, each once; empty ones are left out."""
    return tuple(dict.fromkeys(line.strip() for line in call.text(name).splitlines() if line.strip()))


def whole_number(call: Call, name: str, what: str, least: int, most: int) -> int:
    """A whole number in a field; `what` begins the sentence about any other value.

    Raises:
        FieldError: it is no whole number, or not between `least` and `most`.
    """
    given = call.text(name)
    known = given.isascii() and given.isdecimal() and len(given) < 10
    if not known or not least <= int(given) <= most:
        raise FieldError(
            name,
            Sentence(
                "%(what)s is “%(given)s”; give a whole number from %(least)s to %(most)s.",
                what=what,
                given=given[:50],
                least=least,
                most=most,
            ),
        )
    return int(given)


def number(call: Call, name: str, what: str, least: float, most: float) -> float:
    """A number in a field, with a decimal point or comma.

    Raises:
        FieldError: it is no number, or not between `least` and `most`.
    """
    given = call.text(name)
    try:
        value = float(given.replace(",", "."))
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not least <= value <= most:
        raise FieldError(
            name,
            Sentence(
                "%(what)s is “%(given)s”; give a number from %(least)s to %(most)s.",
                what=what,
                given=given[:50],
                least=float(least),
                most=float(most),
            ),
        )
    return value


def share(call: Call, name: str, what: str, most: float) -> float:
    """A share in a field, as 0.05 or as 5 %.

    Raises:
        FieldError: it is no number, or not between 0 and `most`.
    """
    given = call.text(name)
    try:
        value = float(given.removesuffix("%").replace(",", ".")) / (100 if given.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not 0 <= value <= most:
        raise FieldError(
            name,
            Sentence(
                "%(what)s is “%(given)s”; give a share from 0 to %(most)s.",
                what=what,
                given=given[:50],
                most=float(most),
            ),
        )
    return value


def reason_of(call: Call) -> str:
    """The reason for an exclusion, from the field of that name.

    Raises:
        FieldError: there is none.
    """
    reason = call.text("reason")[:500]
    if not reason:
        raise FieldError(
            "reason", Sentence("Say why: it is what others will know about the exclusion later.")
        )
    return reason

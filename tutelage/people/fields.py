"""Errors of single values, by the name of the value."""

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence

T = TypeVar("T")
NO_NUMBER = Sentence("%(what)s is “%(given)s”; give a number from %(least)s to %(most)s.")
NO_WHOLE_NUMBER = Sentence("%(what)s is “%(given)s”; give a whole number from %(least)s to %(most)s.")
LONGEST_SHOWN = 50
"""The characters of an unknown name that an error repeats."""


class FieldError(TutelageError):
    """An error in one value of those that make up a setting. `field` is the name of the value, the same in the
    dataclass or function that takes it and in the form of the page, which shows the sentence beside that input."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def check_range(field: str, what: Sentence, value: float, least: float, most: float) -> None:
    """Raises FieldError unless the value is a number from `least` to `most`; `what` names it in words, which begin the
    sentence."""
    if not math.isfinite(value) or not least <= value <= most:
        whole = all(isinstance(number, int) for number in (value, least, most))
        refusal = NO_WHOLE_NUMBER if whole else NO_NUMBER
        raise FieldError(field, refusal.about(what=what, given=value, least=least, most=most))


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

"""Rules for answers that are numbers or formulas, compared with a column of the prompt's row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import ClassVar

from tutelage.base.errors import TutelageError
from tutelage.rewards.limits import LimitExceeded, answered
from tutelage.rewards.patterns import compiled, last_match
from tutelage.rewards.reward import Completion
from tutelage.rewards.rules import column_value

_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d+)?(?:/\d+)?"
)
_DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed")
DIGITS = 640
"""Characters of the longest number that is read: as many digits as every setting of Python reads."""


@dataclass(frozen=True)
class Number:
    """ratio · 10^exponent. The power is never written out, so 1e9999999999 is as good a number as 42."""

    ratio: Fraction
    exponent: int = 0

    def is_near(self, wanted: "Number", tolerance: float) -> bool:
        """|self − wanted| ≤ tolerance · |wanted|, exactly."""
        if not self.ratio or not wanted.ratio:
            return self.ratio == wanted.ratio
        shift = self.exponent - wanted.exponent
        if (
            abs(shift) > 3 * DIGITS
        ):  # more than both ratios, of DIGITS at most, and a tolerance below 1 make up for
            return False
        ratio = self.ratio * Fraction(10) ** shift
        return abs(ratio - wanted.ratio) <= Fraction(tolerance) * abs(wanted.ratio)


def last_number(text: str) -> Number | None:
    """The last number of a text, exactly: "1,234.5", "-3", "2/3" and "1e3" are numbers.

    Raises LimitExceeded where it is longer than `DIGITS`.
    """
    found = (_exact(match) for match in reversed(_NUMBER.findall(text)))
    return next((number for number in found if number is not None), None)


def _exact(text: str) -> Number | None:
    if len(text) > DIGITS:
        raise LimitExceeded(f"The number {text[:20]} … is too long to be read.")
    over, _, under = text.replace(",", "").replace("−", "-").partition("/")
    significand, _, exponent = over.lower().partition("e")
    try:
        return Number(Fraction(significand) / Fraction(under or 1), int(exponent or 0))
    except (ValueError, ZeroDivisionError):
        return None


@dataclass(frozen=True)
class NumberMatch:
    """1 where the last number of the answer is the last number in a column of the prompt's row, else 0.

    Numbers are compared as numbers: 1,000 is 1000.0, 0.5 is 1/2. They may differ by `tolerance` times the wanted one.
    With `pattern` only the last match of a regular expression in the answer is looked into (its first group where it
    has one), as in r"####\\s*(.+)".
    """

    name: ClassVar[str] = "number"
    limited: ClassVar[bool] = True
    column: str = "answer"
    pattern: str = ""
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        compiled(self.pattern)
        if not 0 <= self.tolerance < 1:
            raise TutelageError(
                f"The tolerance of numbers is {self.tolerance:g}; set 0 (exact) or a small share."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the prompts that are read."""
        return (self.column,)

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where a row has no number in the column."""
        return [float(self._right(one)) for one in completions]

    def _right(self, one: Completion) -> bool:
        wanted = self._wanted(one)
        found = answered(self.name, one.answer, lambda: self._found(one.answer))
        return found is not None and found.is_near(wanted, self.tolerance)

    def _found(self, answer: str) -> Number | None:
        return last_number(last_match(self.pattern, answer) or "")

    def _wanted(self, one: Completion) -> Number:
        try:
            wanted = last_number(str(column_value(one, self.column)))
        except LimitExceeded as error:
            raise _unreadable(one, self.column, f"a number of more than {DIGITS} digits") from error
        if wanted is None:
            raise _unreadable(one, self.column, "no number")
        return wanted


@dataclass(frozen=True)
class MathMatch:
    """1 where the answer ends in an expression that is equal to that in a column of the prompt's row, else 0, as the
    library math-verify reads and compares them: LaTeX, fractions, sets, equations, units.

    Raises TutelageError where the library is missing.
    """

    name: ClassVar[str] = "math"
    limited: ClassVar[bool] = True
    column: str = "answer"

    def __post_init__(self) -> None:
        _formulas()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the prompts that are read."""
        return (self.column,)

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where a row has no expression in the column."""
        formulas = _formulas()
        rows = {str(column_value(one, self.column)): one for one in completions}
        wanted = {text: self._expression(text, one) for text, one in rows.items()}

        def right(one: Completion) -> bool:
            expression = wanted[str(one.data[self.column])]
            return answered(self.name, one.answer, lambda: formulas.equal(expression, one.answer)) or False

        return [float(right(one)) for one in completions]

    def _expression(self, text: str, one: Completion) -> str:
        """The text of a column as it is read: LaTeX without delimiters gets them."""
        bare = "\\" in text and not _DELIMITED.search(text)
        expression = f"${text}$" if bare else text
        try:
            readable = _formulas().readable(expression)
        except LimitExceeded as error:
            raise _unreadable(one, self.column, "more than math-verify reads in time") from error
        if not readable:
            raise _unreadable(one, self.column, "nothing that math-verify reads")
        return expression


def _formulas() -> ModuleType:
    try:
        from tutelage.rewards import formulas
    except ImportError as error:
        raise TutelageError(
            "The rule math needs the library math-verify: pip install 'tutelage[rules]'. The rule number compares "
            "plain numbers without it."
        ) from error
    return formulas


def _unreadable(one: Completion, column: str, lacking: str) -> TutelageError:
    return TutelageError(
        f"The row of prompt {one.prompt_id} has {lacking} in the column {column!r}: {str(one.data[column])[:60]!r}."
    )

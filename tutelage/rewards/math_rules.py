"""Rules that compare numbers or formulas in a completion with a column of the prompt's row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import ClassVar

from tutelage.base.errors import TutelageError
from tutelage.rewards.reward import Completion
from tutelage.rewards.rules import ColumnRule
from tutelage.rewards.sandbox import LimitExceeded, answered, compiled, last_match

_NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d+)?(?:/\d+)?")
_DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed")
DIGITS = 640
"""Maximum length of a number in characters, which Python parses under all its settings."""


@dataclass(frozen=True)
class Number:
    """Number ratio · 10^exponent. The power is never expanded, so 1e9999999999 is as cheap as 42."""

    ratio: Fraction
    exponent: int = 0

    def is_near(self, wanted: "Number", tolerance: float) -> bool:
        """|self − wanted| ≤ tolerance · |wanted|, exactly."""
        if not self.ratio or not wanted.ratio:
            return self.ratio == wanted.ratio
        shift = self.exponent - wanted.exponent
        if abs(shift) > 3 * DIGITS:  # exceeds both ratios, of at most DIGITS, and any tolerance below 1
            return False
        ratio = self.ratio * Fraction(10) ** shift
        return abs(ratio - wanted.ratio) <= Fraction(tolerance) * abs(wanted.ratio)


def last_number(text: str) -> Number | None:
    """Last number of a text, exactly: "1,234.5", "-3", "2/3" and "1e3" are numbers.

    Raises LimitExceeded if it is longer than `DIGITS`.
    """
    numbers = (_exact(match) for match in reversed(_NUMBER.findall(text)))
    return next((number for number in numbers if number is not None), None)


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
class NumberMatch(ColumnRule):
    r"""1 if the last number of the completion equals the last number in a column of the prompt's row, else 0.

    Numbers are compared by value: 1,000 is 1000.0, 0.5 is 1/2. `tolerance` is relative to the reference. `pattern`
    restricts the search to the last match of a regular expression in the completion (its first group, if any), as in
    r"####\s*(.+)".
    """

    name: ClassVar[str] = "number"
    sandboxed: ClassVar[bool] = True
    pattern: str = ""
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        compiled(self.pattern)
        if not 0 <= self.tolerance < 1:
            raise TutelageError(f"The tolerance of numbers is {self.tolerance:g}; set 0 (exact) or a small share.")

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError if a row has no number in the column."""
        return [float(self._is_right(one)) for one in completions]

    def _is_right(self, one: Completion) -> bool:
        wanted = self._wanted(one)
        number = answered(self.name, one.answer, lambda: last_number(last_match(self.pattern, one.answer) or ""))
        return number is not None and number.is_near(wanted, self.tolerance)

    def _wanted(self, one: Completion) -> Number:
        try:
            wanted = last_number(self.value(one))
        except LimitExceeded as error:
            raise _unreadable(one, self.column, f"a number of more than {DIGITS} digits") from error
        if wanted is None:
            raise _unreadable(one, self.column, "no number")
        return wanted


@dataclass(frozen=True)
class MathMatch(ColumnRule):
    """1 if the completion ends with an expression equal to that in a column of the prompt's row, else 0, as parsed and
    compared by the library math-verify: LaTeX, fractions, sets, equations, units.

    Raises TutelageError if the library is missing.
    """

    name: ClassVar[str] = "math"
    sandboxed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _formulas()

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError if a row has no expression in the column."""
        formulas = _formulas()
        rows = {self.value(one): one for one in completions}
        wanted = {text: self._expression(text, one) for text, one in rows.items()}

        def is_right(one: Completion) -> bool:
            expression = wanted[self.value(one)]
            return answered(self.name, one.answer, lambda: formulas.equal(expression, one.answer)) or False

        return [float(is_right(one)) for one in completions]

    def _expression(self, text: str, one: Completion) -> str:
        """Text of a column with delimiters added to bare LaTeX."""
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

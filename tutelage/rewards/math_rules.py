"""Rules for answers that are numbers or formulas, compared with a column of the prompt's row."""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from tutelage.errors import TutelageError
from tutelage.rewards.reward import Completion
from tutelage.rewards.rules import column_value, compiled, last_match

_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:[eE][-+]?\d+)?(?:/\d+)?"
)
_DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed")
SECONDS = 5
"""Seconds that math-verify may think about one answer."""


def last_number(text: str) -> Fraction | None:
    """The last number of a text, exactly: "1,234.5", "-3", "2/3" and "1e3" are numbers."""
    found = [number for match in _NUMBER.finditer(text) if (number := _exact(match[0])) is not None]
    return found[-1] if found else None


def _exact(text: str) -> Fraction | None:
    over, _, under = text.replace(",", "").replace("−", "-").partition("/")
    try:
        return Fraction(over) / Fraction(under or 1)
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
        wanted = last_number(str(column_value(one, self.column)))
        if wanted is None:
            raise _unreadable(one, self.column, "no number")
        found = last_number(last_match(self.pattern, one.answer) or "")
        return found is not None and abs(found - wanted) <= Fraction(self.tolerance) * abs(wanted)


@dataclass(frozen=True)
class MathMatch:
    """1 where the answer ends in an expression that is equal to that in a column of the prompt's row, else 0, as the
    library math-verify reads and compares them: LaTeX, fractions, sets, equations, units.

    Raises TutelageError where the library is missing.
    """

    name: ClassVar[str] = "math"
    column: str = "answer"

    def __post_init__(self) -> None:
        _math_verify()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the prompts that are read."""
        return (self.column,)

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where a row has no expression in the column."""
        wanted = {str(column_value(one, self.column)): one for one in completions}
        parsed = {text: self._expression(text, one) for text, one in wanted.items()}
        return [float(self._right(parsed[str(one.data[self.column])], one.answer)) for one in completions]

    def _expression(self, text: str, one: Completion) -> Any:
        bare = "\\" in text and not _DELIMITED.search(text)
        found = _parsed(f"${text}$" if bare else text)
        if all(isinstance(part, str) for part in found):
            raise _unreadable(one, self.column, "nothing that math-verify reads")
        return found

    def _right(self, wanted: Any, answer: str) -> bool:
        return bool(_math_verify().verify(wanted, _parsed(answer), timeout_seconds=_seconds()))


def _parsed(text: str) -> Any:
    return _math_verify().parse(text, parsing_timeout=_seconds())


def _seconds() -> int | None:
    """The library's time limit works by a signal, which only the main thread may wait for."""
    return SECONDS if threading.current_thread() is threading.main_thread() else None


def _math_verify() -> Any:
    try:
        import math_verify
    except ImportError as error:
        raise TutelageError(
            "The rule math needs the library math-verify: pip install 'tutelage[rules]'. The rule number compares "
            "plain numbers without it."
        ) from error
    return math_verify


def _unreadable(one: Completion, column: str, lacking: str) -> TutelageError:
    return TutelageError(
        f"The row of prompt {one.prompt_id} has {lacking} in the column {column!r}: {str(one.data[column])[:60]!r}."
    )

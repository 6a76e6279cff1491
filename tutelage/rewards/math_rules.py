"""Rules that compare numbers or formulas in a completion with a column of the prompt's row."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

from tutelage.base.errors import TutelageError
from tutelage.rewards.numerals import DIGITS, Mark, Number, Parts, last_number, numerals_of
from tutelage.rewards.reward import Completion
from tutelage.rewards.rules import ColumnRule, CompletionRule
from tutelage.rewards.sandbox import LimitExceeded, answered, compiled, last_match

ROUNDING = 1e-6
"""Relative tolerance of numbers of which one is no whole number, unless the rule has another."""

_PROSE = re.compile(r"[^\W\d_]{3,}(?<!sin)(?<!cos)(?<!tan)(?<!log)(?<!exp)(?<!sqrt)|[\n#:$]|\de[+-]?\d", re.IGNORECASE)
"""What a bare formula does not have: words, lines, marks such as `####`, times, and 1e5, which LaTeX reads as 1·e·5."""
_DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"[{}]")
_MISREAD = re.compile(r"[eE:'_xX×·]|\d \d|\..*\.|/.*/|\d{4}-\d\d-\d\d|[a-z]{3}|[千万萬億亿]")
"""What numerals have that math-verify reads in part: it takes 1e5 and 1 000 for 1, 12:00 for 12, 5 million for 5, and
1.000.000 for 0."""
_RANGE = re.compile(r"\d\s*[–—]\s*\d[\d.,]*\D*\Z")
_OPERATORS = re.compile(r"[-+*/^<>|!√π(){}\[\]]")


@dataclass(frozen=True)
class NumberMatch(ColumnRule, CompletionRule):
    r"""1 if the last number of the completion equals the last number in a column of the prompt's row, else 0.

    Numbers are read in the notations of `rewards.numerals` and compared by value: 1,000 is 1000.0, 0.5 is 1/2, 9{,}500
    is 9500; a last number that cannot be read, such as 2^10, is no match. `mark` is the decimal mark where a single
    separator leaves it open: 1.234 is 1234 with mark=",". `tolerance` is relative to the reference. Of several values
    in the column, those without a number are ignored. `pattern` restricts the search to the last match of a regular
    expression in the completion (its first group, if any), as in r"####\s*(.+)".
    """

    name: ClassVar[str] = "number"
    sandboxed: ClassVar[bool] = True
    pattern: str = ""
    tolerance: float | None = None
    mark: Mark = "."

    def __post_init__(self) -> None:
        compiled(self.pattern)
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise TutelageError(f"The tolerance of numbers is {self.tolerance:g}; set 0 (exact) or a small share.")

    def score(self, one: Completion) -> float:
        """Score of a completion. Raises TutelageError if the row has no number in the column."""
        accepted = self._wanted(one)
        last = answered(self.name, one.answer, lambda: self._last(last_match(self.pattern, one.answer) or ""))
        return any(self._equal(last, wanted) for wanted in accepted)

    def _last(self, text: str) -> Number | Parts | None:
        return last_number(text, self.mark)

    def _equal(self, last: Number | Parts | None, wanted: Number | Parts) -> bool:
        if isinstance(last, Number) and isinstance(wanted, Number):
            if self.tolerance is None and last.is_whole() and wanted.is_whole():
                return last == wanted
            return last.is_near(wanted, ROUNDING if self.tolerance is None else self.tolerance)
        return last == wanted

    def _wanted(self, one: Completion) -> list[Number | Parts]:
        """Numbers of the column, at least one."""
        wanted: list[Number | Parts] = []
        lacking = "no number that the rule number reads"
        for text in self.accepted(one):
            try:
                number = self._last(text)
            except LimitExceeded:
                lacking = f"a number of more than {DIGITS} digits"
                continue
            wanted += [] if number is None else [number]
        if not wanted:
            raise _unreadable(one, self.column, lacking)
        return wanted


@dataclass(frozen=True)
class MathMatch(ColumnRule):
    """1 if the completion ends with an expression equal to that in a column of the prompt's row, else 0, as parsed and
    compared by the library math-verify: LaTeX, fractions, sets, equations, units. Outside LaTeX, numerals that the
    library would read in part have the value of `rewards.numerals` (1e5, 1 000, 5 million); dates, times, ratios and
    ranges have none, and are refused in a column. Of several boxes the last is the answer, or all of them are.

    Raises TutelageError if the library is missing.
    """

    name: ClassVar[str] = "math"
    sandboxed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _formulas()

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError if a row has no expression in the column."""
        formulas = _formulas()
        rows = {text: one for one in completions for text in self.accepted(one)}
        wanted = {text: self._expression(text, one) for text, one in rows.items()}

        def equals(expression: str, one: Completion) -> bool:
            spelt = _spelt(one.answer)
            readings = dict.fromkeys((spelt, _delimited(spelt), *_last_box(spelt)))
            return (
                answered(self.name, one.answer, lambda: any(formulas.equal(expression, x) for x in readings)) or False
            )

        def is_right(one: Completion) -> bool:
            return any(equals(wanted[text], one) for text in self.accepted(one))

        return [float(is_right(one)) for one in completions]

    def _expression(self, text: str, one: Completion) -> str:
        """Text of a column with delimiters added to a bare formula: math-verify would read its last number alone."""
        spelt = _spelt(text)
        numerals, around = numerals_of(text)
        if spelt != text and (not spelt or len(numerals) > 1 or _OPERATORS.search(around)):
            raise _unreadable(
                one, self.column, "a date, a time, a ratio, a range or a list, which is no single number,"
            )
        expression = _delimited(spelt)
        try:
            readable = _formulas().readable(expression)
        except LimitExceeded as error:
            raise _unreadable(one, self.column, "more than math-verify reads in time") from error
        if not readable:
            raise _unreadable(one, self.column, "nothing that math-verify reads")
        return expression


def _spelt(text: str) -> str:
    """Text that ends with a numeral which math-verify would read in part: the numeral in LaTeX, "" if it is no number.
    Any other text is unchanged, and so is LaTeX."""
    if "\\" in text or "$" in text:
        return text
    numerals, _ = numerals_of(text)
    if _RANGE.search(text):
        return ""
    if not numerals or not _MISREAD.search(numerals[-1]):
        return text
    number = last_number(text) if len(numerals[-1]) <= DIGITS else None
    if not isinstance(number, Number):
        return ""
    ratio = rf"\frac{{{number.ratio.numerator}}}{{{number.ratio.denominator}}}"
    return rf"${ratio} \cdot 10^{{{number.exponent}}}$" if number.exponent else f"${ratio}$"


def _delimited(text: str) -> str:
    """Text with delimiters added to a bare formula."""
    bare = text and not _DELIMITED.search(text) and ("\\" in text or not _PROSE.search(text))
    return f"${text}$" if bare else text


def _last_box(text: str) -> Iterator[str]:
    """The last of several boxes of a text, which replaces the others where they are no list of answers."""
    boxes = list(_BOX.finditer(text))
    depth = 0
    for brace in _BRACE.finditer(text, boxes[-1].start()) if len(boxes) > 1 else ():
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            yield f"${text[boxes[-1].start() : brace.end()]}$"
            return


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

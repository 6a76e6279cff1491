"""Parsing and comparison of formulas by the library math-verify, in the worker of `sandbox`.

The library is imported with this module, before the time limit of a completion starts. Its own time limits are
disabled: they rely on a signal, which only works in the main thread and does not interrupt a long multiplication.
"""

import re
from functools import lru_cache
from typing import Any

import math_verify
from sympy import Expr  # type: ignore[import-untyped]

from tutelage.rewards.numerals import with_ascii_digits
from tutelage.rewards.sandbox import limited

SMALL = 1e-3
"""Below it, six decimals are too few to tell numbers apart."""
_DOTS = re.compile(r"\\[lc]?dots")  # math-verify reads 1, 2, \ldots, n as 2
_BETWEEN = r"(?:[ \u00a0\u202f\u2009~'’]|\\[,;: ])"
_GROUPED = re.compile(
    rf"(?<![\w.,^])\d{{1,3}}(?:(?:{_BETWEEN}\d{{3}})+|(?:\.\d{{3}}){{2,}})(?!\d)|(?<=\d\.)(?:\d{{3}}{_BETWEEN})+\d{{1,3}}(?!\d)"
)
"""Digits in groups. math-verify takes groups for factors, so that 10 000 and 20 000 are 0."""
_MEASURES = re.compile(r"(?<=\d)\s*\\(?:text|mathrm|mbox)\{(?!\s*(?:and|or)\s*\})[^{}]*[A-Za-z][^{}]*\}\s*(?=\d)")
"""A unit between two numbers, at which math-verify stops: 1 h 30 min and 1 h 45 min are 1."""
_UPRIGHT = re.compile(r"\\(?:mathrm|text|operatorname)\{([ei])\}")


def readable(text: str) -> bool:
    """Whether the library finds a comparable expression, other than plain text, in it. Raises LimitExceeded."""
    return limited(_readable, text)


def equal(wanted: str, answer: str) -> bool:
    """Whether the completion ends with an expression equal to the reference. Raises LimitExceeded."""
    return limited(_equal, wanted, answer)


def prepare() -> None:
    """Load what the library imports on its first comparisons, which takes longer than they do."""
    _equal(r"$\frac{1}{2}x$", "$0.5$")


def _readable(text: str) -> bool:
    _equal(text, "$0$")
    return not _DOTS.search(text) and any(not isinstance(part, str) for part in _parsed(text))


def _equal(wanted: str, answer: str) -> bool:
    expressions = math_verify.parse(_plain(answer), parsing_timeout=None)
    references = _parsed(wanted)
    if not math_verify.verify(references, expressions, timeout_seconds=None):
        return False
    return not _far(references[0], expressions[0])


def _far(one: Any, other: Any) -> bool:
    """Whether two numbers that are equal to six decimals differ: math-verify considers 1/2^99 equal to 1/2^98."""
    if not (isinstance(one, Expr) and isinstance(other, Expr) and one.is_number and other.is_number):
        return False
    first, second = one.evalf(20), other.evalf(20)
    if not (first.is_real and second.is_real):
        return False
    scales = (1, 100, 0.01) if max(abs(first), abs(second)) >= SMALL else (1,)  # math-verify takes 9 for 9 %
    return all(abs(first - by * second) > SMALL * max(abs(first), abs(second)) for by in scales)


def _plain(text: str) -> str:
    r"""Text with e and i in italics, since math-verify drops \mathrm{e} with all that follows, and with digits
    from 0 to 9 that are in no groups. What follows a unit is the coefficient of a letter."""
    whole = _GROUPED.sub(lambda match: re.sub(rf"{_BETWEEN}|\.", "", match[0]), with_ascii_digits(text))
    return _MEASURES.sub(r"+u\\cdot ", _UPRIGHT.sub(r"\1", whole))


@lru_cache(maxsize=64)
def _parsed(wanted: str) -> Any:
    """Expressions of a reference text, parsed once for all completions of a prompt."""
    return math_verify.parse(_plain(wanted), parsing_timeout=None)

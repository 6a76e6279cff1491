"""Parsing and comparison of formulas by the library math-verify, in the worker of `sandbox`.

The library is imported with this module, before the time limit of a completion starts. Its own time limits are
disabled: they rely on a signal, which only works in the main thread and does not interrupt a long multiplication.
"""

from functools import lru_cache
from typing import Any

import math_verify

from tutelage.rewards.sandbox import limited


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
    return any(not isinstance(part, str) for part in _parsed(text))


def _equal(wanted: str, answer: str) -> bool:
    expressions = math_verify.parse(answer, parsing_timeout=None)
    return bool(math_verify.verify(_parsed(wanted), expressions, timeout_seconds=None))


@lru_cache(maxsize=64)
def _parsed(wanted: str) -> Any:
    """Expressions of a reference text, parsed once for all completions of a prompt."""
    return math_verify.parse(wanted, parsing_timeout=None)

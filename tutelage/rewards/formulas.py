"""Formulas as the library math-verify reads and compares them, computed in the worker of `sandbox`.

The library is imported with this module, so before the time of an answer begins. Its own limits of time work by a
signal, which only the main thread may wait for and which does not end a long multiplication: they are off.
"""

from functools import lru_cache
from typing import Any

import math_verify

from tutelage.rewards.sandbox import limited


def readable(text: str) -> bool:
    """Whether the library reads anything but a text in it, and can compare it. Raises LimitExceeded."""
    return limited(_readable, text)


def equal(wanted: str, answer: str) -> bool:
    """Whether the answer ends in an expression that is equal to the wanted one. Raises LimitExceeded."""
    return limited(_equal, wanted, answer)


def prepare() -> None:
    """Load what the library loads with its first comparisons, which takes longer than they do."""
    _equal(r"$\frac{1}{2}x$", "$0.5$")


def _readable(text: str) -> bool:
    _equal(text, "$0$")
    return any(not isinstance(part, str) for part in _parsed(text))


def _equal(wanted: str, answer: str) -> bool:
    expressions = math_verify.parse(answer, parsing_timeout=None)
    return bool(math_verify.verify(_parsed(wanted), expressions, timeout_seconds=None))


@lru_cache(maxsize=64)
def _parsed(wanted: str) -> Any:
    """The expressions of a wanted text, which all answers to a prompt are compared with."""
    return math_verify.parse(wanted, parsing_timeout=None)

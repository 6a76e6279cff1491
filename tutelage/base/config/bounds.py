"""Bounds on numeric settings, with uniform error messages."""

import dataclasses
import math
import sys
from collections.abc import Iterable
from typing import Any

from tutelage.base.config.hints import default_of, settable
from tutelage.base.errors import TutelageError

INFINITE = {"infinite": True}
"""Metadata of a setting that may be infinite."""


def require_finite(settings: object, section: str = "") -> None:
    """Raise TutelageError if a number in the settings is NaN or infinite, apart from INFINITE ones.

    Called on all settings from flags, files and keyword arguments.
    """
    for field in settable(type(settings)):
        key, value = f"{section}{field.name}", getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            require_finite(value, f"{key}.")
        for number in value if isinstance(value, tuple) else (value,):
            largest = math.inf if INFINITE.items() <= field.metadata.items() else sys.float_info.max
            if isinstance(number, float) and not -sys.float_info.max <= number <= largest:
                raise TutelageError(f"--{key.replace('_', '-')} is {number}; it must be a finite number.")


def _flag(settings: object, name: str) -> str:
    """Return the flag of a setting; a class that is a section names it, with a dot, in SECTION."""
    return f"--{getattr(settings, 'SECTION', '')}{name}".replace("_", "-")


def changed_flags(settings: Any, names: Iterable[str]) -> list[str]:
    """Return the flags of those settings that differ from their defaults."""
    defaults = {field.name: default_of(field) for field in dataclasses.fields(settings)}
    return [_flag(settings, name) for name in names if getattr(settings, name) != defaults[name]]


def at_least(settings: object, **least: float) -> None:
    """Raise TutelageError if a number is below its bound: `at_least(self, steps=1, epochs=0.0)`. None has no bound."""
    for name, bound in least.items():
        value = getattr(settings, name)
        if value is not None and not value >= bound:
            raise TutelageError(f"{_flag(settings, name)} is {value}; it must be at least {bound}.")


def above_zero(settings: object, *names: str) -> None:
    """Raise TutelageError if a number is 0 or below."""
    for name in names:
        value = getattr(settings, name)
        if not value > 0:
            raise TutelageError(f"{_flag(settings, name)} is {value}; it must be above 0.")


def within(settings: object, low: float, high: float, *names: str) -> None:
    """Raise TutelageError if a number is outside the closed interval [low, high]."""
    for name in names:
        value = getattr(settings, name)
        if not low <= value <= high:
            raise TutelageError(f"{_flag(settings, name)} is {value}; it must be from {low} to {high}.")


def a_seed(settings: object) -> None:
    """Raise TutelageError if the seed is not in 0 … 2³² − 1, the range that every random generator accepts."""
    within(settings, 0, 2**32 - 1, "seed")


def a_share(settings: object, *names: str) -> None:
    """Raise TutelageError if a share is outside [0, 1)."""
    for name in names:
        value = getattr(settings, name)
        if not 0 <= value < 1:
            raise TutelageError(
                f"{_flag(settings, name)} is {value}; a share must be at least 0 and below 1 (0.1 is a tenth)."
            )

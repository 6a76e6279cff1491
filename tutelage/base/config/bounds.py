"""Bounds on numeric settings, with uniform error messages."""

from tutelage.base.errors import TutelageError


def at_least(settings: object, **least: float) -> None:
    """Raise TutelageError if a number is below its bound: `at_least(self, steps=1, epochs=0.0)`."""
    for name, bound in least.items():
        value = getattr(settings, name)
        if not value >= bound:
            raise TutelageError(f"--{name.replace('_', '-')} is {value}; it must be at least {bound}.")


def above_zero(settings: object, *names: str) -> None:
    """Raise TutelageError if a number is 0 or below."""
    for name in names:
        value = getattr(settings, name)
        if not value > 0:
            raise TutelageError(f"--{name.replace('_', '-')} is {value}; it must be above 0.")


def within(settings: object, low: float, high: float, *names: str) -> None:
    """Raise TutelageError if a number is outside the closed interval [low, high]."""
    for name in names:
        value = getattr(settings, name)
        if not low <= value <= high:
            raise TutelageError(f"--{name.replace('_', '-')} is {value}; it must be from {low} to {high}.")


def a_seed(settings: object) -> None:
    """Raise TutelageError if the seed is not in 0 … 2³² − 1, the range that every random generator accepts."""
    within(settings, 0, 2**32 - 1, "seed")


def a_share(settings: object, *names: str) -> None:
    """Raise TutelageError if a share is outside [0, 1)."""
    for name in names:
        value = getattr(settings, name)
        if not 0 <= value < 1:
            raise TutelageError(
                f"--{name.replace('_', '-')} is {value}; a share must be at least 0 and below 1 (0.1 is a tenth)."
            )

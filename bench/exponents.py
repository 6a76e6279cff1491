"""The exponent by which a cost grows: that of the power law nearest to some points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Exponents:
    """Over all points, and over the upper half of them, which constant costs flatten less."""

    whole: float
    upper: float

    def __str__(self) -> str:
        return f"{self.whole:.2f}, upper half {self.upper:.2f}"


def exponents(values: Sequence[float], costs: Sequence[float]) -> Exponents:
    """The exponents of costs over ascending values. The upper half has the middle one of an odd number of points, and
    two points at least."""
    half = min(len(values) // 2, len(values) - 2)
    return Exponents(exponent(values, costs), exponent(values[half:], costs[half:]))


def exponent(values: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost over log value by least squares. Raises ValueError where all values are the same."""
    x, y = ([math.log(each) for each in numbers] for numbers in (values, costs))
    if len(set(x)) < 2:
        raise ValueError("an exponent needs two different values")
    middle, height = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - middle) ** 2 for a in x)
    return sum((a - middle) * (b - height) for a, b in zip(x, y, strict=True)) / spread

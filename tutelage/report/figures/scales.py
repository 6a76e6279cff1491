"""Scales: the linear and logarithmic maps from data to pixels, their ticks, and the intervals that axes show."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

LARGEST = 1e100
"""The largest value that is drawn; its inverse is the smallest on a logarithmic axis. Beyond lies overflow."""


def drawable(value: float, log: bool) -> bool:
    """Whether a value has a place on an axis: finite, and positive on a logarithmic one."""
    return abs(value) <= LARGEST and (not log or value >= 1 / LARGEST)


@dataclass(frozen=True)
class Scale:
    """The monotone map of the data interval [low, high] onto the pixels [start, end] (end may lie before start).

    Linear: start + (end - start) (v - low) / (high - low); logarithmic: the same of the logarithms, where low > 0.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def clipped(self, value: float) -> float:
        """The pixel of a value, or of the nearer end of the scale where the value lies outside."""
        return self(min(max(value, self.low), self.high))

    def invert(self, pixel: float) -> float:
        """The value at a pixel: scale.invert(scale(v)) == v."""
        share = (pixel - self.start) / (self.end - self.start)
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + (self.high - self.low) * share

    def shows(self, value: float) -> bool:
        """Whether the value can be drawn."""
        return drawable(value, self.log)

    def ticks(self, count: int = 5) -> tuple[float, ...]:
        """About `count` round values inside [low, high], in order."""
        found = log_ticks(self.low, self.high, count) if self.log else ()
        return found if len(found) >= 2 else linear_ticks(self.low, self.high, count)


def round_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that cuts the span into at most `count` steps."""
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(unit * power for unit in (1, 2, 2.5, 5, 10) if unit * power >= rough * (1 - 1e-9))


def linear_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Multiples of a round step inside [low, high]."""
    step = round_step(high - low, count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(index * step for index in range(first, last + 1))


def log_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Powers of ten inside [low, high]; every second, third … of them where they are many, 1-2-5 where they are few."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    stride = max(1, math.ceil((last - first) / count))
    units = (1, 2, 5) if last - first <= 2 else (1,)
    found = (unit * 10.0**power for power in range(first, last + 1, stride) for unit in units)
    return tuple(tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9))


def domain(
    values: Iterable[float], *, log: bool = False, low: float | None = None, high: float | None = None
) -> tuple[float, float]:
    """An interval that holds every drawable value (and the wished ends), never empty: a lone value gets room around
    it, no value at all gives (0, 1), or (1, 10) on a logarithmic axis."""
    wished = [end for end in (low, high) if end is not None]
    shown = [v for v in [*values, *wished] if drawable(v, log)]
    if not shown:
        return (1.0, 10.0) if log else (0.0, 1.0)
    least, most = min(shown), max(shown)
    if most - least > max(1e-9 * max(abs(least), abs(most)), 1 / LARGEST):
        return least, most
    if log:
        return least / 2, most * 2
    room = abs(least) / 2 or 1.0
    return least - room, most + room


def rounded(low: float, high: float, count: int = 5) -> tuple[float, float]:
    """The interval widened a little: each end to the next multiple of its ticks' step where that is near, else by a
    twentieth, so that a value just below zero does not cost a whole step of empty room."""
    step, room = round_step(high - low, count), (high - low) / 20
    below, above = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return (
        below if low - below <= step / 2 else low - room,
        above if above - high <= step / 2 else high + room,
    )

"""Formatting of numbers, durations and texts for readers."""

import math
from collections.abc import Sequence
from itertools import pairwise

from tutelage.base.nouns import counted

MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits, thousands separators, a true minus sign and no trailing zeros.

    12345 -> 12,345 · 0.03162 -> 0.0316 · -2 -> −2 · 3e-6 -> 3e−6 · NaN -> "not a number".
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e9):
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{_trimmed(mantissa)}e{int(exponent)}"
    elif size >= 10 ** (digits - 1):
        text = f"{value:,.0f}"
    else:
        decimals = digits - 1 - (math.floor(math.log10(size)) if size else 0)
        text = _trimmed(f"{value:.{decimals}f}")
    return "0" if text == "-0" else text.replace("-", MINUS)


def percent(share: float, decimals: int = 0) -> str:
    """Format a share as a percentage: 0.724 -> 72%."""
    return f"{share * 100:.{decimals}f}%".replace("-", MINUS)


def compact(value: float, digits: int = 3) -> str:
    """Format a number compactly: 12,000 -> 12k, 2,500,000 -> 2.5M."""
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if least <= abs(value) < 1e12:
            return number(value / unit, digits) + letter
    return number(value, digits)


def tick_labels(ticks: tuple[float, ...], *, percent: bool = False, log: bool = False) -> tuple[str, ...]:
    """Return the tick labels of an axis; those of a linear axis share a number of decimals, so that they align."""
    values = [round(tick * 100, 9) if percent else tick for tick in ticks]
    sign = "%" if percent else ""
    extreme = any(abs(tick) >= 1e4 or 0 < abs(tick) < 1e-3 for tick in values)
    if log or extreme:
        digits = 3 if log else _digits(values)
        return tuple(compact(tick, digits) + sign for tick in values)
    decimals = max((len(f"{tick:.6g}".partition(".")[2]) for tick in values), default=0)
    return tuple(f"{tick:,.{decimals}f}".replace("-", MINUS) + sign for tick in values)


def _trimmed(decimal: str) -> str:
    """Remove trailing zeros of a decimal number."""
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal


def _digits(ticks: Sequence[float]) -> int:
    """Return the significant digits that distinguish ticks, whose steps have up to two: 1,000,000 and 1,025,000 need
    four."""
    step = min((b - a for a, b in pairwise(ticks)), default=0.0)
    if step <= 0:
        return 3
    largest, smallest = (math.floor(math.log10(value) + 1e-9) for value in (max(map(abs, ticks)), step))
    return max(3, 2 + largest - smallest)


LONGEST = 6000
"""Maximum number of characters of one text on a page."""


def shortened(text: str, limit: int = LONGEST) -> str:
    """Truncate a text to the limit and append the number of omitted characters."""
    return text if len(text) <= limit else f"{text[:limit]} … ({counted(len(text) - limit, 'more character')})"


def signed(value: float, digits: int = 3) -> str:
    """Format a difference with its sign, also when it is positive."""
    text = number(value, digits)
    return text if value <= 0 else f"+{text}"


def fixed(value: float) -> str:
    """Format a score with two decimals, so that columns of scores align."""
    return f"{value:.2f}".replace("-", MINUS)


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 4.2 s · 3 min 20 s · 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"

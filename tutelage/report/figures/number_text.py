"""Numbers as text for a reader: few digits, thousands apart, a true minus sign; and the labels of an axis."""

import math
from collections.abc import Sequence
from itertools import pairwise

MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 3) -> str:
    """A number with `digits` significant ones, thousands apart, a true minus sign and no needless zeros.

    12345 -> 12,345 · 0.03162 -> 0.0316 · -2 -> −2 · 3e-6 -> 3e−6 · NaN -> "not a number".
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e9):
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        written = f"{_trimmed(mantissa)}e{int(exponent)}"
    elif size >= 10 ** (digits - 1):
        written = f"{value:,.0f}"
    else:
        decimals = digits - 1 - (math.floor(math.log10(size)) if size else 0)
        written = _trimmed(f"{value:.{decimals}f}")
    return "0" if written == "-0" else written.replace("-", MINUS)


def percent(share: float, decimals: int = 0) -> str:
    """A share in per cent: 0.724 -> 72%."""
    return f"{share * 100:.{decimals}f}%".replace("-", MINUS)


def compact(value: float, digits: int = 3) -> str:
    """A number in the least room: 12,000 -> 12k, 2,500,000 -> 2.5M."""
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if least <= abs(value) < 1e12:
            return number(value / unit, digits) + letter
    return number(value, digits)


def tick_labels(ticks: tuple[float, ...], *, percent: bool = False, log: bool = False) -> tuple[str, ...]:
    """The labels of an axis' ticks; those of a linear axis have equally many decimals, so that they align."""
    shown = [round(tick * 100, 9) if percent else tick for tick in ticks]
    sign = "%" if percent else ""
    extreme = any(abs(tick) >= 1e4 or 0 < abs(tick) < 1e-3 for tick in shown)
    if log or extreme:
        digits = 3 if log else _digits(shown)
        return tuple(compact(tick, digits) + sign for tick in shown)
    decimals = max((len(f"{tick:.6g}".partition(".")[2]) for tick in shown), default=0)
    return tuple(f"{tick:,.{decimals}f}".replace("-", MINUS) + sign for tick in shown)


def _trimmed(decimal: str) -> str:
    """A decimal number without the zeros that end it."""
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal


def _digits(ticks: Sequence[float]) -> int:
    """The significant digits that tell ticks apart, whose steps have up to two: 1,000,000 and 1,025,000 need four."""
    step = min((b - a for a, b in pairwise(ticks)), default=0.0)
    if step <= 0:
        return 3
    largest, smallest = (math.floor(math.log10(value) + 1e-9) for value in (max(map(abs, ticks)), step))
    return max(3, 2 + largest - smallest)

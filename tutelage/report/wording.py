"""Numbers, times and texts as the pages of this package write them."""

from tutelage.base.nouns import counted
from tutelage.report.figures.number_text import MINUS, number

LONGEST = 6000
"""The most characters of one text on a page."""


def shortened(text: str, limit: int = LONGEST) -> str:
    """A text cut at the limit, with the number of characters left out."""
    return (
        text if len(text) <= limit else f"{text[:limit]} … ({counted(len(text) - limit, 'more character')})"
    )


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign, also when it is positive."""
    written = number(value, digits)
    return written if value <= 0 else f"+{written}"


def fixed(value: float) -> str:
    """A score with two decimals, so that columns of scores align."""
    return f"{value:.2f}".replace("-", MINUS)


def duration(seconds: float) -> str:
    """A time in the two units that matter: 4.2 s · 3 min 20 s · 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"

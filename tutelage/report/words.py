"""How the page writes things: shares, times, differences, and text that others (models, raters) wrote."""

import re
from html import escape

from tutelage.report.scales import MINUS, number

LONGEST = 6000
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """Text that is safe to put into a page once it is escaped: control characters, characters that turn the direction
    of what follows, and halves of surrogate pairs become a visible �."""
    return UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    """Text as it is written in HTML and SVG, in elements and in quoted attributes."""
    return escape(clean(text))


def shortened(text: str, limit: int = LONGEST) -> str:
    """A very long text cut, with the number of characters left out."""
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit:,} more characters)"


def percent(share: float, decimals: int = 0) -> str:
    """A share as per cent: 0.724 -> 72%."""
    return f"{share * 100:.{decimals}f}%".replace("-", MINUS)


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign, also when it is positive."""
    written = number(value, digits)
    return written if value <= 0 else f"+{written}"


def fixed(value: float) -> str:
    """A score among scores: two decimals, so that columns of them align."""
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


def counted(count: int, thing: str) -> str:
    """A number of things: 1 vote, 1,200 votes."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"

"""Numbers and times as people read them; available in the templates as filters."""

import time
from collections.abc import Callable, Mapping

from tutelage.people.web.render import plain, render


def share(value: float | None, digits: int = 0) -> str:
    """0.726 as 73 %; a dash where there is nothing to tell."""
    return "–" if value is None else f"{value:.{digits}%}".replace("%", "\N{NARROW NO-BREAK SPACE}%")


def number(value: float) -> str:
    """12345 as 12,345."""
    return f"{value:,.0f}"


def chance(probability: float) -> str:
    """A p-value in words: 0.00004 as p < 0.001."""
    return "p < 0.001" if probability < 0.001 else f"p = {probability:.3f}"


def seconds(milliseconds: float | None) -> str:
    """92000 as 1 min 32 s."""
    if milliseconds is None:
        return "–"
    whole = round(milliseconds / 1000)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def moment(milliseconds: int | None) -> str:
    """A time in UTC, to the minute."""
    if milliseconds is None:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(milliseconds / 1000))


def ago(milliseconds: int | None, now: int) -> str:
    """The time since a moment in words."""
    if milliseconds is None:
        return "never"
    passed = max(0, now - milliseconds) // 1000
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if passed >= size:
            count = passed // size
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def plural(count: int, one: str, many: str = "") -> str:
    """1 vote, 2 votes."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def spaced(name: str) -> str:
    """both_bad as both bad."""
    return name.replace("_", " ")


FILTERS: Mapping[str, Callable[..., str]] = {
    "share": share,
    "number": number,
    "chance": chance,
    "seconds": seconds,
    "moment": moment,
    "ago": ago,
    "plural": plural,
    "spaced": spaced,
    "markdown": render,
    "as_written": plain,
}

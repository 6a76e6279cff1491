"""Regular expressions in answers. Matches are computed in the worker (see `limits`): a pattern may take for ever."""

import re
from collections import deque

from tutelage.base.errors import TutelageError
from tutelage.rewards.limits import limited


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches. Raises LimitExceeded."""
    return limited(_matches, pattern, text)


def last_match(pattern: str, text: str) -> str | None:
    """The last match of a regular expression, its first group where it has one; the whole text without a pattern.

    Raises LimitExceeded.
    """
    return limited(_last_match, pattern, text) if pattern else text


def compiled(pattern: str) -> re.Pattern[str]:
    """A regular expression whose dot matches line breaks too. Raises TutelageError for any other text."""
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise TutelageError(f"{pattern!r} is no regular expression: {error}.") from error


def _matches(pattern: str, text: str) -> bool:
    return compiled(pattern).fullmatch(text) is not None


def _last_match(pattern: str, text: str) -> str | None:
    last = deque(compiled(pattern).finditer(text), maxlen=1)
    return (last[0][1 if last[0].re.groups else 0] or "") if last else None

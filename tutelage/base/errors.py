"""Exception for errors that users are meant to read, and how one about an unknown name ends."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class TutelageError(Exception):
    """Invalid input or an impossible request, with a one-sentence message: what is wrong, where, and how to fix it.

    The command line prints the message without a traceback and exits with status 2. Any other exception is a bug in
    this package and keeps its traceback.
    """

    page = ""
    """Page of `docs` that explains errors of this class; if empty, the page of the module that raises them."""


def did_you_mean(name: str, known: Iterable[str], *, meant: Sequence[str] = (), most: int = 1) -> str:
    """Return the end of a sentence that refuses an unknown name: a question with those `meant`, else with at most
    `most` known ones that are spelled alike; a full stop if there are none."""
    near = meant or get_close_matches(name, list(known), n=most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else "."

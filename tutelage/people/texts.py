"""Texts that every database can store unchanged."""

from tutelage.errors import TutelageError


def refuse_unstorable(text: str, where: str) -> None:
    """Raises TutelageError for a text with a zero byte (PostgreSQL has no room for it) or half a surrogate pair (which
    no encoding has); `where` says whose text it is."""
    if "\x00" in text:
        raise TutelageError(f"{where} contains a zero character, which cannot be stored; remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TutelageError(
            f"{where} contains half a surrogate pair at character {error.start + 1}, which is no text; remove it."
        ) from error

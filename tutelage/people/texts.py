"""Texts that every database can store, and names as people tell them apart."""

import unicodedata

from tutelage.errors import TutelageError


def folded(name: str) -> str:
    """A name as people tell names apart: without capitals, outer or double spaces, or other forms of the same letters.
    "Ada" and "ada " are one name."""
    return unicodedata.normalize("NFKC", " ".join(name.split())).casefold()


def storable(text: str) -> str:
    """A text of a model without what no database stores: a zero and half a surrogate pair become U+FFFD, two halves
    that came one after the other the character that they make up."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", "\ufffd")


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

"""Texts that every database can store, and names as people tell them apart."""

import unicodedata

from tutelage.base.sentences import Sentence
from tutelage.people.fields import FieldError


def folded(name: str) -> str:
    """A name as people tell names apart: without capitals, outer or double spaces, or other forms of the same letters.
    "Ada" and "ada " are one name."""
    return unicodedata.normalize("NFKC", " ".join(name.split())).casefold()


def storable(text: str) -> str:
    """A text of a model without what no database stores: a zero and half a surrogate pair become U+FFFD, two halves
    that came one after the other the character that they make up."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", "\ufffd")


def refuse_unstorable(text: str, where: str, field: str = "") -> None:
    """Raises FieldError for a text with a zero byte (PostgreSQL has no room for it) or half a surrogate pair (which
    no encoding has); `where` says whose text it is, `field` which value of a form it is, if it is one."""
    if "\x00" in text:
        raise FieldError(
            field,
            Sentence("%(where)s contains a zero character, which cannot be stored; remove it.", where=where),
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(
            field,
            Sentence(
                "%(where)s contains half a surrogate pair at character %(number)s, which is no text; remove it.",
                where=where,
                number=error.start + 1,
            ),
        ) from error

"""Sentences created before the reader's language is known, translated later from a catalogue."""

from collections.abc import Iterable, Mapping
from functools import reduce

from tutelage.base.errors import TutelageError


class Share(float):
    """A share within a sentence: 0.726 is shown as 73%, formatted for the language with `digits` decimals."""

    digits: int

    def __new__(cls, value: float, digits: int = 0) -> "Share":
        share = super().__new__(cls, value)
        share.digits = digits
        return share

    def __str__(self) -> str:
        return f"{float(self):.{self.digits}%}"


class Sentence(str):
    """An English sentence that keeps the parts of its translation: the message of the catalogue, with `%(name)s` for
    each value, and the values: texts, numbers, a `Share`.

    `many` is the plural message, if the sentence counts something.

        Sentence("The study “%(name)s” is paused.", name=study.name)
    """

    message: str
    many: str
    values: Mapping[str, object]

    def __new__(cls, message: str, /, **values: object) -> "Sentence":
        return cls._of(message, "", values)

    @classmethod
    def _of(cls, message: str, many: str, values: Mapping[str, object]) -> "Sentence":
        chosen = many if many and values["count"] != 1 else message
        texts = {name: _plain(value) for name, value in values.items()}
        sentence = super().__new__(cls, chosen % texts if values else chosen)
        sentence.message, sentence.many, sentence.values = message, many, dict(values)
        return sentence

    def about(self, **values: object) -> "Sentence":
        """Return the sentence with these values; it was created without any."""
        return Sentence._of(self.message, self.many, values)


def _plain(value: object) -> object:
    """Format a value in English."""
    if isinstance(value, Share):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,g}" if isinstance(value, float) else value


def counted(one: str, many: str, /, *, count: int, **values: object) -> Sentence:
    """Return a sentence about `count` things: `one` for a single one, `many` for any other number."""
    return Sentence._of(one, many, {"count": count, **values})


def refusal(message: str, /, **values: object) -> TutelageError:
    """Return the error with a `Sentence`, for readers in any language."""
    return TutelageError(Sentence(message, **values))


def join_sentences(sentences: Iterable[str]) -> str:
    """Return the sentences as one, separated by semicolons; empty if there are none."""
    parts = list(sentences)
    return reduce(lambda one, more: Sentence("%(first)s; %(rest)s", first=one, rest=more), parts) if parts else ""

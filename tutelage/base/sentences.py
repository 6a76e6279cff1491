"""Sentences made before the language of the reader is known, which a catalogue translates later."""

from collections.abc import Mapping


class Share(float):
    """A share within a sentence: 0.726 is said as 73%, in the way of the language, with so many digits after it."""

    digits: int

    def __new__(cls, value: float, digits: int = 0) -> "Share":
        made = super().__new__(cls, value)
        made.digits = digits
        return made

    def __str__(self) -> str:
        return f"{float(self):.{self.digits}%}"


class Sentence(str):
    """A sentence in English that keeps what its translation is made from: the message of the catalogue, with
    `%(name)s` for each value, and the values: texts, numbers, a `Share`. `many` is the message for other counts than
    one, where the sentence counts something.

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
        shown = {name: _plain(value) for name, value in values.items()}
        made = super().__new__(cls, chosen % shown if values else chosen)
        made.message, made.many, made.values = message, many, dict(values)
        return made

    def about(self, **values: object) -> "Sentence":
        """The sentence with these values; it was made without any."""
        return Sentence._of(self.message, self.many, values)


def _plain(value: object) -> object:
    """A value as English has it."""
    if isinstance(value, Share):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,g}" if isinstance(value, float) else value


def counted(one: str, many: str, /, *, count: int, **values: object) -> Sentence:
    """A sentence about `count` things: `one` for a single one, `many` for any other number."""
    return Sentence._of(one, many, {"count": count, **values})

"""The text of an answer while its tokens arrive: only what no later token can change is given out."""

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"
"""What a tokenizer writes for the bytes of a character that is not complete."""


class TextStream:
    """Turns tokens into text piece by piece, up to the first stop string.

    The pieces add up to the text of the whole answer: with `strips`, that of `engines.sampling.text_of`. White space at
    the end and what may be the beginning of a stop string are held back until it is certain that they belong to the
    text.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), *, strips: bool = False) -> None:
        self.tokenizer, self.stop, self.strips = tokenizer, tuple(stop), strips
        self.tokens: list[int] = []
        self.found: str | None = None
        """The stop string that ended the text."""
        self._context = self._read = 0  # tokens before the last whole piece; tokens that are in the text
        self._text = ""
        self._given = 0  # characters of the visible text that were given out

    def push(self, token: int) -> str:
        """Add a token that does not end the answer. Returns the text that has become certain."""
        self.tokens.append(token)
        self._advance()
        return self._release(self._visible())

    def finish(self) -> str:
        """Returns the rest of the text."""
        text = self._decoded(self.tokens)
        if self.found is not None:
            text = text.partition(self.found)[0]
        return self._release(self._stripped(text))

    def _advance(self) -> None:
        """Append the characters that the unread tokens complete. A window of tokens is decoded, not the whole answer:
        some tokenizers write the first token of a text differently, so the window begins before the unread ones."""
        known = self._decoded(self.tokens[self._context : self._read])
        window = self._decoded(self.tokens[self._context :])
        if len(window) <= len(known) or window.endswith(UNFINISHED):
            return
        begin = len(self._text)
        self._text += window[len(known) :]
        self._context, self._read = self._read, len(self.tokens)
        self._find_stop(begin)

    def _find_stop(self, begin: int) -> None:
        """Look for the first stop string that ends in the text after `begin`."""
        longest = max(map(len, self.stop), default=0)
        places = [(self._text.find(stop, max(0, begin - longest)), stop) for stop in self.stop]
        self.found = min((place for place in places if place[0] >= 0), default=(0, None))[1]

    def _visible(self) -> str:
        """The part of the text that no further token can take away."""
        if self.found is not None:
            return self._stripped(self._text.partition(self.found)[0])
        held = max((_overlap(self._text, stop) for stop in self.stop), default=0)
        return self._stripped(self._text[: len(self._text) - held])

    def _stripped(self, text: str) -> str:
        return text.strip() if self.strips else text

    def _release(self, text: str) -> str:
        piece = text[self._given :]
        self._given = max(self._given, len(text))
        return piece

    def _decoded(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


def _overlap(text: str, stop: str) -> int:
    """The length of the longest proper beginning of `stop` that `text` ends with."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)

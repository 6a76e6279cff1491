"""Word-by-word difference of two texts, for display."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

MOST_COMPARED = 1_000_000
"""Maximum product of the numbers of words compared; the time can be proportional to it."""
_WORD = re.compile(r"\s*\S+|\s+\Z")

Change: TypeAlias = Literal["same", "added", "removed"]


class TextPiece(NamedTuple):
    """A part of a text that is unchanged, added or removed."""

    change: Change
    text: str


def word_differences(before: str, after: str) -> tuple[TextPiece, ...]:
    """The pieces of both texts: `same` and `removed` concatenate to `before`, `same` and `added` to `after`. Texts too
    long to compare by words are compared as a whole."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    pieces = [("same", old[:head]), *_middle(old[head : len(old) - tail], new[head : len(new) - tail])]
    pieces.append(("same", old[len(old) - tail :]))
    return tuple(TextPiece(change, "".join(words)) for change, words in pieces if words)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the common prefix, in words."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _middle(old: list[str], new: list[str]) -> Iterator[tuple[Change, list[str]]]:
    if len(old) * len(new) > MOST_COMPARED:
        yield from (("removed", old), ("added", new))
        return
    for what, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            yield "same", old[a:b]
        else:
            yield from (("removed", old[a:b]), ("added", new[c:d]))

"""Marked spans and corrections as shown to owners."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tutelage.people import Question, Vote
from tutelage.people.answers import Span
from tutelage.people.differences import TextPiece, word_differences


@dataclass(frozen=True)
class MarkedPart:
    """A piece of text between span boundaries, with the number of covering spans by category."""

    text: str
    categories: Mapping[str, int]


def marked_parts(text: str, spans: Sequence[Span]) -> tuple[MarkedPart, ...]:
    """The text cut at all span boundaries; the parts concatenate to the text."""
    ends = {0, len(text), *(min(end, len(text)) for span in spans for end in (span.start, span.end))}
    cuts = sorted(ends)
    return tuple(
        MarkedPart(text[low:high], Counter(s.category for s in spans if s.start < high and low < s.end))
        for low, high in pairwise(cuts)
    )


def marked_responses(question: Question, votes: Sequence[Vote]) -> tuple[tuple[MarkedPart, ...], ...]:
    """The marked parts of each response, from the current votes; empty for a response without marks."""
    spans = [span for vote in votes if vote.latest and vote.excluded is None for span in vote.spans]
    return tuple(
        marked_parts(text, mine) if (mine := [span for span in spans if span.response == index]) else ()
        for index, text in enumerate(question.texts)
    )


def corrected_pieces(question: Question, vote: Vote) -> tuple[TextPiece, ...]:
    """The rater's changes to the response as a diff; a text written from scratch is all insertion."""
    if vote.correction is None:
        return ()
    before = "" if vote.correction.response is None else question.texts[vote.correction.response]
    return word_differences(before, vote.correction.text)

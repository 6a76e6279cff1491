"""Corrections of responses, and spans of them that are marked as wrong: what raters say about texts beside a verdict.

A correction is a better response that the rater wrote, by editing one of those shown or anew. A span is a range of
characters of a response with a category. Positions count Unicode code points of the response as it was written (not as
it is formatted), from 0; the end is exclusive, so `text[start:end]` is what was marked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from tutelage.base.errors import TutelageError
from tutelage.people.fields import FieldError
from tutelage.people.languages import Sentence
from tutelage.people.texts import refuse_unstorable

LONGEST_CORRECTION = 60_000
MOST_SPANS = 100
MOST_CATEGORIES = 9
"""Categories have a digit each."""
LONGEST_CATEGORY = 100


@dataclass(frozen=True)
class Correction:
    """A better response, as the rater wrote it. `response` is the one that was edited, None for a text written anew: a
    place on the screen in an `Answer`, a canonical index everywhere else."""

    text: str
    response: int | None = None


@dataclass(frozen=True)
class Span:
    """A range of characters of a response, and what is wrong with it. `response` is a place on the screen in an
    `Answer`, a canonical index everywhere else."""

    response: int
    start: int
    end: int
    category: str


Placed = TypeVar("Placed", Correction, Span)


def canonical(said: Placed, order: Sequence[int]) -> Placed:
    """The same about the response that was shown in its place: `order[k]` is the canonical index of place k."""
    return said if said.response is None else replace(said, response=order[said.response])


def as_displayed(said: Placed, order: Sequence[int]) -> Placed:
    """The inverse of `canonical`."""
    return said if said.response is None else replace(said, response=list(order).index(said.response))


def correction_row(correction: Correction | None) -> dict[str, object] | None:
    """The correction as JSON."""
    return None if correction is None else asdict(correction)


def correction_from(row: object) -> Correction | None:
    """The inverse of `correction_row`. Raises TutelageError for anything that is no correction."""
    if row is None:
        return None
    if isinstance(row, Mapping) and set(row) == {"text", "response"}:
        text, response = row["text"], row["response"]
        if isinstance(text, str) and (response is None or _is_index(response)):
            return Correction(text, response)
    raise TutelageError("A correction is an object with a text and a response: its number, or null.")


def span_rows(spans: Sequence[Span]) -> list[dict[str, object]]:
    """The spans as JSON."""
    return [asdict(span) for span in spans]


def spans_from(rows: object) -> tuple[Span, ...]:
    """The inverse of `span_rows`. Raises TutelageError for anything that is no list of spans."""
    if not isinstance(rows, list | tuple) or not all(map(_is_span, rows)):
        raise TutelageError("Spans are a list of objects with a response, a start, an end and a category.")
    return tuple(Span(**row) for row in rows)


def _is_span(row: object) -> bool:
    return (
        isinstance(row, Mapping)
        and set(row) == {"response", "start", "end", "category"}
        and all(_is_index(row[name]) for name in ("response", "start", "end"))
        and isinstance(row["category"], str)
    )


def _is_index(value: object) -> bool:
    return type(value) is int and 0 <= value < 10**9


def check_categories(categories: Sequence[str]) -> None:
    """Raises FieldError for categories that a study cannot offer."""
    if len(categories) > MOST_CATEGORIES or len(set(categories)) != len(categories):
        raise FieldError(
            "spans",
            Sentence(
                "There are %(count)s categories of wrong words; give at most %(most)s, no two alike.",
                count=len(categories),
                most=MOST_CATEGORIES,
            ),
        )
    if any(not name.strip() or len(name) > LONGEST_CATEGORY for name in categories):
        raise FieldError(
            "spans",
            Sentence(
                "A category of wrong words is a name of 1 to %(most)s characters.", most=LONGEST_CATEGORY
            ),
        )


def check_correction(correction: Correction, texts: Sequence[str]) -> None:
    """Raises TutelageError for a correction that the responses on the screen, from left to right, do not allow."""
    if correction.response is not None and correction.response >= len(texts):
        raise TutelageError(f"There is no response {correction.response + 1} on the screen to correct.")
    if len(correction.text) > LONGEST_CORRECTION:
        raise TutelageError(
            Sentence(
                "The better response has %(length)s characters; at most %(most)s are kept.",
                length=len(correction.text),
                most=LONGEST_CORRECTION,
            )
        )
    refuse_unstorable(correction.text, Sentence("The better response"))
    if not correction.text.strip():
        raise TutelageError(Sentence("The better response is empty; leave it out, or write it."))
    if _plain(correction.text) in map(_plain, texts):
        raise TutelageError(Sentence("The better response is one of those shown, without a change."))


def check_spans(spans: Sequence[Span], texts: Sequence[str], categories: Sequence[str]) -> None:
    """Raises TutelageError for spans that the responses on the screen, from left to right, do not allow."""
    if len(spans) > MOST_SPANS or len(set(spans)) != len(spans):
        raise TutelageError(Sentence("An answer marks at most %(most)s spans, each once.", most=MOST_SPANS))
    for span in spans:
        if span.category not in categories:
            raise TutelageError(
                f"'{span.category[:LONGEST_CATEGORY]}' is no category of this study; they are {', '.join(categories)}."
            )
        length = len(texts[span.response]) if span.response < len(texts) else 0
        if not 0 <= span.start < span.end <= length:
            raise TutelageError(
                f"Characters {span.start} to {span.end} of response {span.response + 1} are marked, which has {length}."
            )


def _plain(text: str) -> str:
    """The text as a browser's text field hands it back."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()

"""The answer of a rater, as displayed (`Answer`) and independent of the display order (`Canonical`), with an optional
correction and marked spans.

Both forms are stored: the displayed form can be verified and reveals position bias; the canonical form is used for
training. The kind of question (`kinds`) converts one into the other.

A correction is a better response, written by the rater from scratch or by editing a displayed response. A span is a
range of characters of a response with a category. Positions count Unicode code points of the unformatted response from
0; the end is exclusive, so `text[start:end]` is the marked text.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from tutelage.base import nouns
from tutelage.base.errors import TutelageError
from tutelage.data.records import Step
from tutelage.people.languages import Sentence
from tutelage.people.validation import FieldError, StudyError, refuse_unstorable

LETTERS = "abcdef"
LONGEST_CORRECTION = 60_000
MOST_SPANS = 100
MOST_CATEGORIES = 9
"""Each category has a digit key."""
LONGEST_CATEGORY = 100
LONGEST_REASON = 20_000
LONGEST_NAME = 100
MOST_FLAGS = 20
FLAGS = {
    "harmful": Sentence("Harmful or dangerous"),
    "personal_data": Sentence("Personal data"),
    "identity": Sentence("Says which model it is"),
    "refusal": Sentence("Refuses without need"),
    "cut_off": Sentence("Cut off"),
    "wrong_language": Sentence("Wrong language"),
    "broken": Sentence("Broken or garbled"),
}
"""Flags of raters, with their labels."""


@dataclass(frozen=True)
class Correction:
    """A better response written by the rater. `response` is the index of the edited response, None for a new text: the
    position on the screen in an `Answer`, the canonical index everywhere else. In a trace, the text takes the place of
    what the model wrote in one `step`, counted from 0, and the trace branches there: its later steps are left out."""

    text: str
    response: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Span:
    """A range of characters of a response and its category. `response` is an index as in `Correction`."""

    response: int
    start: int
    end: int
    category: str


def new_key() -> str:
    """A new idempotency key. The sender creates one per answer and repeats it with every retry."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Answer:
    """An answer of a rater, in terms of the display.

    choice: a choice of the study's kind of question; a pair has `left`, `right`, `tie`, `both_bad` and `skip` (cannot
        judge; requires a reason or flag).
    strength: 1 slightly, 2 better, 3 much better for a side; 0 for other choices.
    content: further parts of the answer by name, in display order; the modules of the kinds have functions that create
        such answers.
    criteria: the better side, or `tie`, by criterion of the study.
    flags, reason: names of problems, and free text.
    active_ms, wall_ms: time on the question by the clock of the rater's device; None if unknown.
    changes: number of changes of the choice before submission.
    key: the idempotency key; repeated submissions with the same key count as one answer.
    correction, spans: a better response, and spans marked as wrong, if the study collects them.
    """

    choice: str
    strength: int = 0
    content: Mapping[str, object] = field(default_factory=dict)
    criteria: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    reason: str = ""
    active_ms: int | None = None
    wall_ms: int | None = None
    changes: int = 0
    client: str = ""
    key: str = field(default_factory=new_key)
    correction: Correction | None = None
    spans: tuple[Span, ...] = ()


GOOD, BAD = "good", "bad"
"""Choices about a single response as a whole."""
DECISIONS: Mapping[str, bool | None] = {"met": True, "unmet": False, "unsure": None}
"""Verdicts on a criterion of a rubric, as in `data.rubrics`."""
_VERDICTS = "verdicts"
"""The part of an answer's content that holds them."""


def judged(verdicts: Mapping[str, Sequence[str]]) -> Answer:
    """An answer with verdicts by criterion, each for the displayed responses from left to right."""
    return Answer("judged", content={_VERDICTS: {name: list(values) for name, values in verdicts.items()}})


def verdicts_in(content: Mapping[str, object]) -> Mapping[str, Sequence[str]]:
    """The verdicts by criterion in the content of an answer; empty without any."""
    verdicts = content.get(_VERDICTS, {})
    return verdicts if isinstance(verdicts, Mapping) else {}


def decisions_in(content: Mapping[str, object]) -> Iterator[tuple[str, int, bool]]:
    """Criterion, index of the response, and whether it meets the criterion, for each verdict that is not unsure."""
    for name, values in verdicts_in(content).items():
        for index, value in enumerate(values):
            met = DECISIONS[value]
            if met is not None:
                yield name, index, met


@dataclass(frozen=True)
class Canonical:
    """An answer in terms of responses a, b, … instead of positions. `verdict` is `a`, `b`, `tie`, `both_bad`, `skip`,
    the number of the first wrong step (0: none), or the choice of the kind if `content` holds the whole answer."""

    verdict: str
    strength: int
    content: Mapping[str, object]
    criteria: Mapping[str, str]


def is_decided(verdict: str) -> bool:
    """Whether a verdict is one of two sides, or the number of a step."""
    return verdict in ("a", "b") or verdict.isdecimal()


def displayed(answer: Answer) -> dict[str, object]:
    """The displayed form of an answer as a record: choice, strength, the parts of its content by name, and criteria."""
    record = {"choice": answer.choice, "strength": answer.strength, **answer.content}
    return record | ({"criteria": dict(answer.criteria)} if answer.criteria else {})


def map_texts(content: Mapping[str, object], change: Callable[[str], str]) -> dict[str, Any]:
    """The content of an answer with the texts changed that the rater wrote; verdicts are words of the page."""
    return {name: value if name == _VERDICTS else _mapped(value, change) for name, value in content.items()}


def _mapped(value: object, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _mapped(each, change) for name, each in value.items()}
    return [_mapped(each, change) for each in value] if isinstance(value, list | tuple) else value


def texts_in(content: Mapping[str, object]) -> list[str]:
    """The texts in the content of an answer that the rater wrote."""
    texts: list[str] = []

    def add(text: str) -> str:
        texts.append(text)
        return text

    map_texts(content, add)
    return texts


def map_displayed(record: Mapping[str, object], change: Callable[[str], str]) -> dict[str, object]:
    """The displayed form of an answer with the texts of its content changed."""
    return {name: record[name] for name in _COMMON if name in record} | map_texts(
        {name: value for name, value in record.items() if name not in _COMMON}, change
    )


_COMMON = ("choice", "strength", "criteria")
"""The parts of the displayed form that all kinds of questions share."""


def answer_from(row: Mapping[str, Any], order: Sequence[int]) -> Answer:
    """The answer of a record in an exported file: the `displayed` form, further fields, and correction and spans by
    canonical index. `order` is the display order."""
    record, correction = row["displayed"], correction_from(row["correction"])
    values: dict[str, Any] = {"strength": 0, "criteria": {}} | {
        name: record[name] for name in _COMMON if name in record
    }
    values |= {name: row[name] for name in ("reason", "active_ms", "wall_ms", "changes", "client", "key")}
    return Answer(
        **values,
        content={name: value for name, value in record.items() if name not in _COMMON},
        flags=tuple(row["flags"]),
        correction=correction and as_displayed(correction, order),
        spans=tuple(as_displayed(span, order) for span in spans_from(row["spans"])),
    )


def check_envelope(answer: Answer) -> None:
    """Check the parts of an answer that all kinds of questions share. Raises TutelageError if a part of the answer is
    invalid."""
    if answer.choice == "skip" and not (answer.reason.strip() or answer.flags):
        raise TutelageError("A skipped question needs a reason or a flag.")
    _check_texts(answer)
    if min(answer.active_ms or 0, answer.wall_ms or 0, answer.changes) < 0:
        raise TutelageError("The times and the number of changes of an answer cannot be negative.")


def _check_texts(answer: Answer) -> None:
    if len(answer.reason) > LONGEST_REASON:
        raise TutelageError(
            f"The reason has {nouns.counted(len(answer.reason), 'character')}; the limit is {LONGEST_REASON:,}."
        )
    if not 1 <= len(answer.key) <= LONGEST_NAME:
        raise TutelageError(f"An answer needs an idempotency key of 1 to {LONGEST_NAME} characters.")
    if len(answer.flags) > MOST_FLAGS or len(answer.client) > LONGEST_NAME:
        raise TutelageError(f"An answer has at most {MOST_FLAGS} flags and {LONGEST_NAME} characters for its client.")
    if any(len(flag) > LONGEST_NAME for flag in answer.flags):
        raise TutelageError(f"A flag is a name of at most {LONGEST_NAME} characters.")
    for text in (answer.reason, answer.key, answer.client, *answer.flags):
        refuse_unstorable(text, Sentence("The answer"))


Placed = TypeVar("Placed", Correction, Span)


def canonical(part: Placed, order: Sequence[int]) -> Placed:
    """Replace the position on the screen by the canonical index: `order[k]` is the canonical index at position k."""
    return part if part.response is None else replace(part, response=order[part.response])


def as_displayed(part: Placed, order: Sequence[int]) -> Placed:
    """The inverse of `canonical`."""
    return part if part.response is None else replace(part, response=list(order).index(part.response))


def correction_row(correction: Correction | None) -> dict[str, object] | None:
    """The correction as JSON, with its step if it has one."""
    if correction is None:
        return None
    return {name: value for name, value in asdict(correction).items() if name != "step" or value is not None}


def correction_from(row: object) -> Correction | None:
    """The inverse of `correction_row`. Raises TutelageError for an invalid correction."""
    if row is None:
        return None
    if isinstance(row, Mapping) and {"text", "response"} <= set(row) <= {"text", "response", "step"}:
        text, response, step = row["text"], row["response"], row.get("step")
        if isinstance(text, str) and all(each is None or _is_index(each) for each in (response, step)):
            return Correction(text, response, step)
    raise TutelageError(
        "A correction is an object with a text, a response (its number, or null), and in a trace the number of a step."
    )


def span_rows(spans: Sequence[Span]) -> list[dict[str, object]]:
    """The spans as JSON."""
    return [asdict(span) for span in spans]


def spans_from(rows: object) -> tuple[Span, ...]:
    """The inverse of `span_rows`. Raises TutelageError for an invalid list of spans."""
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
    """Raises FieldError for invalid categories of spans."""
    if len(categories) > MOST_CATEGORIES or len(set(categories)) != len(categories):
        raise FieldError(
            "spans",
            "There are %(count)s categories of wrong words; give at most %(most)s, no two alike.",
            count=len(categories),
            most=MOST_CATEGORIES,
        )
    if any(not name.strip() or len(name) > LONGEST_CATEGORY for name in categories):
        raise FieldError(
            "spans", "A category of wrong words is a name of 1 to %(most)s characters.", most=LONGEST_CATEGORY
        )


def check_correction(correction: Correction, texts: Sequence[str], steps: Sequence[Sequence[Step]] = ()) -> None:
    """Raises TutelageError for a correction that is invalid for the responses from left to right: their `texts`, and
    their `steps` if they are traces."""
    if correction.response is not None and correction.response >= len(texts):
        raise TutelageError(f"There is no response {correction.response + 1} on the screen to correct.")
    trace = () if correction.response is None or not steps else steps[correction.response]
    step = None if correction.step is None or correction.step >= len(trace) else trace[correction.step]
    if correction.step is not None and (step is None or isinstance(step, str)):
        raise TutelageError(f"There is no step {correction.step + 1} of a trace on the screen to correct.")
    if len(correction.text) > LONGEST_CORRECTION:
        raise StudyError(
            "The better response has %(length)s characters; at most %(most)s are kept.",
            length=len(correction.text),
            most=LONGEST_CORRECTION,
        )
    refuse_unstorable(correction.text, Sentence("The better response"))
    if not correction.text.strip():
        raise StudyError("The better response is empty; leave it out, or write it.")
    own = [step[0].content] if step and not isinstance(step, str) and not step[0].calls else []
    written = texts if correction.step is None else own
    if _plain(correction.text) in map(_plain, written):
        raise StudyError("The better response is one of those shown, without a change.")


def check_spans(spans: Sequence[Span], texts: Sequence[str], categories: Sequence[str]) -> None:
    """Raises TutelageError for spans that are invalid for the responses `texts`, from left to right."""
    if len(spans) > MOST_SPANS or len(set(spans)) != len(spans):
        raise StudyError("An answer marks at most %(most)s spans, each once.", most=MOST_SPANS)
    for span in spans:
        if span.category not in categories:
            raise TutelageError(
                f"'{span.category[:LONGEST_CATEGORY]}' is not a category of this study ({', '.join(categories)})."
            )
        length = len(texts[span.response]) if span.response < len(texts) else 0
        if not 0 <= span.start < span.end <= length:
            raise TutelageError(
                f"Characters {span.start} to {span.end} of response {span.response + 1} are marked, but it has only "
                f"{length}."
            )


def _plain(text: str) -> str:
    """The text as submitted by a browser's text field."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()

"""The answer of a rater, as it was displayed (`Answer`) and independent of the display order (`Canonical`).

Both are stored: what was displayed can be checked and tells position bias; what is canonical is what training needs.
How the one becomes the other is the business of the kind of question (`kinds`).
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from tutelage.base import nouns
from tutelage.base.errors import TutelageError
from tutelage.people.corrections import Correction, Span
from tutelage.people.languages import Sentence
from tutelage.people.texts import refuse_unstorable

LETTERS = "abcdef"
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
"""What a rater may flag, and what it is called."""


def new_key() -> str:
    """A new idempotency key. The sender of an answer makes one per answer, and sends it again with every retry."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Answer:
    """An answer of a rater, in terms of what the screen displayed.

    choice: a word of the study's kind of question; a pair has `left`, `right`, `tie`, `both_bad` and `skip` (cannot
        judge; needs a reason).
    strength: 1 slightly, 2 better, 3 much better for a side; 0 for everything else.
    content: what the kind asks for beyond a choice, by name, in the order of display; the files of the kinds have
        functions that make such answers.
    criteria: the side that is better by each criterion of the study, or `tie`.
    flags, reason: names of problems, and free text.
    active_ms, wall_ms: how long the rater looked, by the clock of the rater's own machine; None where unknown.
    changes: how often the choice was changed before it was sent.
    key: the idempotency key; the same key twice is one answer.
    correction, spans: a better response, and words that are wrong, where the study asks for them.
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


@dataclass(frozen=True)
class Canonical:
    """The same answer about responses a, b, … instead of places: `a`, `b`, `tie`, `both_bad` and `skip`, or the kind's
    own word for an answer that is all in its `content`."""

    verdict: str
    strength: int
    content: Mapping[str, object]
    criteria: Mapping[str, str]


def displayed(answer: Answer) -> dict[str, object]:
    """The record of an answer as displayed: its choice and strength, the parts of its content by their own names, and
    its criteria."""
    said = {"choice": answer.choice, "strength": answer.strength, **answer.content}
    return said | ({"criteria": dict(answer.criteria)} if answer.criteria else {})


def from_displayed(said: Mapping[str, object], envelope: Mapping[str, object]) -> Answer:
    """The inverse of `displayed`; `envelope` holds the other fields of the answer."""
    values = {
        "choice": said["choice"],
        "strength": said.get("strength", 0),
        "criteria": said.get("criteria", {}),
    }
    content = {name: value for name, value in said.items() if name not in values}
    return Answer(**values, content=content, **envelope)  # type: ignore[arg-type]  # the record was checked


def check_envelope(answer: Answer) -> None:
    """Check the parts of an answer that every kind of question has.

    Raises:
        TutelageError: which part of the answer is impossible, and what would be possible.
    """
    if answer.choice == "skip" and not (answer.reason.strip() or answer.flags):
        raise TutelageError("A question that cannot be judged needs a reason or a flag.")
    _check_texts(answer)
    if min(answer.active_ms or 0, answer.wall_ms or 0, answer.changes) < 0:
        raise TutelageError("The times and the number of changes of an answer cannot be negative.")


def _check_texts(answer: Answer) -> None:
    if len(answer.reason) > LONGEST_REASON:
        raise TutelageError(
            f"The reason has {nouns.counted(len(answer.reason), 'character')}; at most {LONGEST_REASON:,} are kept."
        )
    if not 1 <= len(answer.key) <= LONGEST_NAME:
        raise TutelageError(f"An answer needs an idempotency key of 1 to {LONGEST_NAME} characters.")
    if len(answer.flags) > MOST_FLAGS or len(answer.client) > LONGEST_NAME:
        raise TutelageError(
            f"An answer has at most {MOST_FLAGS} flags and {LONGEST_NAME} characters for its client."
        )
    if any(len(flag) > LONGEST_NAME for flag in answer.flags):
        raise TutelageError(f"A flag is a name of at most {LONGEST_NAME} characters.")
    for text in (answer.reason, answer.key, answer.client, *answer.flags):
        refuse_unstorable(text, Sentence("The answer"))

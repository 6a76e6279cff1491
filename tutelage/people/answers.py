"""An answer as it was given, and what it says about the responses whatever side they stood on.

Both are stored: what was displayed can be checked and tells position bias; what is canonical is what training needs.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from tutelage.errors import TutelageError
from tutelage.people.texts import refuse_unstorable

Choice: TypeAlias = Literal["left", "right", "tie", "both_bad", "skip", "ranked"]
Side: TypeAlias = Literal["left", "right", "tie"]
LETTERS = "abcdef"
LONGEST_REASON = 20_000
LONGEST_NAME = 100
MOST_FLAGS = 20


def new_key() -> str:
    """An idempotency key: made by whoever answers, once per answer, and sent again with every retry."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Answer:
    """What a rater says about what is on the screen.

    choice: `left`, `right`, `tie`, `both_bad`, `skip` (cannot judge; needs a reason), or `ranked`.
    strength: 1 slightly, 2 better, 3 much better for a side; 0 for everything else.
    ranking: for `ranked`, the rank of each displayed response from left to right, 1 is best, equal ranks are ties.
    criteria: the side that is better by each criterion of the study, or `tie`.
    flags, reason: names of problems, and free text.
    active_ms, wall_ms: how long the rater looked, by the clock of the rater's own machine; None where unknown.
    changes: how often the choice was changed before it was sent.
    key: the idempotency key; the same key twice is one answer.
    """

    choice: Choice
    strength: int = 0
    ranking: tuple[int, ...] = ()
    criteria: Mapping[str, Side] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    reason: str = ""
    active_ms: int | None = None
    wall_ms: int | None = None
    changes: int = 0
    client: str = ""
    key: str = field(default_factory=new_key)


@dataclass(frozen=True)
class Canonical:
    """The same answer about responses a, b, … instead of sides. `ranking` gives the rank of each response in canonical
    order."""

    verdict: Literal["a", "b", "tie", "both_bad", "skip", "ranked"]
    strength: int
    ranking: tuple[int, ...]
    criteria: Mapping[str, str]


def canonical(answer: Answer, order: Sequence[int]) -> Canonical:
    """Undo the display order: `order[k]` is the canonical index of the response in place k from the left."""
    names = {"left": LETTERS[order[0]], "right": LETTERS[order[1]]}
    criteria = {name: names.get(side, side) for name, side in answer.criteria.items()}
    ranking = [0] * len(answer.ranking)
    for place, rank in enumerate(answer.ranking):
        ranking[order[place]] = rank
    verdict = names.get(answer.choice, answer.choice)
    return Canonical(verdict, answer.strength, tuple(ranking), criteria)  # type: ignore[arg-type]


def displayed(answer: Answer) -> dict[str, object]:
    """What was said, for the record: choice, strength, ranking and criteria as displayed."""
    said = asdict(answer)
    return {
        name: said[name]
        for name in ("choice", "strength", "ranking", "criteria")
        if said[name] not in ((), {})
    }


def check(answer: Answer, *, places: int, ranks: bool, scale: int, criteria: Sequence[str]) -> None:
    """Refuse an answer that the question does not allow.

    Raises:
        TutelageError: which part of the answer is impossible, and what would be possible.
    """
    allowed = ("ranked", "both_bad", "skip") if ranks else ("left", "right", "tie", "both_bad", "skip")
    if answer.choice not in allowed:
        raise TutelageError(
            f"'{answer.choice}' is no answer to this question; it is one of {', '.join(allowed)}."
        )
    lowest, highest = (1, scale) if answer.choice in ("left", "right") else (0, 0)
    if not lowest <= answer.strength <= highest:
        raise TutelageError(
            f"The strength {answer.strength} does not go with '{answer.choice}': it is between {lowest} and {highest}."
        )
    _check_ranking(answer, places)
    unknown = sorted(set(answer.criteria) - set(criteria))
    if unknown or any(side not in ("left", "right", "tie") for side in answer.criteria.values()):
        raise TutelageError(
            f"The criteria of this study are {', '.join(criteria) or 'none'}, each answered left, right or tie; "
            f"this answer says {dict(answer.criteria)}."
        )
    if answer.choice == "skip" and not (answer.reason.strip() or answer.flags):
        raise TutelageError("A question that cannot be judged needs a reason or a flag.")
    _check_texts(answer)
    if min(answer.active_ms or 0, answer.wall_ms or 0, answer.changes) < 0:
        raise TutelageError("The times and the number of changes of an answer cannot be negative.")


def _check_texts(answer: Answer) -> None:
    if len(answer.reason) > LONGEST_REASON:
        raise TutelageError(
            f"The reason has {len(answer.reason)} characters; at most {LONGEST_REASON} are kept."
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
        refuse_unstorable(text, "The answer")


def _check_ranking(answer: Answer, places: int) -> None:
    if answer.choice != "ranked":
        if answer.ranking:
            raise TutelageError(f"A ranking does not go with '{answer.choice}'.")
        return
    if len(answer.ranking) != places or any(not 1 <= rank <= places for rank in answer.ranking):
        raise TutelageError(f"A ranking gives each of the {places} responses a rank from 1 to {places}.")

"""Checks and words that several kinds have in common."""

from collections.abc import Mapping, Sequence

from tutelage.base.errors import TutelageError
from tutelage.people.answers import LETTERS, Answer
from tutelage.people.languages import Sentence

COMMON_WORDS = {"tie": Sentence("equal"), "both_bad": Sentence("both bad"), "skip": Sentence("can’t judge")}
"""What owners read for the choices and verdicts that several kinds have."""


def check_choice(answer: Answer, choices: Sequence[str]) -> None:
    """Raises TutelageError for a choice that the kind does not have."""
    if answer.choice not in choices:
        raise TutelageError(
            f"'{answer.choice}' is no answer to this question; it is one of {', '.join(choices)}."
        )


def check_strength(answer: Answer, lowest: int, highest: int) -> None:
    """Raises TutelageError for a strength outside of [lowest, highest]."""
    if not lowest <= answer.strength <= highest:
        raise TutelageError(
            f"The strength {answer.strength} does not go with '{answer.choice}': it is between {lowest} and {highest}."
        )


def check_parts(answer: Answer, parts: Sequence[str]) -> None:
    """Raises TutelageError for content that does not go with the choice."""
    other = sorted(set(answer.content) - set(parts))
    if other:
        raise TutelageError(f"'{other[0]}' does not go with '{answer.choice}' as an answer to this question.")


def check_sides(answer: Answer, criteria: Sequence[str]) -> None:
    """Raises TutelageError unless the criteria are among those of the study, each answered with a side or a tie."""
    unknown = sorted(set(answer.criteria) - set(criteria))
    if unknown or any(side not in ("left", "right", "tie") for side in answer.criteria.values()):
        raise TutelageError(
            f"The criteria of this study are {', '.join(criteria) or 'none'}, each answered left, right or tie; "
            f"this answer says {dict(answer.criteria)}."
        )


def sides_by_letter(criteria: Mapping[str, str], order: Sequence[int]) -> dict[str, str]:
    """The criteria with a and b (canonical) instead of left and right."""
    names = {"left": LETTERS[order[0]], "right": LETTERS[order[1]]}
    return {name: names.get(side, side) for name, side in criteria.items()}


def whole_numbers(value: object, count: int, highest: int) -> bool:
    """Whether the value is a list of `count` whole numbers between 1 and `highest`."""
    return (
        isinstance(value, list | tuple)
        and len(value) == count
        and all(type(each) is int and 1 <= each <= highest for each in value)
    )


def whole_number(cell: object) -> int:
    """The whole number in a cell of a table; 0 where there is none."""
    text = "" if cell is None else str(cell).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def by_response(values: Sequence[int], order: Sequence[int]) -> list[int]:
    """Values by place as values by canonical index: the response `order[k]` stands in place k."""
    found = [0] * len(values)
    for place, value in enumerate(values):
        found[order[place]] = value
    return found

"""Rewards that need no model: length, form, exact match with a column of the prompt's row.

A rule that reads a column of the prompts names it in `columns`, so that rows without it are found before anything is
sampled (see `rewards.columns`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tutelage.base.errors import TutelageError
from tutelage.rewards.limits import answered
from tutelage.rewards.patterns import compiled, last_match, matches
from tutelage.rewards.reward import Completion

Unit = Literal["characters", "words", "tokens"]


@dataclass(frozen=True)
class LengthLimit:
    """A price on length beyond a limit: −max(0, n − limit) / limit, with n the length of the answer in `unit`.

    So it is 0 up to the limit and −1 at twice the limit.
    """

    name: ClassVar[str] = "length"
    limit: int
    unit: Unit = "words"

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise TutelageError(
                f"A limit of {self.limit} {self.unit} leaves no room for an answer; set 1 or more."
            )
        if self.unit not in get_args(Unit):
            raise TutelageError(f"Length is measured in {', '.join(get_args(Unit))}, not in {self.unit!r}.")

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where tokens are to be counted and only texts are known."""
        return [-max(0, self._length(one) - self.limit) / self.limit for one in completions]

    def _length(self, one: Completion) -> int:
        if self.unit == "tokens":
            if not one.prompt_tokens:
                raise TutelageError(
                    f"Only the text of the answer to prompt {one.prompt_id} is known, so its tokens cannot be counted; "
                    "limit its words."
                )
            return len(one.tokens)
        return len(one.answer.split() if self.unit == "words" else one.answer)


@dataclass(frozen=True)
class PatternMatch:
    """1 where the whole answer matches a regular expression, else 0. A dot matches line breaks too, and white space
    around the answer does not count."""

    name: ClassVar[str] = "regex"
    limited: ClassVar[bool] = True
    pattern: str

    def __post_init__(self) -> None:
        compiled(self.pattern)

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        return [float(self._fits(one.answer.strip())) for one in completions]

    def _fits(self, answer: str) -> bool:
        return answered(self.name, answer, lambda: matches(self.pattern, answer)) or False


@dataclass(frozen=True)
class ExactMatch:
    """1 where the answer says what a column of the prompt's row says, else 0. Runs of white space count as one space.

    With `pattern` the last match of a regular expression in the answer is compared instead of the whole answer: its
    first group where it has one, as in r"The answer is (.+?)\\." or r"####\\s*(\\S+)".
    """

    name: ClassVar[str] = "exact"
    limited: ClassVar[bool] = True
    column: str = "answer"
    pattern: str = ""

    def __post_init__(self) -> None:
        compiled(self.pattern)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the prompts that are read."""
        return (self.column,)

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where a row has no such column."""
        return [float(self._found(one.answer) == self._wanted(one)) for one in completions]

    def _wanted(self, one: Completion) -> str:
        return _spaced(str(column_value(one, self.column)))

    def _found(self, answer: str) -> str | None:
        found = answered(self.name, answer, lambda: last_match(self.pattern, answer))
        return None if found is None else _spaced(found)


def column_value(one: Completion, column: str) -> object:
    """What the prompt's row says in a column. Raises TutelageError where it says nothing."""
    value = one.data.get(column)
    if value is None:
        raise TutelageError(
            f"The row of prompt {one.prompt_id} has no value in the column {column!r} to compare with; its "
            f"own columns are: {', '.join(one.data) or 'none'}."
        )
    return value


def _spaced(text: str) -> str:
    return " ".join(text.split())

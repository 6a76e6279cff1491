"""Rules on the text of completions: length, exact match, regular expression, tags, JSON, repetition, reading grade.

Rules list the columns they read in `columns`, so that rows without them are detected before sampling (see
`factory.require_columns`).
"""

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import ClassVar, Literal, get_args

from tutelage.base.config.files import read_text
from tutelage.base.errors import TutelageError
from tutelage.data.text_counts import ngrams, reading_grade, words
from tutelage.rewards.reward import Completion
from tutelage.rewards.sandbox import answered, compiled, last_match, matches, parsed_json

Unit = Literal["characters", "words", "tokens"]


class CompletionRule(ABC):
    """Rule that scores every completion by itself."""

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        return [float(self.score(one)) for one in completions]

    @abstractmethod
    def score(self, one: Completion) -> float:
        """Score of a completion."""


@dataclass(frozen=True)
class LengthLimit(CompletionRule):
    """Penalty on length beyond a limit: −max(0, n − limit) / limit, with n the length of the completion in `unit`.

    It is 0 up to the limit and −1 at twice the limit. Words are those of `data.text_counts`: every character in
    scripts without spaces between words.
    """

    name: ClassVar[str] = "length"
    limit: int
    unit: Unit = "words"

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise TutelageError(f"A limit of {self.limit} {self.unit} leaves no room for a completion; set 1 or more.")
        if self.unit not in get_args(Unit):
            raise TutelageError(f"Length is measured in {', '.join(get_args(Unit))}, not in {self.unit!r}.")

    def score(self, one: Completion) -> float:
        """Score of a completion. Raises TutelageError for the unit tokens if only texts are known."""
        return -max(0, self._length(one) - self.limit) / self.limit

    def _length(self, one: Completion) -> int:
        if self.unit == "tokens":
            if not one.prompt_tokens:
                raise TutelageError(
                    f"Only the text of the answer to prompt {one.prompt_id} is known, so its tokens cannot be counted; "
                    "limit its words."
                )
            return len(one.tokens)
        return len(words(one.answer) if self.unit == "words" else one.answer)


@dataclass(frozen=True)
class PatternMatch(CompletionRule):
    """1 if the whole completion matches a regular expression, else 0. A dot also matches line breaks; surrounding
    white space is ignored."""

    name: ClassVar[str] = "regex"
    sandboxed: ClassVar[bool] = True
    pattern: str

    def __post_init__(self) -> None:
        compiled(self.pattern)

    def score(self, one: Completion) -> float:
        answer = one.answer.strip()
        return answered(self.name, answer, lambda: matches(self.pattern, answer)) or False


@dataclass(frozen=True)
class ColumnRule:
    """Rule that compares a completion with a column of the prompt's row: a value, or several of which any counts.

    Several are a list, or an object with `value`, `text` or `aliases` (TriviaQA, SQuAD), each a value or a list. The
    texts of a value that is not text are its spellings in JSON and Python: true and True, 42 and 42.0.
    """

    column: str = "answer"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the prompts that are read."""
        return (self.column,)

    def accepted(self, one: Completion) -> tuple[str, ...]:
        """Texts of the column, at least one. Raises TutelageError if the row lacks it or it has another form."""
        value = one.data.get(self.column)
        if value is None:
            raise TutelageError(
                f"The row of prompt {one.prompt_id} has no value in the column {self.column!r} to compare with; its "
                f"own columns are: {', '.join(one.data) or 'none'}."
            )
        texts = tuple(dict.fromkeys(_texts(value) or ()))
        if not texts:
            raise TutelageError(
                f"The row of prompt {one.prompt_id} has {str(value)[:60]!r} in the column {self.column!r}, which "
                "cannot be compared with: write a text, a number, true or false, a list of them, or an object with "
                "value, text or aliases."
            )
        return texts


_ACCEPTED = ("value", "text", "aliases")
"""Keys of an object with accepted answers."""


def _texts(value: object) -> tuple[str, ...] | None:
    """Spellings of a value of JSON, and of all values in a list or object; None if one of them has none."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool):
        return json.dumps(value), str(value)
    if isinstance(value, float):
        return (str(value), str(int(value))) if value.is_integer() else (str(value),)
    if isinstance(value, int):
        return str(value), f"{value}.0"
    if isinstance(value, Mapping):
        value = [value[key] for key in _ACCEPTED if value.get(key) is not None]
    if not isinstance(value, list | tuple):
        return None
    parts = [_texts(each) for each in value]
    return None if None in parts else tuple(text for part in parts for text in part or ())


@dataclass(frozen=True)
class ExactMatch(ColumnRule, CompletionRule):
    r"""1 if the completion equals a column of the prompt's row, or any of several values in it, else 0. Runs of white
    space count as one space, and characters are compared in Unicode's composed form.

    `pattern` compares the last match of a regular expression in the completion instead of the whole text: its first
    group, if any, as in r"The answer is (.+?)\." or r"####\s*(\S+)".
    """

    name: ClassVar[str] = "exact"
    sandboxed: ClassVar[bool] = True
    pattern: str = ""

    def __post_init__(self) -> None:
        compiled(self.pattern)

    def score(self, one: Completion) -> float:
        """Score of a completion. Raises TutelageError if the row has no such column."""
        match = answered(self.name, one.answer, lambda: last_match(self.pattern, one.answer))
        accepted = [_tokens(text) for text in self.accepted(one)]
        return match is not None and _tokens(match) in accepted


def _tokens(text: str) -> list[str]:
    """Runs of characters between white space, in Unicode's composed form."""
    return unicodedata.normalize("NFC", text).split()


@dataclass(frozen=True)
class TagFormat(CompletionRule):
    """1 if the completion consists of tagged sections, each opened and closed once and in this order, else 0.

    With one tag (<think>…</think>) the answer follows the section as text; with several, the last section is the
    answer, with only white space between and after them.
    """

    name: ClassVar[str] = "format"
    tags: tuple[str, ...] = ("think",)

    def __post_init__(self) -> None:
        if not self.tags or any(not re.fullmatch(r"\w+", tag) for tag in self.tags):
            raise TutelageError(
                f"Tags are words such as think and answer, not {', '.join(map(repr, self.tags)) or 'nothing'}."
            )

    def score(self, one: Completion) -> float:
        marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]
        if any(one.answer.count(mark) != 1 for mark in marks):
            return 0.0
        sections = r"\s*".join(f"<{tag}>.*</{tag}>" for tag in self.tags)
        rest = r".*\S.*" if len(self.tags) == 1 else r"\s*"
        return re.fullmatch(rf"\s*{sections}{rest}", one.answer, re.DOTALL) is not None


@dataclass(frozen=True)
class JsonFormat(CompletionRule):
    """1 if the whole completion is JSON, optionally in a ``` fence, else 0.

    `schema` is the file of a JSON schema for the value, which requires the library jsonschema.
    """

    name: ClassVar[str] = "json"
    sandboxed: ClassVar[bool] = True
    schema: str = ""

    def __post_init__(self) -> None:
        if self.schema:
            _ = self._schema

    def score(self, one: Completion) -> float:
        value = _unfenced(one.answer)

        def holds() -> bool:
            if self.schema:
                return _schemas().fulfils(self._schema, value)
            try:
                parsed_json(value)
            except ValueError:
                return False
            return True

        return answered(self.name, one.answer, holds) or False

    @cached_property
    def _schema(self) -> str:
        """Text of the schema. Raises TutelageError if it is invalid."""
        schemas = _schemas()
        schema = read_text(Path(self.schema), "JSON schema")
        try:
            schemas.check(schema)
        except (ValueError, schemas.jsonschema.SchemaError) as error:
            reason = str(error).splitlines()[0]
            raise TutelageError(f"{self.schema} is not a JSON schema: {reason}.") from error
        return schema


def _schemas() -> ModuleType:
    try:
        from tutelage.rewards import schemas
    except ImportError as error:
        raise TutelageError("A JSON schema needs the library jsonschema: pip install 'tutelage[rules]'.") from error
    return schemas


def _unfenced(answer: str) -> str:
    """Content of a ``` fence around the whole completion; the completion if there is none."""
    text = answer.strip()
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return answer
    info, _, rest = text[3:-3].partition("\n")
    inside, end, after = rest.rpartition("\n")
    return inside if info.rstrip() in ("", "json") and end and not after.strip() else answer


@dataclass(frozen=True)
class Repetition(CompletionRule):
    """Penalty on repetition: minus the fraction of runs of `n` words that occurred before in the completion, in (−1,
    0]; 0 for a completion of fewer than `n` words."""

    name: ClassVar[str] = "repetition"
    n: int = 3

    def __post_init__(self) -> None:
        if self.n < 1:
            raise TutelageError(f"Repetition is counted in runs of 1 word or more, not {self.n}.")

    def score(self, one: Completion) -> float:
        grams = ngrams(one.answer, self.n)
        return len(set(grams)) / len(grams) - 1.0 if grams else 0.0


@dataclass(frozen=True)
class Readability(CompletionRule):
    """Penalty on text that is hard to read: −max(0, g − grade) / grade, with g the Flesch-Kincaid grade
    (`data.text_counts.reading_grade`), a US school year. It is 0 up to the grade and −1 at twice the grade. A
    completion without words, or mostly in another script than the Latin, gets −1."""

    name: ClassVar[str] = "readability"
    grade: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.grade < 100:
            raise TutelageError(f"A school year is above 0 and at most 20 or so, not {self.grade:g}.")

    def score(self, one: Completion) -> float:
        grade = reading_grade(one.answer)
        return -1.0 if grade is None else -max(0.0, grade - self.grade) / self.grade

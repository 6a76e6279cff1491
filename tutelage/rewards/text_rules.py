"""Rules about the form of an answer: sections in tags, JSON, repetition, how hard it is to read."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from tutelage.base.errors import TutelageError
from tutelage.data.text_counts import ngrams, reading_grade
from tutelage.rewards.limits import answered
from tutelage.rewards.reward import Completion


@dataclass(frozen=True)
class TagFormat:
    """1 where the answer is made of sections in tags, each opened and closed once and in this order, else 0.

    With one tag (<think>…</think>) the answer itself follows the section as text; with several, the last section is
    the answer, and nothing but white space stands between and after them.
    """

    name: ClassVar[str] = "format"
    tags: tuple[str, ...] = ("think",)

    def __post_init__(self) -> None:
        if not self.tags or any(not re.fullmatch(r"\w+", tag) for tag in self.tags):
            raise TutelageError(
                f"Tags are words such as think and answer, not {', '.join(map(repr, self.tags)) or 'nothing'}."
            )

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        return [float(self._fits(one.answer)) for one in completions]

    def _fits(self, answer: str) -> bool:
        marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]
        if any(answer.count(mark) != 1 for mark in marks):
            return False
        sections = r"\s*".join(f"<{tag}>.*</{tag}>" for tag in self.tags)
        rest = r".*\S.*" if len(self.tags) == 1 else r"\s*"
        return re.fullmatch(rf"\s*{sections}{rest}", answer, re.DOTALL) is not None


@dataclass(frozen=True)
class JsonFormat:
    """1 where the whole answer is JSON, which a fence of ``` may surround, else 0.

    `schema` is the file of a JSON schema that the value must fulfil as well; it takes the library jsonschema.
    """

    name: ClassVar[str] = "json"
    limited: ClassVar[bool] = True
    schema: str = ""

    def __post_init__(self) -> None:
        if self.schema:
            _ = self._schema

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        return [float(self._fits(one.answer)) for one in completions]

    def _fits(self, answer: str) -> bool:
        value = _unfenced(answer)
        return answered(self.name, answer, lambda: self._holds(value)) or False

    def _holds(self, value: str) -> bool:
        if self.schema:
            return _schemas().fulfils(self._schema, value)
        try:
            json.loads(value)
        except ValueError:
            return False
        return True

    @cached_property
    def _schema(self) -> str:
        """The text of the schema. Raises TutelageError where it is none."""
        schemas = _schemas()
        try:
            schema = Path(self.schema).read_text(encoding="utf-8")
            schemas.check(schema)
        except OSError as error:
            raise TutelageError(f"The JSON schema {self.schema} cannot be read: {error.strerror}.") from error
        except (ValueError, schemas.jsonschema.SchemaError) as error:
            reason = str(error).splitlines()[0]
            raise TutelageError(f"{self.schema} is no JSON schema: {reason}.") from error
        return schema


def _schemas() -> ModuleType:
    try:
        from tutelage.rewards import schemas
    except ImportError as error:
        raise TutelageError(
            "A JSON schema needs the library jsonschema: pip install 'tutelage[rules]'."
        ) from error
    return schemas


def _unfenced(answer: str) -> str:
    """What stands in a fence of ``` that surrounds the whole answer; the answer where there is none."""
    text = answer.strip()
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return answer
    info, _, rest = text[3:-3].partition("\n")
    inside, end, after = rest.rpartition("\n")
    return inside if info.rstrip() in ("", "json") and end and not after.strip() else answer


@dataclass(frozen=True)
class Repetition:
    """A price on saying the same again: minus the share of runs of `n` words that the answer has said before, in
    (−1, 0]; 0 for an answer shorter than `n` words."""

    name: ClassVar[str] = "repetition"
    n: int = 3

    def __post_init__(self) -> None:
        if self.n < 1:
            raise TutelageError(f"Repetition is counted in runs of 1 word or more, not {self.n}.")

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        return [self._score(ngrams(one.answer, self.n)) for one in completions]

    def _score(self, grams: list[tuple[str, ...]]) -> float:
        return len(set(grams)) / len(grams) - 1.0 if grams else 0.0


@dataclass(frozen=True)
class Readability:
    """A price on text that is hard to read: −max(0, g − grade) / grade, with g the Flesch-Kincaid grade of the answer
    (`data.words.reading_grade`), the school year in which it is understood. So it is 0 up to the grade and −1 at twice
    the grade. An answer without words gets −1."""

    name: ClassVar[str] = "readability"
    grade: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.grade < 100:
            raise TutelageError(f"A school year is above 0 and at most 20 or so, not {self.grade:g}.")

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        return [self._score(reading_grade(one.answer)) for one in completions]

    def _score(self, grade: float | None) -> float:
        return -1.0 if grade is None else -max(0.0, grade - self.grade) / self.grade

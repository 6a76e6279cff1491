"""The values that kinds of questions take and give."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from tutelage.people.answers import Canonical
from tutelage.people.languages import Sentence


@dataclass(frozen=True)
class Traits:
    """The facts about a kind of question.

    does, task: what a study of this kind does ("compares pairs"), and what its answers are for ("to be compared").
    question: what raters are asked unless the owner has words of their own; raters read it in their language.
    invitation, asked: what raters do, for an invitation and for the page before the first question.
    sizes: how many responses a question may have. golds: with how many of them it may have a known answer.
    scales: the allowed values of `Presentation.scale` with the words for each, the default first; no words where the
    scale means nothing to the kind.
    parts: the names that `Answer.content` may hold, each with the value that says nothing.
    sides: whether every question is one pair and its verdict the better side, so that votes are counted by side.
    """

    does: str
    task: str
    question: Sentence
    invitation: Sentence
    asked: Sentence
    sizes: range
    golds: range
    scales: Mapping[int, str]
    parts: Mapping[str, object] = field(default_factory=dict)
    sides: bool = False

    @property
    def scale(self) -> int:
        """The scale of a study that names none."""
        return next(iter(self.scales))


@dataclass(frozen=True)
class Screen:
    """The screen that an answer is about: the number of responses, the scale and criteria shown with them, whether a
    better response may be written, and the categories of words that may be marked."""

    places: int
    scale: int
    criteria: tuple[str, ...] = ()
    corrections: bool = False
    spans: tuple[str, ...] = ()


class PairVerdict(NamedTuple):
    """The verdict of an answer on two responses (canonical indices): `a` (the first is better), `b`, `tie` or
    `both_bad`, with a strength from 0 to 3."""

    first: int
    second: int
    verdict: str
    strength: int


@dataclass(frozen=True)
class Statement:
    """One rater's answer to one item."""

    item: str
    rater: str
    said: Canonical


def every_pair(said: Canonical, places: int) -> Iterator[PairVerdict]:
    """The same verdict about every two of the responses; nothing where the question was skipped."""
    if said.verdict != "skip":
        for first, second in combinations(range(places), 2):
            yield PairVerdict(first, second, said.verdict, said.strength)

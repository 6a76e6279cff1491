"""The protocol of a kind of question, its values, what it needs of a simulated rater, and checks that kinds share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import NamedTuple, Protocol

from tutelage.base.errors import TutelageError
from tutelage.people.answers import LETTERS, Answer, Canonical
from tutelage.people.languages import Sentence
from tutelage.stats.agreement import Alpha


@dataclass(frozen=True)
class KindTraits:
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
    """The screen that an answer is about: the number of responses, scale and criteria, whether corrections may be
    written, and the categories of spans."""

    places: int
    scale: int
    criteria: tuple[str, ...] = ()
    corrections: bool = False
    spans: tuple[str, ...] = ()


class PairVerdict(NamedTuple):
    """A verdict on two responses (canonical indices): `a` (the first is better), `b`, `tie`, `both_bad`; strength 0 to
    3."""

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


class PairJudgement(Protocol):
    """A vote as displayed: left, right, tie or both_bad, its strength (0 to 3), and the seconds it took."""

    @property
    def verdict(self) -> str: ...
    @property
    def strength(self) -> int: ...
    @property
    def seconds(self) -> float: ...


class PairJudge(Protocol):
    """A simulated rater who judges two responses by their gold utilities; `tau` is the noise in units of gold."""

    @property
    def tau(self) -> float: ...

    def judge(
        self,
        gold_left: float,
        gold_right: float,
        words_left: int,
        words_right: int,
        rng: Random,
        answered: int = 0,
    ) -> PairJudgement: ...


@dataclass(frozen=True)
class ResponseValues:
    """The responses from left to right, by their gold utilities and their lengths in words."""

    gold: tuple[float, ...]
    words: tuple[int, ...]


class Kind(Protocol):
    """A kind of question, as a value. Beside its Python file, a kind NAME has two more: the part of the rater's page,
    `web/templates/kinds/NAME.html`, and the script of that part, `web/static/kinds/NAME.js`."""

    @property
    def name(self) -> str:
        """The name under which studies keep the kind."""

    @property
    def traits(self) -> KindTraits:
        """The facts about the kind."""

    def check(self, answer: Answer, screen: Screen) -> None:
        """Raises TutelageError for an answer that the question does not allow."""

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        """The answer by response: `order[k]` is the canonical index of the response in place k from the left."""

    def pairs(self, said: Canonical, places: int) -> Iterable[PairVerdict]:
        """The verdicts on each two of the responses that follow from an answer."""

    def agreements(self, said: Iterable[Statement]) -> Mapping[str, Alpha]:
        """Agreement of raters beyond the pairs, by name."""

    def words(self, said: Canonical) -> str:
        """An answer in words, for owners."""

    def pressed(self, displayed: Mapping[str, object]) -> str:
        """The choice on the screen (`answers.displayed`) in words, for owners."""

    def cells(self, said: Canonical) -> Mapping[str, object]:
        """Columns for a table of votes, beside verdict and strength."""

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        """The inverse of `cells`, for responses in the order of display; None where the columns do not say enough."""

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        """The answer of a simulated rater who has answered so many questions before."""


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

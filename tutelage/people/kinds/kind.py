"""The protocol of kinds of questions, with its value types, the protocol of simulated raters, and shared checks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from random import Random
from typing import NamedTuple, Protocol

from tutelage.base.errors import TutelageError
from tutelage.data.rubrics import Rubric
from tutelage.people.answers import LETTERS, Answer, Canonical
from tutelage.people.languages import Sentence
from tutelage.people.simulated_raters import SimulatedVote
from tutelage.stats.agreement import Alpha


@dataclass(frozen=True)
class KindTraits:
    """The properties of a kind of question.

    does, task: phrases for studies of this kind ("compares pairs") and for their responses ("to be compared").
    question: the default question, translated for raters.
    invitation, asked: descriptions of the task for invitations and for the page before the first question.
    sizes: the allowed numbers of responses. golds: the numbers of responses that allow a known answer.
    scales: the allowed values of `Presentation.scale` with their labels, the default first; labels are empty if the
    kind ignores the scale.
    parts: the allowed names in `Answer.content`, each with its empty value.
    sides: whether every question is a single pair whose verdict is the better side.
    steps: whether the only response is judged step by step; its verdict is the number of the first wrong step, 0 for
    none.
    rubrics: whether every prompt needs a rubric (`data.rubrics`), whose criteria are asked about.
    single: whether a question may also be about one response as a whole, which is good or bad.
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
    steps: bool = False
    rubrics: bool = False
    single: bool = False

    @property
    def scale(self) -> int:
        """The default scale."""
        return next(iter(self.scales))


@dataclass(frozen=True)
class Screen:
    """The screen of a question: the number of responses, scale and criteria, whether corrections are allowed, the
    categories of spans, the number of steps of the response if they are judged, and the rubric of the prompt, empty
    unless the kind has `rubrics`."""

    places: int
    scale: int
    criteria: tuple[str, ...] = ()
    corrections: bool = False
    spans: tuple[str, ...] = ()
    steps: int = 0
    rubric: Rubric = ()


MOST_STEPS = 500
"""Maximum number of steps of a response whose steps are judged."""


class PairVerdict(NamedTuple):
    """A verdict on two responses (canonical indices): `a` (the first is better), `b`, `tie` or `both_bad`, with
    strength 0 to 3. A verdict on a step of the only response has the step as both indices: `a` (right), `b` (wrong) or
    `tie` (neutral); one on the only response as a whole has 0: `a` (good) or `b` (bad)."""

    first: int
    second: int
    verdict: str
    strength: int


@dataclass(frozen=True)
class RaterAnswer:
    """A rater's answer to an item."""

    item: str
    rater: str
    answer: Canonical


def every_pair(answer: Canonical, places: int) -> Iterator[PairVerdict]:
    """The same verdict for each pair of responses; empty for a skipped question."""
    if answer.verdict != "skip":
        for first, second in combinations(range(places), 2):
            yield PairVerdict(first, second, answer.verdict, answer.strength)


def pairs_by_score(
    scores: Sequence[float | None], strength: Callable[[float], int], equal: float = 0
) -> Iterator[PairVerdict]:
    """Of two responses, the one with the higher score is better, with the strength of the difference; differences up to
    `equal` are a tie, of strength 0. A response without a score is in no pair."""
    for first, second in combinations(range(len(scores)), 2):
        one, other = scores[first], scores[second]
        if one is not None and other is not None:
            ahead = one - other if abs(one - other) > equal else 0
            verdict = "a" if ahead > 0 else "b" if ahead < 0 else "tie"
            yield PairVerdict(first, second, verdict, strength(abs(ahead)))


class PairJudge(Protocol):
    """A simulated rater for pairs of responses with gold utilities; `tau` is the noise in units of gold."""

    @property
    def tau(self) -> float: ...

    def judge(
        self, gold_left: float, gold_right: float, words_left: int, words_right: int, rng: Random, answered: int = 0
    ) -> SimulatedVote: ...


@dataclass(frozen=True)
class ResponseValues:
    """Gold utilities and lengths in words of the responses from left to right, or of the steps of the only response;
    the utility of a right step is positive, that of a wrong one negative."""

    gold: tuple[float, ...]
    words: tuple[int, ...]


class Kind(Protocol):
    """A kind of question. Besides its Python module, a kind NAME has a template for the rater's page,
    `web/templates/kinds/NAME.html`, and a script for it, `web/static/kinds/NAME.js`."""

    @property
    def name(self) -> str:
        """The name of the kind in studies."""

    @property
    def traits(self) -> KindTraits:
        """The properties of the kind."""

    def check(self, answer: Answer, screen: Screen) -> None:
        """Raises TutelageError for an answer that is invalid for the question."""

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        """The canonical form of an answer; `order[k]` is the canonical index of the response at position k from the
        left."""

    def pairs(self, answer: Canonical, places: int) -> Iterable[PairVerdict]:
        """The verdicts on pairs of responses implied by an answer."""

    def gold_pairs(self, gold: str, steps: int) -> Iterable[PairVerdict]:
        """The verdicts implied by the known answer of an item; `steps` is the number of steps. Raises TutelageError for
        an invalid one."""

    def agreements(self, statements: Iterable[RaterAnswer]) -> Mapping[str, Alpha]:
        """Agreement of raters beyond the pairs, by name."""

    def words(self, answer: Canonical) -> str:
        """An answer in canonical form as text, for owners."""

    def pressed(self, displayed: Mapping[str, object]) -> str:
        """An answer in displayed form (`answers.displayed`) as text, for owners."""

    def cells(self, answer: Canonical) -> Mapping[str, object]:
        """Columns of a table of votes, in addition to verdict and strength."""

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        """The inverse of `cells`, for responses in display order; None if columns or values are missing."""

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        """The answer of a simulated rater; `answered` is the number of the rater's previous answers."""


COMMON_WORDS = {"tie": Sentence("equal"), "both_bad": Sentence("both bad"), "skip": Sentence("can’t judge")}
"""Labels for owners of the choices and verdicts that kinds share."""


def known_pair(gold: str) -> tuple[PairVerdict]:
    """The known answer about two responses. Raises TutelageError unless it is a, b or tie."""
    if gold not in ("a", "b", "tie"):
        raise TutelageError(f"the gold answer is '{gold}'; it must be a, b or tie")
    return (PairVerdict(0, 1, gold, 0),)


def check_answer(
    answer: Answer,
    choices: Sequence[str],
    *,
    strength: tuple[int, int] = (0, 0),
    parts: Iterable[str] = (),
    criteria: Sequence[str] = (),
) -> None:
    """Check the parts of an answer that depend on the kind only by their values: its choice, the range of its strength,
    the names in its content, and its sides by criterion of the study. Raises TutelageError if a part is not among
    these."""
    lowest, highest = strength
    if answer.choice not in choices:
        raise TutelageError(f"'{answer.choice}' is not an answer to this question; choose one of {', '.join(choices)}.")
    if not lowest <= answer.strength <= highest:
        raise TutelageError(
            f"The strength {answer.strength} is invalid for '{answer.choice}'; it must be {lowest} to {highest}."
        )
    other = sorted(set(answer.content) - set(parts))
    if other:
        raise TutelageError(f"An answer '{answer.choice}' to this question cannot have '{other[0]}'.")
    unknown = sorted(set(answer.criteria) - set(criteria))
    if unknown or any(side not in ("left", "right", "tie") for side in answer.criteria.values()):
        raise TutelageError(
            f"The criteria of this study are {', '.join(criteria) or 'none'}, each answered left, right or tie; "
            f"this answer has {dict(answer.criteria)}."
        )


def timed(answer: Answer, seconds: float) -> Answer:
    """The answer of a simulated rater who took these seconds."""
    milliseconds = round(seconds * 1000)
    return replace(answer, active_ms=milliseconds, wall_ms=milliseconds)


def sides_by_letter(criteria: Mapping[str, str], order: Sequence[int]) -> dict[str, str]:
    """The criteria with canonical letters instead of left and right."""
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
    """The whole number in a cell of a table; 0 if there is none."""
    text = "" if cell is None else str(cell).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def by_response(values: Sequence[int], order: Sequence[int]) -> list[int]:
    """Reorder values from display order to canonical order: position k shows the response `order[k]`."""
    canonical = [0] * len(values)
    for place, value in enumerate(values):
        canonical[order[place]] = value
    return canonical

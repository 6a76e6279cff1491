"""Comparison of two responses: the better one with a strength, and the better one by each criterion of the study."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from tutelage.people.answers import LETTERS, Answer, Canonical
from tutelage.people.kinds.kind import (
    COMMON_WORDS,
    KindTraits,
    PairJudge,
    PairVerdict,
    RaterAnswer,
    ResponseValues,
    Screen,
    check_answer,
    every_pair,
    known_pair,
    sides_by_letter,
    timed,
)
from tutelage.people.languages import Sentence
from tutelage.stats.agreement import Alpha

CHOICES = ("left", "right", "tie", "both_bad", "skip")
_SLIGHTLY, _BETTER, _MUCH = Sentence("slightly better"), Sentence("better"), Sentence("much better")
STRENGTH = (_BETTER, _SLIGHTLY, _BETTER, _MUCH)
"""Labels of strengths for owners."""
WORDS = {1: (_BETTER,), 2: (_BETTER, _MUCH), 3: (_SLIGHTLY, _BETTER, _MUCH)}
"""Labels of strengths on the screen, by maximum strength."""


@dataclass(frozen=True)
class Point:
    """A point of the bar: its choice and strength, the letter of its side, and its label."""

    choice: str
    strength: int
    letter: str
    words: str


TRAITS = KindTraits(
    does="compares pairs",
    task="to be compared",
    question=Sentence("Which response is better?"),
    invitation=Sentence("You see two responses at a time, and say which is better."),
    asked=Sentence("That is what you will be asked, again and again, about two responses to the same prompt."),
    sizes=range(2, 3),
    golds=range(2, 3),
    scales={3: Sentence("seven points"), 2: Sentence("five points"), 1: Sentence("three points: better, equal, worse")},
    sides=True,
)


@dataclass(frozen=True)
class Pair:
    """A bar between two responses. `Presentation.scale` is the maximum strength: 3 for seven points, 1 for three."""

    name: str = "pair"
    traits: KindTraits = TRAITS

    def points(self, scale: int) -> tuple[Point, ...]:
        """The points of the bar from left to right."""
        strengths = list(enumerate(WORDS[scale], 1))
        left = [Point("left", strength, "A", words) for strength, words in reversed(strengths)]
        right = [Point("right", strength, "B", words) for strength, words in strengths]
        return (*left, Point("tie", 0, "", Sentence("about equal")), *right)

    def check(self, answer: Answer, screen: Screen) -> None:
        strength = (1, screen.scale) if answer.choice in ("left", "right") else (0, 0)
        check_answer(answer, CHOICES, strength=strength, criteria=screen.criteria)

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        names = {"left": LETTERS[order[0]], "right": LETTERS[order[1]]}
        verdict = names.get(answer.choice, answer.choice)
        return Canonical(verdict, answer.strength, {}, sides_by_letter(answer.criteria, order))

    def pairs(self, answer: Canonical, places: int) -> Iterable[PairVerdict]:
        return every_pair(answer, places)

    def gold_pairs(self, gold: str, steps: int) -> Iterable[PairVerdict]:
        return known_pair(gold)

    def agreements(self, statements: Iterable[RaterAnswer]) -> Mapping[str, Alpha]:
        return {}

    def words(self, answer: Canonical) -> str:
        if answer.verdict in ("a", "b"):
            return Sentence("%(letter)s %(how)s", letter=answer.verdict.upper(), how=STRENGTH[answer.strength])
        return COMMON_WORDS.get(answer.verdict, answer.verdict)

    def pressed(self, displayed: Mapping[str, object]) -> str:
        choice, strength = str(displayed["choice"]), displayed.get("strength", 0)
        if choice in ("left", "right") and isinstance(strength, int):
            side = Sentence("left, %(how)s", how=STRENGTH[strength])
            return side if choice == "left" else Sentence("right, %(how)s", how=STRENGTH[strength])
        return COMMON_WORDS.get(choice, choice)

    def cells(self, answer: Canonical) -> Mapping[str, object]:
        return {}

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        return None

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        (left, right), (words_left, words_right) = responses.gold, responses.words
        vote = rater.judge(left, right, words_left, words_right, rng, answered)
        return timed(Answer(vote.verdict, min(vote.strength, screen.scale)), vote.seconds)


PAIR = Pair()

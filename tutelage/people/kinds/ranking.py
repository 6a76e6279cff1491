"""Ranking of several responses; equal ranks are ties."""

from collections.abc import Iterable, Mapping, Sequence
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
    by_response,
    check_answer,
    every_pair,
    known_pair,
    pairs_by_score,
    sides_by_letter,
    whole_number,
    whole_numbers,
)
from tutelage.people.languages import Sentence
from tutelage.people.validation import StudyError
from tutelage.stats.agreement import Alpha

CHOICES = ("ranked", "both_bad", "skip")
STRONGEST = 3


def ranked(ranks: Sequence[int]) -> Answer:
    """An answer with the ranks of the displayed responses from left to right; 1 is best, equal ranks are ties."""
    return Answer("ranked", content={"ranking": tuple(ranks)})


TRAITS = KindTraits(
    does="ranks answers",
    task="to be put in order",
    question=Sentence("Put these responses in order, the best one first."),
    invitation=Sentence("You see several responses at a time, and put them in order."),
    asked=Sentence("That is what you will be asked, again and again, about several responses to the same prompt."),
    sizes=range(2, 7),
    golds=range(0),
    scales={3: "", 2: "", 1: ""},
    parts={"ranking": ()},
)


@dataclass(frozen=True)
class Ranking:
    """Ranks 1 (best) to n of n responses. Of two responses, the one with the lower rank is better, with the difference
    of ranks (at most 3) as strength."""

    name: str = "ranking"
    traits: KindTraits = TRAITS

    def check(self, answer: Answer, screen: Screen) -> None:
        parts = self.traits.parts if answer.choice == "ranked" else ()
        check_answer(answer, CHOICES, parts=parts, criteria=screen.criteria)
        ranks = answer.content.get("ranking")
        if answer.choice == "ranked" and not whole_numbers(ranks, screen.places, screen.places):
            raise StudyError(
                "A ranking gives each of the %(places)s responses a rank from 1 to %(places)s.", places=screen.places
            )

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        ranks = _ranks(answer.content)
        content = {"ranking": by_response(ranks, order)} if ranks else {}
        return Canonical(answer.choice, 0, content, sides_by_letter(answer.criteria, order))

    def pairs(self, answer: Canonical, places: int) -> Iterable[PairVerdict]:
        ranks = _ranks(answer.content)
        if not ranks:
            return every_pair(answer, places)
        return pairs_by_score([-rank for rank in ranks], lambda ahead: min(int(ahead), STRONGEST))

    def gold_pairs(self, gold: str, steps: int) -> Iterable[PairVerdict]:
        return known_pair(gold)

    def agreements(self, statements: Iterable[RaterAnswer]) -> Mapping[str, Alpha]:
        return {}

    def words(self, answer: Canonical) -> str:
        ranks = zip(LETTERS.upper(), _ranks(answer.content), strict=False)
        return ", ".join(f"{letter} {rank}" for letter, rank in ranks) or COMMON_WORDS[answer.verdict]

    def pressed(self, displayed: Mapping[str, object]) -> str:
        ranks = _ranks(displayed)
        return (
            Sentence("ranks from top: %(ranks)s", ranks=" ".join(map(str, ranks)))
            if ranks
            else COMMON_WORDS[str(displayed["choice"])]
        )

    def cells(self, answer: Canonical) -> Mapping[str, object]:
        return {f"rank_{letter}": rank for letter, rank in zip(LETTERS, _ranks(answer.content), strict=False)}

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        ranks = [whole_number(cells.get(f"rank_{letter}")) for letter in LETTERS[: screen.places]]
        return ranked(ranks) if all(ranks) else None

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        noisy = [value + rng.gauss(0, rater.tau) for value in responses.gold]
        return ranked([1 + sum(other > own for other in noisy) for own in noisy])


def _ranks(content: Mapping[str, object]) -> Sequence[int]:
    ranks = content.get("ranking", ())
    return ranks if isinstance(ranks, list | tuple) else ()


RANKING = Ranking()

"""Ratings of each response by every criterion of the study, from 1 (worst) to 5 or 7 (best).

Of two responses, the one with the higher mean rating is better; equal means are a tie. With C criteria, a scale of K
points and ratings r, the difference and its strength, in thirds of the maximum difference, are

    Δ = Σ_c (r_1c - r_2c) / C,   strength = ⌈3 |Δ| / (K - 1)⌉,   0 for a tie

(Likert 1932 for the scale; pairs from ratings as in Cui et al. 2023, UltraFeedback).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    timed,
    whole_number,
    whole_numbers,
)
from tutelage.people.languages import Sentence
from tutelage.people.validation import StudyError
from tutelage.stats.agreement import Alpha, krippendorff_alpha
from tutelage.stats.vote_codes import Votes

CHOICES = ("rated", "skip")
OVERALL = Sentence("overall")
"""The default criterion."""
STRONGEST = 3
TRAITS = KindTraits(
    does="rates answers",
    task="to be rated",
    question=Sentence("How good is each response?"),
    invitation=Sentence("You see a few responses at a time, and rate each of them."),
    asked=Sentence("That is what you will be asked, again and again, about a few responses to the same prompt."),
    sizes=range(2, 7),
    golds=range(2, 3),
    scales={5: Sentence("1 to 5"), 7: Sentence("1 to 7")},
    parts={"ratings": {}},
)


def rated(ratings: Mapping[str, Sequence[int]]) -> Answer:
    """An answer with ratings by criterion, each for the displayed responses from left to right."""
    return Answer("rated", content={"ratings": {name: list(values) for name, values in ratings.items()}})


def criteria_of(named: Sequence[str]) -> tuple[str, ...]:
    """The criteria of ratings for the criteria in the settings of a study: `OVERALL` if there are none."""
    return tuple(dict.fromkeys(named)) or (OVERALL,)


@dataclass(frozen=True)
class Likert:
    """Ratings of each response. The verdict of an answer about two responses is that of their pair, else `rated`."""

    name: str = "likert"
    traits: KindTraits = TRAITS

    def criteria(self, named: Sequence[str]) -> tuple[str, ...]:
        """The criteria of each response on the page."""
        return criteria_of(named)

    def check(self, answer: Answer, screen: Screen) -> None:
        check_answer(answer, CHOICES, parts=self.traits.parts if answer.choice == "rated" else ())
        if answer.choice != "rated":
            return
        ratings, criteria = _ratings(answer.content), criteria_of(screen.criteria)
        fits = all(whole_numbers(values, screen.places, screen.scale) for values in ratings.values())
        if set(ratings) != set(criteria) or not fits:
            raise StudyError(
                "Each of the %(places)s responses is rated from 1 to %(scale)s on %(criteria)s; this answer "
                "lacks a rating or has another one.",
                places=screen.places,
                scale=screen.scale,
                criteria=", ".join(criteria),
            )

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        if answer.choice == "skip":
            return Canonical("skip", 0, {}, {})
        displayed = _ratings(answer.content)
        ratings = {name: by_response(displayed[name], order) for name in criteria_of(screen.criteria)}
        content = {"ratings": ratings, "scale": screen.scale}
        whole = list(_pairs(content))
        if len(whole) > 1:
            return Canonical(answer.choice, 0, content, {})
        return Canonical(whole[0].verdict, whole[0].strength, content, {})

    def pairs(self, answer: Canonical, places: int) -> Iterable[PairVerdict]:
        return _pairs(answer.content) if answer.content else every_pair(answer, places)

    def gold_pairs(self, gold: str, steps: int) -> Iterable[PairVerdict]:
        return known_pair(gold)

    def agreements(self, statements: Iterable[RaterAnswer]) -> Mapping[str, Alpha]:
        """Krippendorff's alpha with ordinal distance for each criterion; each response is a unit."""
        columns: dict[tuple[str, int], list[tuple[str, str, str]]] = {}
        for each in statements:
            scale = _scale(each.answer.content)
            for name, values in _ratings(each.answer.content).items():
                rows = columns.setdefault((name, scale), [])
                rows += [
                    (f"{each.item}\x1f{letter}", each.rater, str(value))
                    for letter, value in zip(LETTERS, values, strict=False)
                ]
        several, alphas = len({scale for _, scale in columns}) > 1, {}
        for (name, scale), rows in columns.items():
            items, raters, choices = zip(*rows, strict=True)
            votes = Votes.of(items, raters, choices, [str(step) for step in range(1, scale + 1)])
            alphas[f"{name} (1 to {scale})" if several else name] = krippendorff_alpha(votes, "ordinal")
        return alphas

    def words(self, answer: Canonical) -> str:
        ratings = zip(LETTERS.upper(), _by_place(answer.content), strict=False)
        text = ", ".join(f"{letter} {_listed(values)}" for letter, values in ratings)
        return text or COMMON_WORDS[answer.verdict]

    def pressed(self, displayed: Mapping[str, object]) -> str:
        ratings = "; ".join(f"{name} {_listed(values)}" for name, values in _ratings(displayed).items())
        return Sentence("from top: %(ratings)s", ratings=ratings) if ratings else COMMON_WORDS[str(displayed["choice"])]

    def cells(self, answer: Canonical) -> Mapping[str, object]:
        return {
            f"{name}_{letter}": value
            for name, values in _ratings(answer.content).items()
            for letter, value in zip(LETTERS, values, strict=False)
        }

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        ratings = {
            name: [whole_number(cells.get(f"{name}_{letter}")) for letter in LETTERS[: screen.places]]
            for name in criteria_of(screen.criteria)
        }
        return rated(ratings) if all(map(all, ratings.values())) else None

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        """Each rating compares the response with one of gold 0; a strength of 3 for either is an end of the scale."""
        seconds, middle, step = 0.0, (screen.scale + 1) / 2, (screen.scale - 1) / (2 * STRONGEST)
        ratings: dict[str, list[int]] = {name: [] for name in criteria_of(screen.criteria)}
        for values in ratings.values():
            for gold, words in zip(responses.gold, responses.words, strict=True):
                vote = rater.judge(gold, 0.0, words, words, rng, answered)
                signed = vote.strength if vote.verdict == "left" else -vote.strength
                values.append(round(middle + step * signed))
                seconds += vote.seconds / 2
        return timed(rated(ratings), seconds)


def _ratings(content: Mapping[str, object]) -> Mapping[str, Sequence[int]]:
    ratings = content.get("ratings", {})
    return ratings if isinstance(ratings, Mapping) else {}


def _scale(content: Mapping[str, object]) -> int:
    scale = content.get("scale", TRAITS.scale)
    return scale if isinstance(scale, int) else TRAITS.scale


def _by_place(content: Mapping[str, object]) -> Sequence[tuple[int, ...]]:
    """The ratings of each response, in the order of the criteria."""
    return list(zip(*_ratings(content).values(), strict=True))


def _listed(values: Iterable[int]) -> str:
    return " ".join(map(str, values))


def _pairs(content: Mapping[str, object]) -> Iterator[PairVerdict]:
    """Verdicts in integer arithmetic, so that ties are exact: with D = C Δ, strength = ⌈3 |D| / (C (K - 1))⌉."""
    by_place = _by_place(content)
    most = len(by_place[0]) * (_scale(content) - 1)
    return pairs_by_score([sum(values) for values in by_place], lambda ahead: -(-STRONGEST * int(ahead) // most))


LIKERT = Likert()

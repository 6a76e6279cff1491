"""Verdicts on every criterion of the prompt's rubric, for each response: met, unmet, or unsure.

Of two responses, the one with the higher score by the rubric (`data.rubrics`; an unsure verdict is a missing one) is
better. With scores s in units of the rubric's positive points, the strength is min(3, ⌈3 |s_1 - s_2|⌉); equal scores
are a tie, and a response without a score is in no pair. Raters do not see the points.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from random import Random

from tutelage.base.errors import TutelageError
from tutelage.data.rubrics import Criterion, rubric_score
from tutelage.people.answers import DECISIONS, LETTERS, Answer, Canonical, decisions_in, judged, verdicts_in
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
    pairs_by_score,
    timed,
)
from tutelage.people.languages import Sentence
from tutelage.people.validation import StudyError
from tutelage.stats.agreement import Alpha, krippendorff_alpha
from tutelage.stats.vote_codes import Votes

CHOICES = ("judged", "skip")
STRONGEST = 3
EQUAL = 1e-9
"""Difference of scores up to which they are equal, for rounding."""
TRAITS = KindTraits(
    does="decides about criteria",
    task="to be judged by criteria",
    question=Sentence("Which criteria does each response meet?"),
    invitation=Sentence("You see a few responses at a time, and say which criteria each of them meets."),
    asked=Sentence("That is what you will be asked, again and again, about a few responses to the same prompt."),
    sizes=range(2, 7),
    golds=range(0),
    scales={2: ""},
    parts={"verdicts": {}},
    rubrics=True,
)


@dataclass(frozen=True)
class Checklist:
    """Verdicts on criteria. The verdict of an answer about two responses is that of their pair, else `judged`."""

    name: str = "checklist"
    traits: KindTraits = TRAITS

    def check(self, answer: Answer, screen: Screen) -> None:
        check_answer(answer, CHOICES, parts=self.traits.parts if answer.choice == "judged" else ())
        if answer.choice != "judged":
            return
        verdicts = verdicts_in(answer.content)
        fits = all(
            isinstance(values, list | tuple)
            and len(values) == screen.places
            and all(isinstance(value, str) and value in DECISIONS for value in values)
            for values in verdicts.values()
        )
        if set(verdicts) != {criterion.text for criterion in screen.rubric} or not fits:
            raise StudyError(
                "Each of the %(places)s responses needs a verdict on each of %(count)s criteria; this answer lacks "
                "one or has another one.",
                places=screen.places,
                count=len(screen.rubric),
            )

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        if answer.choice == "skip":
            return Canonical("skip", 0, {}, {})
        displayed = verdicts_in(answer.content)
        places = {index: place for place, index in enumerate(order)}
        verdicts = {
            each.text: [displayed[each.text][places[index]] for index in range(len(order))] for each in screen.rubric
        }
        content = {"verdicts": verdicts, "points": {each.text: each.points for each in screen.rubric}}
        whole = list(_pairs(content))
        if len(order) > 2 or not whole:
            return Canonical(answer.choice, 0, content, {})
        return Canonical(whole[0].verdict, whole[0].strength, content, {})

    def pairs(self, answer: Canonical, places: int) -> Iterable[PairVerdict]:
        return _pairs(answer.content) if answer.content else every_pair(answer, places)

    def gold_pairs(self, gold: str, steps: int) -> Iterable[PairVerdict]:
        """Raises TutelageError: a question about criteria has no known answer."""
        raise TutelageError(f"the gold answer is '{gold}'; questions about criteria have no known answers")

    def agreements(self, statements: Iterable[RaterAnswer]) -> Mapping[str, Alpha]:
        """Krippendorff's alpha over all criteria; each criterion of a response is a unit, unsure is missing."""
        rows = [
            (f"{each.item}\x1f{name}\x1f{index}", each.rater, "met" if met else "unmet")
            for each in statements
            for name, index, met in decisions_in(each.answer.content)
        ]
        if not rows:
            return {}
        items, raters, choices = zip(*rows, strict=True)
        return {Sentence("criteria"): krippendorff_alpha(Votes.of(items, raters, choices, ["unmet", "met"]), "nominal")}

    def words(self, answer: Canonical) -> str:
        scores = zip(LETTERS.upper(), _scores(answer.content), strict=False)
        text = ", ".join(f"{letter} {'–' if score is None else format(score, '.2f')}" for letter, score in scores)
        return text or COMMON_WORDS[answer.verdict]

    def pressed(self, displayed: Mapping[str, object]) -> str:
        marks = {"met": "+", "unmet": "−", "unsure": "?"}
        verdicts = "; ".join(
            f"{name} {' '.join(marks[value] for value in values)}" for name, values in verdicts_in(displayed).items()
        )
        return (
            Sentence("from top: %(ratings)s", ratings=verdicts) if verdicts else COMMON_WORDS[str(displayed["choice"])]
        )

    def cells(self, answer: Canonical) -> Mapping[str, object]:
        """A column for each response, with the verdicts by criterion as JSON: prompts have criteria of their own, so
        that a column for each criterion would be a table as wide as the study is long."""
        verdicts = verdicts_in(answer.content)
        return {
            f"verdicts_{letter}": json.dumps(dict(zip(verdicts, values, strict=True)), ensure_ascii=False)
            for letter, values in zip(LETTERS, zip(*verdicts.values(), strict=True), strict=False)
        }

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        rows = [_decisions(cells.get(f"verdicts_{letter}")) for letter in LETTERS[: screen.places]]
        names = dict.fromkeys([*(each.text for each in screen.rubric), *(str(name) for row in rows for name in row)])
        verdicts = {name: [_decision(row.get(name, "")) for row in rows] for name in names}
        complete = verdicts and all(value in DECISIONS for values in verdicts.values() for value in values)
        return judged(verdicts) if complete else None

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        """A response of higher gold meets more criteria: each verdict compares it with one of gold 0."""
        seconds = 0.0
        verdicts: dict[str, list[str]] = {each.text: [] for each in screen.rubric}
        for values in verdicts.values():
            for gold, words in zip(responses.gold, responses.words, strict=True):
                vote = rater.judge(gold, 0.0, words, words, rng, answered)
                values.append({"left": "met", "right": "unmet"}.get(vote.verdict, "unsure"))
                seconds += vote.seconds / (2 * len(verdicts))
        return timed(judged(verdicts), seconds)


def _decision(value: object) -> str:
    """A verdict as a word: also true, false and null."""
    words: Mapping[object, str] = {met: word for word, met in DECISIONS.items()}
    return words[value] if value is None or isinstance(value, bool) else str(value).strip().lower()


def _decisions(cell: object) -> Mapping[str, object]:
    if isinstance(cell, Mapping):
        return cell
    try:
        decisions = json.loads(str(cell))
    except (ValueError, RecursionError):
        return {}
    return decisions if isinstance(decisions, dict) else {}


def _scores(content: Mapping[str, object]) -> list[float | None]:
    """The score of each response of an answer in canonical form."""
    points, verdicts = content.get("points", {}), verdicts_in(content)
    assert isinstance(points, Mapping)
    rubric = tuple(Criterion(name, float(points[name])) for name in verdicts)
    by_place = zip(*verdicts.values(), strict=True)
    return [rubric_score(rubric, [DECISIONS[value] for value in values]) for values in by_place]


def _pairs(content: Mapping[str, object]) -> Iterator[PairVerdict]:
    return pairs_by_score(_scores(content), lambda ahead: min(STRONGEST, ceil(STRONGEST * ahead - EQUAL)), EQUAL)


CHECKLIST = Checklist()

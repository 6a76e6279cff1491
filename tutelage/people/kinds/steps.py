"""Judgement of the steps of one response: the first wrong step, or a label for each.

A step is a part of a text, or an assistant's message with the results of its calls. `Presentation.scale` says what is
asked: with 2, the first wrong step, or that all are right (Uesato et al. 2022); with 3, a label -1, 0 or +1 for each
(Lightman et al. 2023, PRM800K). The verdict of an answer is the number of the first step labelled -1, from 1, or 0 for
none. An answer with the first wrong step labels the steps up to and including it; it says nothing about later ones,
which follow from an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tutelage.base.errors import TutelageError
from tutelage.people.answers import LONGEST_REASON, Answer, Canonical
from tutelage.people.kinds.kind import (
    COMMON_WORDS,
    KindTraits,
    PairJudge,
    PairVerdict,
    RaterAnswer,
    ResponseValues,
    Screen,
    check_answer,
    timed,
)
from tutelage.people.languages import Sentence
from tutelage.people.validation import StudyError, refuse_unstorable
from tutelage.stats.agreement import Alpha, krippendorff_alpha
from tutelage.stats.vote_codes import Votes

CHOICES = ("judged", "skip")
FIRST_WRONG, EACH = 2, 3
"""Values of `Presentation.scale`: the number of labels a step may have."""
VERDICTS = {1: "a", 0: "tie", -1: "b"}
"""Verdicts on a step by label."""
SIGNS = {1: "+1", 0: "0", -1: "\N{MINUS SIGN}1"}
TRAITS = KindTraits(
    does="judges steps",
    task="to be judged step by step",
    question=Sentence("Which steps are right?"),
    invitation=Sentence("You see one response at a time, and judge its steps."),
    asked=Sentence("That is what you will be asked, again and again, about the steps of a response."),
    sizes=range(1, 2),
    golds=range(1, 2),
    scales={FIRST_WRONG: Sentence("the first wrong step"), EACH: Sentence("each step as wrong, neutral or right")},
    parts={"labels": (), "reasons": {}},
    steps=True,
)


def judged(labels: Sequence[int | None], reasons: Mapping[int, str] | None = None) -> Answer:
    """An answer with the label of each step, -1, 0, +1 or None, and reasons by number of the step, from 1."""
    named = {str(number): reason for number, reason in (reasons or {}).items()}
    return Answer("judged", content={"labels": list(labels)} | ({"reasons": named} if named else {}))


def first_wrong(number: int, steps: int) -> Answer:
    """An answer with the number of the first wrong step, from 1, or 0 if all are right."""
    return judged(labels_until(number, steps))


def labels_until(number: int, steps: int) -> list[int | None]:
    """The labels that follow from the first wrong step: +1 before it, -1 for it, and none after it."""
    return [*[1] * (number - 1), -1, *[None] * (steps - number)] if number else [1] * steps


@dataclass(frozen=True)
class Steps:
    """Labels of the steps of a response."""

    name: str = "steps"
    traits: KindTraits = TRAITS

    def labels(self, scale: int) -> Mapping[int, str]:
        """The labels of a step on the page, in the order of their keys."""
        words = {-1: Sentence("Wrong"), 0: Sentence("Neutral"), 1: Sentence("Right")}
        return words if scale == EACH else {label: words[label] for label in (-1, 1)}

    def check(self, answer: Answer, screen: Screen) -> None:
        check_answer(answer, CHOICES, parts=self.traits.parts if answer.choice == "judged" else ())
        if answer.choice == "judged":
            _check_labels(answer.content.get("labels"), screen)
            _check_reasons(answer.content.get("reasons", {}), screen.steps)

    def canonical(self, answer: Answer, order: tuple[int, ...], screen: Screen) -> Canonical:
        if answer.choice == "skip":
            return Canonical("skip", 0, {}, {})
        return Canonical(str(_first_wrong(_labels(answer.content))), 0, dict(answer.content), {})

    def pairs(self, answer: Canonical, places: int) -> Iterator[PairVerdict]:
        for step, label in enumerate(_labels(answer.content)):
            if label is not None:
                yield PairVerdict(step, step, VERDICTS[label], 0)

    def gold_pairs(self, gold: str, steps: int) -> Iterable[PairVerdict]:
        if gold not in map(str, range(steps + 1)):
            raise TutelageError(
                f"the gold answer is '{gold}'; it must be the number of the first wrong step, 1 to {steps}, or 0"
            )
        answer = Canonical(gold, 0, {"labels": labels_until(int(gold), steps)}, {})
        return self.pairs(answer, 1)

    def agreements(self, statements: Iterable[RaterAnswer]) -> Mapping[str, Alpha]:
        """Krippendorff's alpha of the labels of steps, with ordinal distance, and of the first wrong step."""
        answers = list(statements)
        rows = [
            (f"{each.item}\x1f{step}", each.rater, str(label), each.item)
            for each in answers
            for step, label in enumerate(_labels(each.answer.content))
            if label is not None
        ]
        whole = [(each.item, each.rater, each.answer.verdict, each.item) for each in answers]
        return {
            Sentence("each step"): _alpha(rows, ordinal=True),
            Sentence("first wrong step"): _alpha(whole, ordinal=False),
        }

    def words(self, answer: Canonical) -> str:
        labels = _labels(answer.content)
        if not labels:
            return COMMON_WORDS[answer.verdict]
        wrong = _first_wrong(labels)
        if 0 in labels or -1 in labels[wrong:]:
            return " ".join("–" if label is None else SIGNS[label] for label in labels)
        return Sentence("step %(number)s is wrong", number=wrong) if wrong else Sentence("all steps right")

    def pressed(self, displayed: Mapping[str, object]) -> str:
        return self.words(Canonical(str(displayed["choice"]), 0, displayed, {}))

    def cells(self, answer: Canonical) -> Mapping[str, object]:
        labels = enumerate(_labels(answer.content), 1)
        reasons = _reasons(answer.content).items()
        return {f"step_{number}": label for number, label in labels} | {
            f"reason_{number}": reason for number, reason in reasons
        }

    def read(self, cells: Mapping[str, object], screen: Screen) -> Answer | None:
        """The labels in columns `step_1`, …, or the number in a column `first_wrong`."""
        columns = [cells.get(f"step_{number}") for number in range(1, screen.steps + 1)]
        labels = [_label(cell) for cell in columns]
        reasons = {n: str(cells.get(f"reason_{n}") or "").strip() for n in range(1, screen.steps + 1)}
        if any(label is not None for label in labels):
            return judged(labels, {number: reason for number, reason in reasons.items() if reason})
        cell = cells.get("first_wrong")
        number = "" if cell is None else str(cell).strip().removesuffix(".0")
        return first_wrong(int(number), screen.steps) if number.isdecimal() and len(number) < 10 else None

    def simulate(
        self, responses: ResponseValues, screen: Screen, rater: PairJudge, rng: Random, answered: int
    ) -> Answer:
        """Each step is compared with one of gold 0: better is right, no difference neutral, or right where the first
        wrong step is asked for. There, the rater stops at it."""
        seconds, labels = 0.0, list[int | None]()
        for gold, words in zip(responses.gold, responses.words, strict=True):
            vote = rater.judge(gold, 0.0, words, words, rng, answered)
            label = {"left": 1, "right": -1}.get(vote.verdict, 0)
            labels.append(label if screen.scale == EACH or label else 1)
            seconds += vote.seconds / 2
            if screen.scale == FIRST_WRONG and label == -1:
                break
        labels += [None] * (len(responses.gold) - len(labels))
        return timed(judged(labels), seconds)


def _check_labels(labels: object, screen: Screen) -> None:
    if not (
        isinstance(labels, list | tuple)
        and len(labels) == screen.steps
        and all(label is None or (type(label) is int and label in VERDICTS) for label in labels)
    ):
        raise StudyError("Each of the %(steps)s steps has a label, -1, 0, +1 or none.", steps=screen.steps)
    if screen.scale == EACH and None in labels:
        raise StudyError("Each of the %(steps)s steps is labelled -1, 0 or +1.", steps=screen.steps)
    if screen.scale == FIRST_WRONG and list(labels) != labels_until(_first_wrong(labels), screen.steps):
        raise StudyError("The steps before the first wrong one are labelled +1, and those after it not at all.")


def _check_reasons(reasons: object, steps: int) -> None:
    numbers = {str(number) for number in range(1, steps + 1)}
    if not (
        isinstance(reasons, Mapping)
        and reasons.keys() <= numbers
        and all(isinstance(reason, str) and len(reason) <= LONGEST_REASON for reason in reasons.values())
    ):
        raise StudyError(
            "Reasons are texts of at most %(most)s characters, by number of the step, 1 to %(steps)s.",
            most=LONGEST_REASON,
            steps=steps,
        )
    for reason in reasons.values():
        refuse_unstorable(reason, Sentence("The answer"))


def _labels(content: Mapping[str, object]) -> Sequence[int | None]:
    labels = content.get("labels", ())
    return labels if isinstance(labels, list | tuple) else ()


def _reasons(content: Mapping[str, object]) -> Mapping[str, str]:
    reasons = content.get("reasons", {})
    return reasons if isinstance(reasons, Mapping) else {}


def _first_wrong(labels: Sequence[int | None]) -> int:
    return next((number for number, label in enumerate(labels, 1) if label == -1), 0)


def _label(cell: object) -> int | None:
    text = "" if cell is None else str(cell).strip().removesuffix(".0").replace("\N{MINUS SIGN}", "-")
    return {"1": 1, "+1": 1, "0": 0, "-1": -1}.get(text)


def _alpha(rows: Sequence[tuple[str, str, str, str]], *, ordinal: bool) -> Alpha:
    """Alpha of (unit, rater, choice, item), with an interval over items."""
    units, raters, choices, items = zip(*rows, strict=True) if rows else ((), (), (), ())
    votes = Votes.of(units, raters, choices, ["-1", "0", "1"] if ordinal else None)
    item_of = dict(zip(units, items, strict=True))
    codes = {item: code for code, item in enumerate(dict.fromkeys(items))}
    cluster = [codes[item_of[unit]] for unit in votes.items]
    return krippendorff_alpha(votes, "ordinal" if ordinal else "nominal", cluster=cluster)


STEPS = Steps()

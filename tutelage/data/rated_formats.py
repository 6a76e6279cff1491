"""Published data sets in which several answers to a prompt were rated, each by itself.

    UltraFeedback     instruction, completions: several answers in a row, each with its ratings (1 … 5)
    HelpSteer 1, 2    prompt, response, helpfulness (0 … 4): one answer in a row, those to a prompt in several rows

As preferences, every two answers to a prompt are a pair, of which the higher rated one is chosen; equal ratings say
nothing and are left out (all pairs of a prompt, as Ouyang et al. 2022, 2203.02155, train on them). As demonstrations,
only the best rated answer to each prompt counts, and only where its rating is above the middle of the scale.

An answer of UltraFeedback is rated by the mean of its ratings for instruction following, honesty, truthfulness and
helpfulness ("fine-grained_score"); "overall_score" is read where there is none, because it was wrong for more than two
thousand answers in the first edition.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import mean
from typing import TypeAlias

from tutelage.data.asking import Ask, asked
from tutelage.data.compared_formats import helpsteer_prompt
from tutelage.data.fields import LeftOut, Unusable, number, text
from tutelage.data.preference_formats import Pair
from tutelage.data.readers import Broken, TableRow, Values
from tutelage.data.recognise import RowFormat
from tutelage.data.records import Demonstration

RatedAnswers: TypeAlias = Sequence[TableRow]
"""The answers to one prompt: rows with the prompt's column, `answer` and `score`."""


@dataclass(frozen=True)
class Rated:
    """A published data set of rated answers. `gather` gives the answers to each prompt; `asks` is the column of the
    prompt, and `middle` that of the scale, above which an answer counts as good."""

    name: str
    asks: str
    needs: tuple[str, ...]
    ask: Ask
    gather: Callable[[Sequence[TableRow]], tuple[Sequence[RatedAnswers], Sequence[Broken]]]
    middle: float
    fits: Callable[[Values], bool]

    @property
    def pairs(self) -> RowFormat[Pair]:
        """Every two answers to a prompt as a pair."""
        return RowFormat(
            f"{self.name}, every two answers to a prompt a pair",
            (self.asks, *self.needs),
            self._pair,
            fits=self.fits,
            arrange=self._in_pairs,
        )

    @property
    def demonstrations(self) -> RowFormat[Demonstration]:
        """The best answer to each prompt, where it was rated above the middle of the scale."""
        return RowFormat(
            f"{self.name}, the best rated answer to each prompt",
            (self.asks, *self.needs),
            self._good_answer,
            fits=self.fits,
            arrange=self._best_first,
        )

    def _in_pairs(self, rows: Sequence[TableRow]) -> tuple[Sequence[TableRow], Sequence[Broken]]:
        groups, broken = self.gather(rows)
        return [pair for answers in groups for pair in self._pairs_of(answers)], broken

    def _pairs_of(self, answers: RatedAnswers) -> Sequence[TableRow]:
        """Every two of the answers; one that is alone stays as it is, and is left out when it is parsed."""
        return [self._as_row(*two) for two in combinations(answers, 2)] or answers

    def _as_row(self, one: TableRow, other: TableRow) -> TableRow:
        better, worse = (one, other) if _score(one) >= _score(other) else (other, one)
        sides = {"chosen": better.values["answer"], "rejected": worse.values["answer"]}
        scores = {"score_chosen": _score(better), "score_rejected": _score(worse)}
        where = one.where if one.where == other.where else f"{one.where} and {other.where}"
        return TableRow(where, {self.asks: one.values[self.asks], **sides, **scores})

    def _pair(self, values: Values) -> Pair:
        if "score_chosen" not in values:
            raise LeftOut("answer", "the only one to its prompt makes no pair")
        if values["score_chosen"] == values["score_rejected"]:
            raise LeftOut("pair", "equal ratings say nothing about which answer is better")
        return self.ask(values), text(values, "chosen"), text(values, "rejected")

    def _best_first(self, rows: Sequence[TableRow]) -> tuple[Sequence[TableRow], Sequence[Broken]]:
        groups, broken = self.gather(rows)
        ordered = (sorted(answers, key=_score, reverse=True) for answers in groups)
        return [
            replace(row, values={**row.values, "rank": rank})
            for each in ordered
            for rank, row in enumerate(each)
        ], broken

    def _good_answer(self, values: Values) -> Demonstration:
        if values["rank"] != 0:
            raise LeftOut("answer", "another one to the prompt is rated better")
        if number(values, "score", 0.0) <= self.middle:
            raise LeftOut("prompt", f"no answer is rated above {self.middle:g}")
        return Demonstration(self.ask(values), text(values, "answer"))


def _score(row: TableRow) -> float:
    return number(row.values, "score", 0.0)


# UltraFeedback -------------------------------------------------------------------------------------------------------


def _of_completions(rows: Sequence[TableRow]) -> tuple[Sequence[RatedAnswers], Sequence[Broken]]:
    """The answers that each row holds."""
    groups: list[RatedAnswers] = []
    broken: list[Broken] = []
    for row in rows:
        try:
            groups.append([_completion(row, place, each) for place, each in enumerate(_list(row.values), 1)])
        except Unusable as reason:
            broken.append(Broken(row.where, str(reason)))
    return groups, broken


def _list(values: Values) -> list[object]:
    value = values.get("completions")
    if not isinstance(value, list) or not value:
        raise Unusable("completions is no list of answers")
    return value


def _completion(row: TableRow, place: int, completion: object) -> TableRow:
    if not isinstance(completion, Mapping):
        raise Unusable("completions holds something else than answers")
    values = {
        "instruction": row.values.get("instruction"),
        "answer": completion.get("response"),
        "score": _rating(completion),
    }
    return TableRow(f"{row.where}, answer {place}", values)


def _rating(completion: Values) -> float:
    """The mean of the ratings of an answer; see the module's docstring."""
    if completion.get("fine-grained_score") is not None:
        return number(completion, "fine-grained_score", 0.0)
    aspects = completion.get("annotations")
    given = [each.get("Rating") for each in aspects.values()] if isinstance(aspects, Mapping) else []
    ratings = [
        number({"Rating": rating}, "Rating", 0.0)
        for rating in given
        if str(rating).replace(".", "", 1).isdecimal()
    ]
    if ratings:
        return mean(ratings)
    if completion.get("overall_score") is None:
        raise Unusable("an answer has no rating")
    return number(completion, "overall_score", 0.0)


def _has_completions(values: Values) -> bool:
    value = values["completions"]
    return isinstance(value, list) and all(isinstance(each, Mapping) and "response" in each for each in value)


# HelpSteer -----------------------------------------------------------------------------------------------------------


def _by_prompt(rows: Sequence[TableRow]) -> tuple[Sequence[RatedAnswers], Sequence[Broken]]:
    """The rows of each prompt, in the order in which the prompts come first."""
    groups: dict[str, list[TableRow]] = defaultdict(list)
    broken: list[Broken] = []
    for row in rows:
        try:
            prompt, score = text(row.values, "prompt"), _helpfulness(row.values)
            answer = text(row.values, "response")
            groups[prompt].append(TableRow(row.where, {"prompt": prompt, "answer": answer, "score": score}))
        except Unusable as reason:
            broken.append(Broken(row.where, str(reason)))
    return list(groups.values()), broken


def _helpfulness(values: Values) -> float:
    if values.get("helpfulness") in (None, ""):
        raise Unusable("helpfulness is missing")
    return number(values, "helpfulness", 0.0, 0.0, 4.0)


ULTRAFEEDBACK = Rated(
    "instruction, completions (UltraFeedback)",
    "instruction",
    ("completions",),
    asked("instruction"),
    _of_completions,
    3.0,
    _has_completions,
)
HELPSTEER = Rated(
    "prompt, response, helpfulness (HelpSteer)",
    "prompt",
    ("response", "helpfulness"),
    helpsteer_prompt,
    _by_prompt,
    2.0,
    lambda values: True,
)

RATED: tuple[Rated, ...] = (ULTRAFEEDBACK, HELPSTEER)

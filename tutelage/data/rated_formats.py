"""Published data sets of several responses to a prompt, each rated separately.

    UltraFeedback     instruction, completions: several responses per row, each with its ratings (1 … 5)
    Nectar            prompt, answers: seven responses per row, each with its rank (1 is the best)
    HelpSteer 1, 2    prompt, response, helpfulness (0 … 4): one response per row, several rows per prompt

As preferences, all pairs of responses to a prompt are used (as in Ouyang et al. 2022, 2203.02155), with the
higher-rated one chosen; equal ratings are left out. As demonstrations, only the highest-rated response to each prompt
is used, and only if its rating is above the middle of the scale; ranks have none.

The rating of an UltraFeedback response is the mean for instruction following, honesty, truthfulness and helpfulness
("fine-grained_score"). "overall_score" is only a fallback, because it was wrong for more than two thousand responses
in the first edition.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import mean
from typing import TypeAlias

from tutelage.data.message_values import Ask, prompt_transcript, question_from
from tutelage.data.preference_formats import Pair
from tutelage.data.published_formats import helpsteer_prompt, required_number
from tutelage.data.readers import BrokenRow, TableRow, Values
from tutelage.data.records import Demonstration
from tutelage.data.row_values import LeftOut, Unusable, number, text
from tutelage.data.table_format import RowFormat, always

RatedAnswers: TypeAlias = Sequence[TableRow]
"""Responses to one prompt: rows with the prompt's column, `answer` and `score`."""


@dataclass(frozen=True)
class RatingFormat:
    """Published data set of rated responses. `gather` returns the responses to each prompt; `asks` is the column of
    the prompt, and `middle` the rating above which a response counts as good; `metadata` are not used."""

    name: str
    asks: str
    needs: tuple[str, ...]
    ask: Ask
    gather: Callable[[Sequence[TableRow]], tuple[Sequence[RatedAnswers], Sequence[BrokenRow]]]
    middle: float
    fits: Callable[[Values], bool]
    metadata: str = ""

    @property
    def pairs(self) -> RowFormat[Pair]:
        """All pairs of responses to a prompt."""
        return RowFormat(
            f"{self.name}, every two answers to a prompt a pair",
            (self.asks, *self.needs),
            self._pair,
            fits=self.fits,
            arrange=self._in_pairs,
            metadata=frozenset(self.metadata.split()),
        )

    @property
    def demonstrations(self) -> RowFormat[Demonstration]:
        """Best response to each prompt, if rated above the middle of the scale."""
        return RowFormat(
            f"{self.name}, the best rated answer to each prompt",
            (self.asks, *self.needs),
            self._good_answer,
            fits=self.fits,
            arrange=self._best_first,
            metadata=frozenset(self.metadata.split()),
        )

    def _in_pairs(self, rows: Sequence[TableRow]) -> tuple[Sequence[TableRow], Sequence[BrokenRow]]:
        groups, broken = self.gather(rows)
        return [pair for answers in groups for pair in self._pairs_of(answers)], broken

    def _pairs_of(self, answers: RatedAnswers) -> Sequence[TableRow]:
        """All pairs of the responses; a single response is kept as it is, and left out when parsed."""
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

    def _best_first(self, rows: Sequence[TableRow]) -> tuple[Sequence[TableRow], Sequence[BrokenRow]]:
        groups, broken = self.gather(rows)
        ordered = (sorted(answers, key=_score, reverse=True) for answers in groups)
        return [
            replace(row, values={**row.values, "rank": rank}) for each in ordered for rank, row in enumerate(each)
        ], broken

    def _good_answer(self, values: Values) -> Demonstration:
        if values["rank"] != 0:
            raise LeftOut("answer", "another one to the prompt is rated better")
        if number(values, "score", 0.0) <= self.middle:
            raise LeftOut("prompt", f"no answer is rated above {self.middle:g}")
        return Demonstration(self.ask(values), text(values, "answer"))


def _score(row: TableRow) -> float:
    return number(row.values, "score", 0.0)


# Several responses in a row ------------------------------------------------------------------------------------------


def _in_rows(
    asks: str, column: str, answer: str, rating: Callable[[Values], float]
) -> Callable[[Sequence[TableRow]], tuple[Sequence[RatedAnswers], Sequence[BrokenRow]]]:
    """`RatingFormat.gather` for rows whose `column` lists the responses, each with its text in `answer`."""

    def rated(row: TableRow) -> RatedAnswers:
        values = row.values.get(column)
        if not isinstance(values, list) or not values:
            raise Unusable(f"{column} is no list of answers")
        if not all(isinstance(each, Mapping) for each in values):
            raise Unusable(f"{column} holds something else than answers")
        return [
            TableRow(
                f"{row.where}, answer {place}",
                {asks: row.values.get(asks), "answer": each.get(answer), "score": rating(each)},
            )
            for place, each in enumerate(values, 1)
        ]

    def gather(rows: Sequence[TableRow]) -> tuple[Sequence[RatedAnswers], Sequence[BrokenRow]]:
        groups: list[RatedAnswers] = []
        broken: list[BrokenRow] = []
        for row in rows:
            try:
                groups.append(rated(row))
            except Unusable as reason:
                broken.append(BrokenRow(row.where, str(reason)))
        return groups, broken

    return gather


def _lists(column: str, *keys: str) -> Callable[[Values], bool]:
    """Whether a column lists objects with these keys."""

    def fits(values: Values) -> bool:
        value = values[column]
        return isinstance(value, list) and all(isinstance(each, Mapping) and set(keys) <= each.keys() for each in value)

    return fits


def _rating(completion: Values) -> float:
    """Mean rating of a response of UltraFeedback; see the module's docstring."""
    if completion.get("fine-grained_score") is not None:
        return number(completion, "fine-grained_score", 0.0)
    aspects = completion.get("annotations")
    given = [each.get("Rating") for each in aspects.values()] if isinstance(aspects, Mapping) else []
    ratings = [
        number({"Rating": rating}, "Rating", 0.0) for rating in given if str(rating).replace(".", "", 1).isdecimal()
    ]
    if ratings:
        return mean(ratings)
    if completion.get("overall_score") is None:
        raise Unusable("an answer has no rating")
    return number(completion, "overall_score", 0.0)


def _against_rank(answer: Values) -> float:
    """Rating of a response of Nectar: the better, the higher."""
    return -required_number("rank", 1.0, math.inf)(answer)


# HelpSteer -----------------------------------------------------------------------------------------------------------


def _by_prompt(rows: Sequence[TableRow]) -> tuple[Sequence[RatedAnswers], Sequence[BrokenRow]]:
    """Rows by prompt, in order of first appearance."""
    groups: dict[str, list[TableRow]] = defaultdict(list)
    broken: list[BrokenRow] = []
    for row in rows:
        try:
            prompt, score = text(row.values, "prompt"), required_number("helpfulness", 0.0, 4.0)(row.values)
            answer = text(row.values, "response")
            groups[prompt].append(TableRow(row.where, {"prompt": prompt, "answer": answer, "score": score}))
        except Unusable as reason:
            broken.append(BrokenRow(row.where, str(reason)))
    return list(groups.values()), broken


HELPSTEER = RatingFormat(
    "prompt, response, helpfulness (HelpSteer)",
    "prompt",
    ("response", "helpfulness"),
    helpsteer_prompt,
    _by_prompt,
    middle=2.0,
    fits=always,
    metadata="correctness coherence complexity verbosity",
)
RATING_FORMATS: tuple[RatingFormat, ...] = (
    RatingFormat(
        "instruction, completions (UltraFeedback)",
        "instruction",
        ("completions",),
        question_from("instruction"),
        _in_rows("instruction", "completions", "response", _rating),
        middle=3.0,
        fits=_lists("completions", "response"),
        metadata="models correct_answers incorrect_answers",
    ),
    RatingFormat(
        "prompt, answers (Nectar)",
        "prompt",
        ("answers",),
        prompt_transcript,
        _in_rows("prompt", "answers", "answer", _against_rank),
        middle=-math.inf,
        fits=_lists("answers", "answer", "rank"),
        metadata="turns num_responses good_natured",
    ),
    HELPSTEER,
)

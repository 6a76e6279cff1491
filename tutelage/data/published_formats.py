"""Published data sets of two responses to a prompt and a verdict, and of several that are each rated.

    SHP                     history, human_ref_A, human_ref_B, labels (1: A is preferred, 0: B)
    WebGPT comparisons      question, answer_0, answer_1, score_0 (above 0: answer 0 is preferred)
    HelpSteer2 preference   prompt, response_1, response_2, preference_strength (−3 … 3; below 0: response 1)
    HelpSteer3 preference   context, response1, response2, overall_preference (−3 … 3; below 0: response 1)
    Chatbot Arena           conversation_a, conversation_b, winner (33k, 100k and 140k conversations)
    Chatbot Arena (55k)     prompt, response_a, response_b, winner_model_a, winner_model_b
    UltraFeedback           instruction, completions: several responses per row, each with its ratings (1 … 5)
    Nectar                  prompt, answers: seven responses per row, each with its rank (1 is the best)
    HelpSteer 1, 2          prompt, response, helpfulness (0 … 4): one response per row, several rows per prompt

Ties are left out, and so are Arena conversations with several turns in which the two models differ before the last
response. Of rated responses all pairs to a prompt are used as preferences (as in Ouyang et al. 2022, 2203.02155), with
the higher-rated one chosen; equal ratings are left out. As demonstrations, only the highest-rated response to each
prompt is used, and only if its rating is above the middle of the scale; ranks have none.

The rating of an UltraFeedback response is the mean for instruction following, honesty, truthfulness and helpfulness
("fine-grained_score"). "overall_score" is only a fallback, because it was wrong for more than two thousand responses
in the first edition.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from statistics import mean
from typing import TypeAlias, TypeVar

from tutelage.data.json_values import parse_json
from tutelage.data.message_values import Ask, conversation, prompt_transcript, question_from, turns
from tutelage.data.preference_formats import Pair
from tutelage.data.readers import BrokenRow, TableRow, Values, a_type
from tutelage.data.records import AssistantTurn, Demonstration, Messages, spoken, user
from tutelage.data.row_values import LeftOut, Unusable, number, text, truth
from tutelage.data.table_format import Arrangement, RowFormat
from tutelage.data.transcripts import parse_marked

Verdict: TypeAlias = Callable[[Values], float]
"""Above 0 if the first response is preferred, below 0 if the second is, 0 for a tie."""
AnswerReader: TypeAlias = Callable[[Values], tuple[AssistantTurn, AssistantTurn]]
"""First and second response; raises `LeftOut` if they reply to different conversations."""


@dataclass(frozen=True)
class ComparisonFormat:
    """Published data set of compared responses. `asks` are the columns of the prompt, `needs` those of the responses
    and of the verdict; `metadata` are not used."""

    name: str
    asks: tuple[str, ...]
    needs: tuple[str, ...]
    ask: Ask
    answers: AnswerReader
    verdict: Verdict
    metadata: str = ""

    @property
    def pairs(self) -> RowFormat[Pair]:
        """Format of its rows as pairs."""
        needs, metadata = (*self.asks, *self.needs), frozenset(self.metadata.split())
        return RowFormat(f"{', '.join(needs)} ({self.name})", needs, self.pair, metadata=metadata)

    def pair(self, values: Values) -> Pair:
        """(prompt, preferred response, other response) of a row."""
        verdict = self.verdict(values)
        first, second = self.answers(values)
        if verdict == 0:
            raise LeftOut("row", "a tie says nothing about which answer is better")
        messages = self.ask(values)
        return (messages, first, second) if verdict > 0 else (messages, second, first)


def _texts(first: str, second: str) -> AnswerReader:
    return lambda values: (text(values, first), text(values, second))


def _helpsteer_prompt(values: Values) -> Messages:
    """`prompt` of HelpSteer 1 and 2: a user's text, or turns marked by <extra_id_1>."""
    return parse_marked(text(values, "prompt"))


def _webgpt_question(values: Values) -> Messages:
    """`question` as {"full_text": …} (as published), or as text."""
    value = values.get("question")
    return user(text(value, "full_text")) if isinstance(value, Mapping) else question_from("question")(values)


def _required_number(column: str, low: float, high: float) -> Callable[[Values], float]:
    """Reader of a number in [low, high] that must not be missing."""

    def read(values: Values) -> float:
        if values.get(column) in (None, ""):
            raise Unusable(f"{column} is missing")
        return number(values, column, 0.0, low, high)

    return read


def _against_strength(column: str) -> Verdict:
    """Verdict by a strength from −3 to 3 whose negative half favours the first response."""
    strength = _required_number(column, -3.0, 3.0)
    return lambda values: -strength(values)


# Chatbot Arena -------------------------------------------------------------------------------------------------------

_WINNERS = {"model_a": 1.0, "model_b": -1.0}
SEVERAL_TURNS = ("conversation", "its turns differ before the last answer")
_ARENA = (
    "model_a model_b judge turn anony tstamp conv_metadata is_code is_refusal dedup_tag category_tag judge_hash "
    "openai_moderation toxic_chat_tag"
)
_TIES = ("tie", "tie (bothbad)", "both_bad", "bothbad")


def _winner(values: Values) -> float:
    word = text(values, "winner")
    if word not in (*_WINNERS, *_TIES):
        raise Unusable(f"winner is {word!r}, not model_a, model_b or a tie")
    return _WINNERS.get(word, 0.0)


def _opening(values: Values) -> Messages:
    """Conversation before the first response."""
    messages = turns(values, "conversation_a")
    answers = [index for index, turn in enumerate(messages) if turn.role == "assistant"]
    if not answers or answers[0] == 0:
        raise Unusable("conversation_a is not an answered conversation")
    return messages[: answers[0]]


def _single_answers(values: Values) -> tuple[AssistantTurn, AssistantTurn]:
    sides = turns(values, "conversation_a"), turns(values, "conversation_b")
    before = len(_opening(values))
    if sides[0][:before] != sides[1][:before]:
        raise Unusable("conversation_a and conversation_b ask different things")
    first, second = (side[before:] for side in sides)
    if len(first) > 1 or len(second) > 1:
        raise LeftOut(*SEVERAL_TURNS)
    if not second:
        raise Unusable("conversation_b is not an answered conversation")
    return spoken(first[0]), spoken(second[0])


def _json_list(values: Values, column: str) -> list[object]:
    """Cell with a JSON list, as in the Arena's 55k file."""
    value = values.get(column)
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            raise Unusable(f"{column} is no JSON list") from None
    if not isinstance(value, list) or not value:
        raise Unusable(f"{column} is {a_type(value)}, not a list of turns")
    return value


def _listed_answers(values: Values) -> tuple[str, str]:
    columns = ("prompt", "response_a", "response_b")
    if any(len(_json_list(values, column)) > 1 for column in columns):
        raise LeftOut(*SEVERAL_TURNS)
    first, second = (text({column: _json_list(values, column)[0]}, column) for column in columns[1:])
    return first, second


COMPARISON_FORMATS = (
    ComparisonFormat(
        "SHP",
        asks=("history",),
        needs=("human_ref_A", "human_ref_B", "labels"),
        ask=question_from("history"),
        answers=_texts("human_ref_A", "human_ref_B"),
        verdict=lambda values: 1.0 if truth(values, "labels") else -1.0,
        metadata="domain upvote_ratio created_at_utc_A created_at_utc_B score_A score_B seconds_difference score_ratio",
    ),
    ComparisonFormat(
        "WebGPT comparisons",
        asks=("question",),
        needs=("answer_0", "answer_1", "score_0"),
        ask=_webgpt_question,
        answers=_texts("answer_0", "answer_1"),
        verdict=_required_number("score_0", -1.0, 1.0),
        metadata="quotes_0 quotes_1 tokens_0 tokens_1 score_1",
    ),
    ComparisonFormat(
        "HelpSteer2 preference",
        asks=("prompt",),
        needs=("response_1", "response_2", "preference_strength"),
        ask=_helpsteer_prompt,
        answers=_texts("response_1", "response_2"),
        verdict=_against_strength("preference_strength"),
        metadata="split preference_statement preference_elaboration three_most_similar_preferences "
        "all_preferences_unprocessed",
    ),
    ComparisonFormat(
        "HelpSteer3 preference",
        asks=("context",),
        needs=("response1", "response2", "overall_preference"),
        ask=lambda values: conversation(values, "context"),
        answers=_texts("response1", "response2"),
        verdict=_against_strength("overall_preference"),
        metadata="domain individual_preference",
    ),
    ComparisonFormat(
        "Chatbot Arena", ("conversation_a",), ("conversation_b", "winner"), _opening, _single_answers, _winner, _ARENA
    ),
    ComparisonFormat(
        "Chatbot Arena, 55k",
        asks=("prompt",),
        needs=("response_a", "response_b", "winner_model_a", "winner_model_b"),
        ask=lambda values: user(text({"prompt": _json_list(values, "prompt")[0]}, "prompt")),
        answers=_listed_answers,
        verdict=lambda values: float(truth(values, "winner_model_a")) - float(truth(values, "winner_model_b")),
        metadata="model_a model_b winner_tie",
    ),
)


# Rated responses -----------------------------------------------------------------------------------------------------

T = TypeVar("T")
RatedAnswers: TypeAlias = Sequence[TableRow]
"""Responses to one prompt: rows with the prompt's column, `answer` and `score`."""
Reader: TypeAlias = Callable[[TableRow], tuple[str, RatedAnswers]]
"""The rated responses in a row, after a key that is the same for all rows of a prompt."""


@dataclass(frozen=True)
class RatingFormat:
    """Published data set of rated responses. `asks` is the column of the prompt, `needs` are those that `read` needs,
    and `middle` is the rating above which a response counts as good; `metadata` are not used."""

    name: str
    asks: str
    needs: tuple[str, ...]
    ask: Ask
    read: Reader
    middle: float
    fits: Callable[[Values], bool] = lambda values: True
    metadata: str = ""

    @property
    def pairs(self) -> RowFormat[Pair]:
        """All pairs of responses to a prompt."""
        return self._rows("every two answers to a prompt a pair", self._pair, self._in_pairs)

    @property
    def demonstrations(self) -> RowFormat[Demonstration]:
        """Best response to each prompt, if rated above the middle of the scale."""
        return self._rows("the best rated answer to each prompt", self._good_answer, self._best_first)

    def _rows(
        self, title: str, parse: Callable[[Values], T], arrange: Callable[[Sequence[TableRow]], Arrangement]
    ) -> RowFormat[T]:
        needs, metadata = (self.asks, *self.needs), frozenset(self.metadata.split())
        return RowFormat(f"{self.name}, {title}", needs, parse, fits=self.fits, arrange=arrange, metadata=metadata)

    def _gather(self, rows: Sequence[TableRow]) -> tuple[Sequence[RatedAnswers], Sequence[BrokenRow]]:
        """The responses by prompt, in order of first appearance."""
        groups: dict[str, list[TableRow]] = defaultdict(list)
        broken: list[BrokenRow] = []
        for row in rows:
            try:
                key, answers = self.read(row)
                groups[key] += answers
            except Unusable as reason:
                broken.append(BrokenRow(row.where, str(reason)))
        return list(groups.values()), broken

    def _in_pairs(self, rows: Sequence[TableRow]) -> Arrangement:
        """All pairs of the responses; a single response is kept as it is, and left out when parsed."""
        groups, broken = self._gather(rows)
        pairs = ([self._as_row(*two) for two in combinations(answers, 2)] or answers for answers in groups)
        return list(chain.from_iterable(pairs)), broken

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

    def _best_first(self, rows: Sequence[TableRow]) -> Arrangement:
        groups, broken = self._gather(rows)
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


def _listed(asks: str, column: str, answer: str, rating: Callable[[Values], float]) -> Reader:
    """Reader of rows whose `column` lists the responses to a prompt, each with its text in `answer`."""

    def read(row: TableRow) -> tuple[str, RatedAnswers]:
        values = row.values.get(column)
        if not isinstance(values, list) or not values:
            raise Unusable(f"{column} is no list of answers")
        if not all(isinstance(each, Mapping) for each in values):
            raise Unusable(f"{column} holds something else than answers")
        return row.where, [
            TableRow(
                f"{row.where}, answer {place}",
                {asks: row.values.get(asks), "answer": each.get(answer), "score": rating(each)},
            )
            for place, each in enumerate(values, 1)
        ]

    return read


def _lists(column: str, *keys: str) -> Callable[[Values], bool]:
    """Whether a column lists objects with these keys."""

    def fits(values: Values) -> bool:
        value = values[column]
        return isinstance(value, list) and all(isinstance(each, Mapping) and set(keys) <= each.keys() for each in value)

    return fits


def _ultrafeedback_rating(completion: Values) -> float:
    """Mean rating of a response; see the module's docstring."""
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


def _helpsteer_row(row: TableRow) -> tuple[str, RatedAnswers]:
    prompt, score = text(row.values, "prompt"), _required_number("helpfulness", 0.0, 4.0)(row.values)
    answer = text(row.values, "response")
    return prompt, [TableRow(row.where, {"prompt": prompt, "answer": answer, "score": score})]


HELPSTEER = RatingFormat(
    "prompt, response, helpfulness (HelpSteer)",
    "prompt",
    ("response", "helpfulness"),
    _helpsteer_prompt,
    _helpsteer_row,
    middle=2.0,
    metadata="correctness coherence complexity verbosity",
)
RATING_FORMATS: tuple[RatingFormat, ...] = (
    RatingFormat(
        "instruction, completions (UltraFeedback)",
        "instruction",
        ("completions",),
        question_from("instruction"),
        _listed("instruction", "completions", "response", _ultrafeedback_rating),
        middle=3.0,
        fits=_lists("completions", "response"),
        metadata="models correct_answers incorrect_answers",
    ),
    RatingFormat(
        "prompt, answers (Nectar)",
        "prompt",
        ("answers",),
        prompt_transcript,
        _listed("prompt", "answers", "answer", lambda answer: -_required_number("rank", 1.0, math.inf)(answer)),
        middle=-math.inf,
        fits=_lists("answers", "answer", "rank"),
        metadata="turns num_responses good_natured",
    ),
    HELPSTEER,
)

"""Published data sets of two responses to a prompt and a verdict.

    SHP                     history, human_ref_A, human_ref_B, labels (1: A is preferred, 0: B)
    WebGPT comparisons      question, answer_0, answer_1, score_0 (above 0: answer 0 is preferred)
    HelpSteer2 preference   prompt, response_1, response_2, preference_strength (−3 … 3; below 0: response 1)
    HelpSteer3 preference   context, response1, response2, overall_preference (−3 … 3; below 0: response 1)
    Chatbot Arena           conversation_a, conversation_b, winner (33k, 100k and 140k conversations)
    Chatbot Arena (55k)     prompt, response_a, response_b, winner_model_a, winner_model_b

Ties are left out, and so are Arena conversations with several turns in which the two models differ before the last
response.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tutelage.data.json_values import parse_json
from tutelage.data.message_values import Ask, conversation, question_from, turns
from tutelage.data.preference_formats import Pair
from tutelage.data.readers import Values, a_type
from tutelage.data.records import AssistantTurn, Messages, spoken, user
from tutelage.data.row_values import LeftOut, Unusable, number, text, truth
from tutelage.data.table_format import RowFormat
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


def helpsteer_prompt(values: Values) -> Messages:
    """`prompt` of HelpSteer 1 and 2: a user's text, or turns marked by <extra_id_1>."""
    return parse_marked(text(values, "prompt"))


def _webgpt_question(values: Values) -> Messages:
    """`question` as {"full_text": …} (as published), or as text."""
    value = values.get("question")
    return user(text(value, "full_text")) if isinstance(value, Mapping) else question_from("question")(values)


def required_number(column: str, low: float, high: float) -> Callable[[Values], float]:
    """Reader of a number in [low, high] that must not be missing."""

    def read(values: Values) -> float:
        if values.get(column) in (None, ""):
            raise Unusable(f"{column} is missing")
        return number(values, column, 0.0, low, high)

    return read


def _against_strength(column: str) -> Verdict:
    """Verdict by a strength from −3 to 3 whose negative half favours the first response."""
    strength = required_number(column, -3.0, 3.0)
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
        verdict=required_number("score_0", -1.0, 1.0),
        metadata="quotes_0 quotes_1 tokens_0 tokens_1 score_1",
    ),
    ComparisonFormat(
        "HelpSteer2 preference",
        asks=("prompt",),
        needs=("response_1", "response_2", "preference_strength"),
        ask=helpsteer_prompt,
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

"""Published data sets whose rows hold two answers to a prompt and the verdict of those who compared them.

    SHP                     history, human_ref_A, human_ref_B, labels (1: A is preferred, 0: B)
    WebGPT comparisons      question, answer_0, answer_1, score_0 (above 0: answer 0 is preferred)
    HelpSteer2 preference   prompt, response_1, response_2, preference_strength (−3 … 3; below 0: response 1)
    HelpSteer3 preference   context, response1, response2, overall_preference (−3 … 3; below 0: response 1)
    Chatbot Arena           conversation_a, conversation_b, winner (33k, 100k and 140k conversations)
    Chatbot Arena (55k)     prompt, response_a, response_b, winner_model_a, winner_model_b

A row whose verdict is a tie is left out: it says nothing about which answer is better. So are conversations of the
Arena with several turns, in which the two models said different things before the last answer.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tutelage.data.asking import Ask, asked
from tutelage.data.fields import LeftOut, Unusable, conversation, number, text, truth, turns
from tutelage.data.preference_formats import Pair
from tutelage.data.readers import Values, a_type
from tutelage.data.recognise import RowFormat
from tutelage.data.records import Messages, user
from tutelage.data.transcripts import parse_marked

Verdict: TypeAlias = Callable[[Values], float]
"""Above 0 where the first of the two answers is preferred, below 0 where the second is, 0 for a tie."""
AnswerReader: TypeAlias = Callable[[Values], tuple[str, str]]
"""The first and the second answer; raises `LeftOut` where the two do not answer the same conversation."""


@dataclass(frozen=True)
class Compared:
    """A published data set of compared answers: how its rows ask, answer and decide."""

    name: str
    asks: tuple[str, ...]
    """The columns of the prompt."""
    needs: tuple[str, ...]
    """The columns of the answers and of the verdict."""
    ask: Ask
    answers: AnswerReader
    verdict: Verdict

    @property
    def pairs(self) -> RowFormat[Pair]:
        """The format of its rows as pairs."""
        columns = (*self.asks, *self.needs)
        return RowFormat(f"{', '.join(columns)} ({self.name})", columns, self.pair)

    def pair(self, values: Values) -> Pair:
        """What was asked, the preferred answer, the other one."""
        verdict = self.verdict(values)
        first, second = self.answers(values)
        if verdict == 0:
            raise LeftOut("row", "a tie says nothing about which answer is better")
        messages = self.ask(values)
        return (messages, first, second) if verdict > 0 else (messages, second, first)


def _texts(first: str, second: str) -> AnswerReader:
    return lambda values: (text(values, first), text(values, second))


def helpsteer_prompt(values: Values) -> Messages:
    """`prompt` of HelpSteer 1 and 2: a user's text, or turns that are marked by <extra_id_1>."""
    return parse_marked(text(values, "prompt"))


def _webgpt_question(values: Values) -> Messages:
    """`question` as {"full_text": …} (as published), or as text."""
    value = values.get("question")
    return user(text(value, "full_text")) if isinstance(value, Mapping) else asked("question")(values)


def _required(column: str, low: float, high: float) -> Callable[[Values], float]:
    def read(values: Values) -> float:
        if values.get(column) in (None, ""):
            raise Unusable(f"{column} is missing")
        return number(values, column, 0.0, low, high)

    return read


def _against_strength(column: str) -> Verdict:
    """A strength from −3 to 3 whose negative half means the first answer."""
    strength = _required(column, -3.0, 3.0)
    return lambda values: -strength(values)


# Chatbot Arena -------------------------------------------------------------------------------------------------------

_WINNERS = {"model_a": 1.0, "model_b": -1.0}
_TIES = ("tie", "tie (bothbad)", "both_bad", "bothbad")


def _winner(values: Values) -> float:
    word = text(values, "winner")
    if word not in (*_WINNERS, *_TIES):
        raise Unusable(f"winner is {word!r}, not model_a, model_b or a tie")
    return _WINNERS.get(word, 0.0)


def _opening(values: Values) -> Messages:
    """The conversation before the first answer, which both sides have in common."""
    messages = turns(values, "conversation_a")
    answers = [index for index, turn in enumerate(messages) if turn.role == "assistant"]
    if not answers or answers[0] == 0:
        raise Unusable("conversation_a is not an answered conversation")
    return messages[: answers[0]]


def _single_answers(values: Values) -> tuple[str, str]:
    sides = turns(values, "conversation_a"), turns(values, "conversation_b")
    before = len(_opening(values))
    if sides[0][:before] != sides[1][:before]:
        raise Unusable("conversation_a and conversation_b ask different things")
    first, second = (side[before:] for side in sides)
    if len(first) > 1 or len(second) > 1:
        raise _several_turns()
    if not second:
        raise Unusable("conversation_b is not an answered conversation")
    return first[0].content, second[0].content


def _several_turns() -> LeftOut:
    return LeftOut("conversation", "its turns differ before the last answer")


def _json_list(values: Values, column: str) -> list[object]:
    """A cell with a JSON list, as the 55k file of the Arena has them."""
    value = values.get(column)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise Unusable(f"{column} is no JSON list") from None
    if not isinstance(value, list) or not value:
        raise Unusable(f"{column} is {a_type(value)}, not a list of turns")
    return value


def _first_of(values: Values, column: str) -> str:
    return text({column: _json_list(values, column)[0]}, column)


def _listed_answers(values: Values) -> tuple[str, str]:
    columns = ("prompt", "response_a", "response_b")
    if any(len(_json_list(values, column)) > 1 for column in columns):
        raise _several_turns()
    return _first_of(values, "response_a"), _first_of(values, "response_b")


def _flagged_winner(values: Values) -> float:
    return float(truth(values, "winner_model_a")) - float(truth(values, "winner_model_b"))


SHP = Compared(
    "SHP",
    ("history",),
    ("human_ref_A", "human_ref_B", "labels"),
    asked("history"),
    _texts("human_ref_A", "human_ref_B"),
    lambda values: 1.0 if truth(values, "labels") else -1.0,
)
WEBGPT = Compared(
    "WebGPT comparisons",
    ("question",),
    ("answer_0", "answer_1", "score_0"),
    _webgpt_question,
    _texts("answer_0", "answer_1"),
    _required("score_0", -1.0, 1.0),
)
HELPSTEER2 = Compared(
    "HelpSteer2 preference",
    ("prompt",),
    ("response_1", "response_2", "preference_strength"),
    helpsteer_prompt,
    _texts("response_1", "response_2"),
    _against_strength("preference_strength"),
)
HELPSTEER3 = Compared(
    "HelpSteer3 preference",
    ("context",),
    ("response1", "response2", "overall_preference"),
    lambda values: conversation(values, "context"),
    _texts("response1", "response2"),
    _against_strength("overall_preference"),
)
ARENA = Compared(
    "Chatbot Arena",
    ("conversation_a",),
    ("conversation_b", "winner"),
    _opening,
    _single_answers,
    _winner,
)
ARENA_55K = Compared(
    "Chatbot Arena, 55k",
    ("prompt",),
    ("response_a", "response_b", "winner_model_a", "winner_model_b"),
    lambda values: user(_first_of(values, "prompt")),
    _listed_answers,
    _flagged_winner,
)

COMPARED: tuple[Compared, ...] = (SHP, WEBGPT, HELPSTEER2, HELPSTEER3, ARENA, ARENA_55K)

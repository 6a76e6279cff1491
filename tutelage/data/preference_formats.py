"""Pairs: a prompt in columns of its own (explicit), or two whole conversations that share it (implicit)."""

from collections.abc import Callable
from typing import TypeAlias

from tutelage.data.asking import SYSTEM, Ask, asked, only_answer, prompt_column, prompt_transcript
from tutelage.data.fields import Unusable, answered, number, text, turns
from tutelage.data.recognise import Format, always
from tutelage.data.records import Messages, Preference, user
from tutelage.data.tables import Values
from tutelage.data.transcripts import is_transcript, parse_transcript, shared_beginning

Pair: TypeAlias = Callable[[Values], tuple[Messages, str, str]]

LABELS = ("p_chosen", "weight", "margin")
BOTH = ("chosen", "rejected")


def labelled(pair: Pair) -> Callable[[Values], Preference]:
    """A pair with the row's p_chosen, weight and margin, where it has them."""

    def parse(values: Values) -> Preference:
        return Preference(
            *pair(values),
            p_chosen=number(values, "p_chosen", 1.0, 0.0, 1.0),
            weight=number(values, "weight", 1.0, 0.0),
            margin=number(values, "margin", 0.0),
        )

    return parse


def explicit(ask: Ask) -> Pair:
    """The prompt in columns of its own; the sides hold the answer, or messages that repeat the prompt before it."""

    def pair(values: Values) -> tuple[Messages, str, str]:
        prompt = ask(values)
        return prompt, _side(values, "chosen", prompt), _side(values, "rejected", prompt)

    return pair


def _side(values: Values, column: str, prompt: Messages) -> str:
    if not isinstance(values.get(column), list):
        return text(values, column)
    messages = turns(values, column)
    repeats = messages[: len(prompt)] == prompt
    return only_answer(messages[len(prompt) :] if repeats else messages, column)


def implicit(read: Callable[[Values, str], Messages]) -> Pair:
    """No prompt column: two whole conversations that agree up to the last answer."""

    def pair(values: Values) -> tuple[Messages, str, str]:
        prompt, chosen = answered(read(values, "chosen"), "chosen")
        other, rejected = answered(read(values, "rejected"), "rejected")
        if prompt != other:
            raise Unusable("chosen and rejected differ before the last answer")
        return prompt, chosen, rejected

    return pair


def _transcript(values: Values, column: str) -> Messages:
    return parse_transcript(text(values, column))


def _beginning(values: Values) -> tuple[Messages, str, str]:
    prompt, chosen, rejected = shared_beginning(text(values, "chosen"), text(values, "rejected"))
    return user(prompt), chosen, rejected


def _both(test: Callable[[object], bool]) -> Callable[[Values], bool]:
    return lambda values: test(values["chosen"]) and test(values["rejected"])


def _is_list(value: object) -> bool:
    return isinstance(value, list)


IMPLICIT: tuple[tuple[str, Pair, Callable[[Values], bool]], ...] = (
    ("chosen, rejected (messages)", implicit(turns), _both(_is_list)),
    ("chosen, rejected (hh-rlhf transcripts)", implicit(_transcript), _both(is_transcript)),
    ("chosen, rejected (texts that share a beginning)", _beginning, always),
)


def _explicit_format(ask: Ask, *columns: str) -> Format[Preference]:
    return Format(
        ", ".join((*columns, *BOTH)),
        (columns[0], *BOTH),
        labelled(explicit(ask)),
        (*columns[1:], *LABELS, *SYSTEM),
    )


PREFERENCES: tuple[Format[Preference], ...] = (
    Format(
        "prompt, chosen, rejected (hh-rlhf transcripts)",
        ("prompt", *BOTH),
        labelled(explicit(prompt_transcript)),
        LABELS,
        lambda values: is_transcript(values["prompt"]),
    ),
    _explicit_format(prompt_column, "prompt"),
    _explicit_format(asked("instruction", "input"), "instruction", "input"),
    _explicit_format(asked("question"), "question"),
    *(Format(title, BOTH, labelled(pair), LABELS, fits) for title, pair, fits in IMPLICIT),
)

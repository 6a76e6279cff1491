"""Preference formats: a separate prompt column (explicit), or two conversations that share the prompt (implicit)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tutelage.base.nouns import counted
from tutelage.data.readers import TableRow, Values
from tutelage.data.records import Messages, Preference, user
from tutelage.data.row_values import (
    SYSTEM,
    Ask,
    Unusable,
    ends_in_mid_sentence,
    is_transcript,
    number,
    only_answer,
    optional_text,
    parse_transcript,
    prompt_column,
    prompt_transcript,
    question_from,
    require_answer,
    shared_beginning,
    split_answer,
    text,
    turns,
)
from tutelage.data.table_format import RowFormat

Pair: TypeAlias = tuple[Messages, str, str]
"""(prompt, chosen completion, rejected completion)"""

LABELS = ("p_chosen", "weight", "margin")
BOTH = ("chosen", "rejected")


def explicit(ask: Ask) -> Callable[[Values], Pair]:
    """Separate prompt column; the sides are completions, or messages that repeat the prompt."""

    def pair(values: Values) -> Pair:
        prompt = ask(values)
        return prompt, _side(values, "chosen", prompt), _side(values, "rejected", prompt)

    return pair


def _side(values: Values, column: str, prompt: Messages) -> str:
    if not isinstance(values.get(column), list):
        return optional_text(values, column)
    messages = turns(values, column)
    repeats = messages[: len(prompt)] == prompt
    return only_answer(messages[len(prompt) :] if repeats else messages, column)


def implicit(read: Callable[[Values, str], Messages]) -> Callable[[Values], Pair]:
    """No prompt column: two conversations that agree up to the last assistant turn."""

    def pair(values: Values) -> Pair:
        prompt, chosen = split_answer(read(values, "chosen"), "chosen")
        other, rejected = split_answer(read(values, "rejected"), "rejected")
        if prompt != other:
            raise Unusable("chosen and rejected differ before the last answer")
        return prompt, chosen, rejected

    return pair


def _beginning(values: Values) -> Pair:
    prompt, chosen, rejected = shared_beginning(text(values, "chosen"), text(values, "rejected"))
    return user(prompt), chosen, rejected


def _how_prompts_were_found(rows: Sequence[TableRow]) -> str:
    """Remark on how unmarked prompts were determined."""
    remark = (
        "the prompt of each pair is what both texts begin with, up to the end of a line or sentence; a column `prompt` "
        "would leave no doubt"
    )
    sides = [(row.values.get("chosen"), row.values.get("rejected")) for row in rows]
    texts = [(one, other) for one, other in sides if isinstance(one, str) and isinstance(other, str)]
    unmarked = sum(ends_in_mid_sentence(one, other) for one, other in texts)
    if not unmarked:
        return remark
    parted = f"{counted(unmarked, 'pair', 'parts')} within the first sentence"
    return f"{remark}. {parted}, where every word that both texts have is prompt"


def _both(test: Callable[[object], bool]) -> Callable[[Values], bool]:
    return lambda values: test(values["chosen"]) and test(values["rejected"])


TRANSCRIPTS = implicit(lambda values, column: parse_transcript(text(values, column)))
IMPLICIT: tuple[RowFormat[Pair], ...] = (
    RowFormat("chosen, rejected (messages)", BOTH, implicit(turns), fits=_both(lambda value: isinstance(value, list))),
    RowFormat("chosen, rejected (hh-rlhf transcripts)", BOTH, TRANSCRIPTS, fits=_both(is_transcript)),
    RowFormat("chosen, rejected (texts that share a beginning)", BOTH, _beginning, remark=_how_prompts_were_found),
)


def _explicit_format(ask: Ask, *columns: str) -> RowFormat[Pair]:
    return RowFormat(", ".join((*columns, *BOTH)), (columns[0], *BOTH), explicit(ask), (*columns[1:], *SYSTEM))


PAIRS: tuple[RowFormat[Pair], ...] = (
    RowFormat(
        "prompt, chosen, rejected (hh-rlhf transcripts)",
        ("prompt", *BOTH),
        explicit(prompt_transcript),
        fits=lambda values: is_transcript(values["prompt"]),
    ),
    _explicit_format(prompt_column, "prompt"),
    _explicit_format(question_from("instruction", "input"), "instruction", "input"),
    _explicit_format(question_from("question"), "question"),
    *IMPLICIT,
)


def labelled(values: Values, pair: Pair) -> Preference:
    """The pair with the row's p_chosen, weight and margin, if present. Neither completion may be empty."""
    messages, chosen, rejected = pair
    return Preference(
        messages,
        require_answer(values, "chosen", chosen),
        require_answer(values, "rejected", rejected),
        p_chosen=number(values, "p_chosen", 1.0, 0.0, 1.0),
        weight=number(values, "weight", 1.0, 0.0),
        margin=number(values, "margin", 0.0, 0.0),
    )


def labelled_format(form: RowFormat[Pair]) -> RowFormat[Preference]:
    """Pair format extended to preferences with labels."""

    def parse(values: Values) -> Preference:
        return labelled(values, form.parse(values))

    return replace(form, parse=parse, also=(*form.also, *LABELS))  # type: ignore[arg-type, return-value]

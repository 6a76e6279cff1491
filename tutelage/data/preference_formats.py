"""Preference formats: a separate prompt column (explicit), or two conversations that share the prompt (implicit)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tutelage.base.nouns import counted
from tutelage.data.message_values import (
    CONTEXT,
    Ask,
    answer,
    completion_text,
    framed,
    holds_messages,
    only_answer,
    prompt_column,
    prompt_transcript,
    question_from,
    split_answer,
    to_answer,
    turns,
)
from tutelage.data.readers import TableRow, Values
from tutelage.data.records import AssistantTurn, Messages, Preference, user
from tutelage.data.row_values import Cells, Unusable, number, optional_text, require_answer, text
from tutelage.data.table_format import RowFormat
from tutelage.data.transcripts import ends_in_mid_sentence, is_transcript, parse_transcript, shared_beginning

Pair: TypeAlias = tuple[Messages, AssistantTurn, AssistantTurn]
"""(prompt, chosen completion, rejected completion)"""

LABELS = ("p_chosen", "weight", "margin")
BOTH = ("chosen", "rejected")


def explicit(ask: Ask, chosen: str = "chosen", rejected: str = "rejected") -> Callable[[Values], Pair]:
    """Separate prompt; the sides, of these columns, are completions, or messages that repeat the prompt. Turns after it
    that both sides have before their last answer belong to it."""

    def pair(values: Values) -> Pair:
        prompt = ask(values)
        one, other = (_after(values, column, prompt) for column in (chosen, rejected))
        if isinstance(one, tuple) and isinstance(other, tuple) and one[:-1] == other[:-1] and _goes_on(one):
            prompt, one, other = (*prompt, *one[:-1]), one[-1:], other[-1:]
        return prompt, _answer(one, chosen), _answer(other, rejected)

    return pair


def _after(values: Values, column: str, prompt: Messages) -> Messages | str:
    """What follows the prompt on a side: text, or messages."""
    if not holds_messages(values.get(column)):
        return completion_text(values, column, optional_text(values, column))
    return without_prompt(turns(values, column), prompt)


def _goes_on(messages: Messages) -> bool:
    """Whether messages after a prompt begin with its answer and go on."""
    return len(messages) > 1 and messages[0].role == "assistant"


def _answer(side: Messages | str, column: str) -> AssistantTurn:
    return side if isinstance(side, str) else only_answer(side, column)


def without_prompt(messages: Messages, prompt: Messages) -> Messages:
    """The messages after the prompt, with or without its system message, or all if they do not repeat it."""
    asked = tuple(replace(message, tools=()) for message in prompt)
    for repeated in (asked, asked[1:] if asked and asked[0].role == "system" else ()):
        if repeated and messages[: len(repeated)] == repeated:
            return messages[len(repeated) :]
    return messages


def implicit(read: Callable[[Values, str], Messages]) -> Callable[[Values], Pair]:
    """No prompt column: two conversations that agree up to the last assistant turn."""

    def pair(values: Values) -> Pair:
        prompt, chosen = split_answer(read(values, "chosen"), "chosen")
        other, rejected = split_answer(read(values, "rejected"), "rejected")
        if prompt != other:
            raise Unusable("chosen and rejected differ before the last answer")
        return framed(values, prompt), chosen, rejected

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
    RowFormat("chosen, rejected (messages)", BOTH, implicit(turns), CONTEXT, fits=_both(holds_messages)),
    RowFormat("chosen, rejected (transcripts)", BOTH, TRANSCRIPTS, CONTEXT, fits=_both(is_transcript)),
    RowFormat(
        "chosen, rejected (texts that share a beginning)",
        BOTH,
        _beginning,
        remark=_how_prompts_were_found,
        exhaustive=True,
    ),
)


def _explicit_format(ask: Ask, *columns: str) -> RowFormat[Pair]:
    return RowFormat(", ".join((*columns, *BOTH)), (columns[0], *BOTH), explicit(ask), (*columns[1:], *CONTEXT))


def _conversation(column: str) -> Ask:
    return lambda values: framed(values, to_answer(turns(values, column), column))


# Pairs of other trainers ---------------------------------------------------------------------------------------------


def openai_prompt(values: Values) -> Messages:
    """`input` of OpenAI's pairs: {"messages": …, "tools": …}."""
    value = values.get("input")
    assert isinstance(value, Mapping), "the format fits"
    cells = values.within("input", value) if isinstance(values, Cells) else Cells(value)
    return framed(cells, to_answer(turns(cells, "messages"), "input"))


def _list_of_two(values: Values) -> Pair:
    """`output` of LLaMA-Factory's older pairs: [chosen, rejected]."""
    output = values["output"]
    if not isinstance(output, list) or len(output) != 2:
        raise Unusable("output is not a list of two answers")
    sides = Cells({"chosen": output[0], "rejected": output[1]})
    return question_from("instruction", "input")(values), answer(sides, "chosen"), answer(sides, "rejected")


def _beside_messages(values: Values) -> Pair:
    """ms-swift's pairs: `messages` with the chosen answer, and the rejected one as text or as messages."""
    prompt, chosen = split_answer(turns(values, "messages"), "messages")
    column = "rejected_messages" if values.get("rejected_messages") else "rejected_response"
    return framed(values, prompt), chosen, _answer(_after(values, column, prompt), column)


TRAINERS: tuple[RowFormat[Pair], ...] = (
    RowFormat(
        "input, preferred_output, non_preferred_output (OpenAI)",
        ("input", "preferred_output", "non_preferred_output"),
        explicit(openai_prompt, "preferred_output", "non_preferred_output"),
        fits=lambda values: isinstance(values["input"], Mapping),
    ),
    _explicit_format(question_from("input"), "input"),  # distilabel
    _explicit_format(_conversation("conversations"), "conversations"),  # LLaMA-Factory
    RowFormat(
        "instruction, input, output of two (LLaMA-Factory)",
        ("instruction", "output"),
        _list_of_two,
        ("input", *CONTEXT),
        fits=lambda values: isinstance(values["output"], list) and len(values["output"]) == 2,
    ),
    *(
        RowFormat(f"messages, {column} (ms-swift)", ("messages", column), _beside_messages, CONTEXT)
        for column in ("rejected_response", "rejected_messages")
    ),
)


PAIRS: tuple[RowFormat[Pair], ...] = (
    RowFormat(
        "prompt, chosen, rejected (transcripts)",
        ("prompt", *BOTH),
        explicit(prompt_transcript),
        fits=lambda values: is_transcript(values["prompt"]),
    ),
    _explicit_format(prompt_column, "prompt"),
    _explicit_format(question_from("instruction", "input"), "instruction", "input"),
    _explicit_format(question_from("question"), "question"),
    *TRAINERS,
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

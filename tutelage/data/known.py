"""The column sets that are understood, best first, for every kind of data."""

import re
from dataclasses import replace

from tutelage.data.asking import SYSTEM, Ask, answer, asked, prompt_column, prompt_transcript
from tutelage.data.compared_formats import COMPARED, Compared
from tutelage.data.fields import (
    LeftOut,
    Unusable,
    answered,
    name,
    number,
    optional_text,
    said,
    text,
    truth,
    turns,
)
from tutelage.data.identity import prompt_id
from tutelage.data.own_columns import own_columns
from tutelage.data.preference_formats import IMPLICIT, PAIRS, Pair, labelled_format
from tutelage.data.rated_formats import HELPSTEER, RATED
from tutelage.data.readers import Values
from tutelage.data.recognise import RowFormat
from tutelage.data.records import Demonstration, Messages, Preference, Prompt, Split
from tutelage.data.transcripts import is_transcript
from tutelage.data.unpaired import UnpairedAnswer


def _demonstrated(title: str, ask: Ask, columns: tuple[str, ...], column: str) -> RowFormat[Demonstration]:
    return RowFormat(
        ", ".join((*columns, column)) + title,
        (columns[0], column),
        lambda values: Demonstration(ask(values), answer(values, column)),
        also=(*columns[1:], *SYSTEM),
    )


def _whole_conversation(column: str, title: str) -> RowFormat[Demonstration]:
    return RowFormat(title, (column,), lambda values: Demonstration(*answered(turns(values, column), column)))


ANSWERED: tuple[RowFormat[Demonstration], ...] = (
    _whole_conversation("messages", "messages (role, content)"),
    _whole_conversation("conversations", "conversations (from, value: ShareGPT)"),
    _demonstrated(" (Dolly)", asked("instruction", "context"), ("instruction", "context"), "response"),
    _demonstrated(" (Alpaca)", asked("instruction", "input"), ("instruction", "input"), "output"),
    RowFormat(
        "prompt, completion",
        ("prompt", "completion"),
        lambda values: Demonstration(
            prompt_column(values), answer(values, "completion"), number(values, "weight", 1.0, 0.0)
        ),
        also=("weight", *SYSTEM),
    ),
    _demonstrated("", prompt_column, ("prompt",), "response"),
    _demonstrated("", asked("question"), ("question",), "answer"),
    _demonstrated("", asked("question"), ("question",), "response"),
    RowFormat("text", ("text",), lambda values: Demonstration((), text(values, "text"))),
)


def _has_truth(values: Values) -> bool:
    try:
        truth(values, "label")
    except Unusable:
        return False
    return True


UNPAIRED: tuple[RowFormat[UnpairedAnswer], ...] = (
    RowFormat(
        "prompt, completion, label",
        ("prompt", "completion", "label"),
        lambda values: UnpairedAnswer(
            prompt_column(values), answer(values, "completion"), truth(values, "label")
        ),
        also=SYSTEM,
        fits=_has_truth,
    ),
)

TEXTS: tuple[RowFormat[str], ...] = (RowFormat("text", ("text",), lambda values: text(values, "text")),)


def _chosen_side(form: RowFormat[Pair]) -> RowFormat[Demonstration]:
    def parse(values: Values) -> Demonstration:
        messages, chosen, _ = form.parse(values)
        return Demonstration(messages, said(values, "chosen", chosen))

    name = f"{form.name}, of which the chosen side"
    listed = "preferences of every kind, of which the chosen side"
    return replace(form, name=name, parse=parse, listed=listed)  # type: ignore[arg-type, return-value]


def _good_answer(values: Values) -> Demonstration:
    labelled = UNPAIRED[0].parse(values)
    if not labelled.label:
        raise LeftOut("answer", "labelled bad")
    return Demonstration(labelled.messages, labelled.completion)


COMPARED_PAIRS: tuple[RowFormat[Pair], ...] = tuple(one.pairs for one in COMPARED)

PUBLISHED_PAIRS: tuple[RowFormat[Pair], ...] = (*COMPARED_PAIRS, *(one.pairs for one in RATED))
SETS = ", ".join(dict.fromkeys(re.findall(r"\(([\w ]+)", " ".join(form.name for form in PUBLISHED_PAIRS))))
"""The published data sets of compared and of rated answers."""

PREFERENCES: tuple[RowFormat[Preference], ...] = tuple(
    labelled_format(form)
    for form in (*PAIRS, *(replace(form, listed=f"as published: {SETS}") for form in PUBLISHED_PAIRS))
)

DEMONSTRATIONS: tuple[RowFormat[Demonstration], ...] = (
    *(_chosen_side(form) for form in (*PAIRS, *COMPARED_PAIRS)),
    *(one.demonstrations for one in RATED),
    replace(UNPAIRED[0], parse=_good_answer),  # type: ignore[arg-type]
    *ANSWERED,
)

# Prompts: every kind of data asks something --------------------------------------------------------------------------

SPLITS: dict[str, Split] = {
    "": "train",
    "train": "train",
    "held_out": "held_out",
    "test": "held_out",
    "validation": "held_out",
}


def _split(values: Values) -> Split:
    word = optional_text(values, "split")
    if word not in SPLITS:
        raise Unusable(f"split is {word!r}, not train or held_out")
    return SPLITS[word]


NAMED = ("prompt", "messages", "id", "split", *SYSTEM)


def named_prompt(values: Values) -> Prompt:
    """A row of prompts.jsonl: `prompt` (text or messages) or `messages`, with an id and a split if it has them, and its
    own columns."""
    if values.get("prompt") is not None:
        messages = prompt_column(values)
    else:
        messages = _unanswered(turns(values, "messages"))
    has_id = values.get("id") not in (None, "")
    key = name(values, "id") if has_id else prompt_id(messages)
    return Prompt(key, messages, _split(values), own_columns(values, NAMED))


def _unanswered(messages: Messages) -> Messages:
    """The conversation up to the answer it ends with, if it ends with one."""
    question = messages[:-1] if messages and messages[-1].role == "assistant" else messages
    if not question:
        raise Unusable("the conversation asks nothing")
    return question


def _asks(title: str, ask: Ask, needs: tuple[str, ...], also: tuple[str, ...] = SYSTEM) -> RowFormat[Prompt]:
    def parse(values: Values) -> Prompt:
        messages = ask(values)
        return Prompt(prompt_id(messages), messages, data=own_columns(values, (*needs, *also)))

    return RowFormat(title, needs, parse, also)


ASKED = "preferences of every kind, of which the prompt"


def _pair_asks(form: RowFormat[Pair]) -> RowFormat[Prompt]:
    asks = _asks(f"{form.name}, of which the prompt", lambda values: form.parse(values)[0], form.needs, ())
    return replace(asks, fits=form.fits, listed=ASKED)


def _compared_asks(one: Compared) -> RowFormat[Prompt]:
    asks = _asks(f"{one.pairs.name}, of which the prompt", one.ask, one.asks, ())
    return replace(asks, fits=one.pairs.matches, listed=ASKED)


PROMPTS: tuple[RowFormat[Prompt], ...] = (
    *(_compared_asks(one) for one in COMPARED),
    replace(
        _asks(f"{HELPSTEER.name}, of which the prompt", HELPSTEER.ask, (HELPSTEER.asks,), ()),
        fits=HELPSTEER.pairs.matches,
        listed=ASKED,
    ),
    replace(
        _asks("prompt (hh-rlhf transcripts)", prompt_transcript, ("prompt",), ()),
        fits=lambda values: is_transcript(values["prompt"]),
    ),
    RowFormat(
        "prompt or messages",
        (),
        named_prompt,
        NAMED,
        lambda values: values.get("prompt") is not None or values.get("messages") is not None,
    ),
    _asks("instruction, context", asked("instruction", "context"), ("instruction", "context"), SYSTEM),
    _asks("instruction, input", asked("instruction", "input"), ("instruction",), ("input", *SYSTEM)),
    _asks("question", asked("question"), ("question",)),
    _asks(
        "conversations", lambda values: _unanswered(turns(values, "conversations")), ("conversations",), ()
    ),
    *(_pair_asks(form) for form in IMPLICIT),
    _asks("text", asked("text"), ("text",), ()),
)

"""Completions in steps whose labels are not needed: traces, chains of thought, and rated steps; pairs of traces.

A step of a trace is a message of the assistant with the messages after it, up to its next one: the results of its
calls, or the reply of a person. The prompt is what comes before the first of them. A completion that is one text is
split at its blank lines.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tutelage.data.message_values import CONTEXT, Ask, framed, holds_messages, prompt_column, turns
from tutelage.data.preference_formats import BOTH, openai_prompt, without_prompt
from tutelage.data.readers import Values
from tutelage.data.record_formats import DEMONSTRATIONS
from tutelage.data.records import Demonstration, Message, Messages, RatedSteps, Step
from tutelage.data.row_values import Cells, LeftOut, Unusable
from tutelage.data.step_formats import STEPS, STEPWISE, Rated
from tutelage.data.table_format import RowFormat
from tutelage.data.transcripts import transcript_text

_BLANK_LINES = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")


def split_trace(messages: Messages) -> tuple[Messages, tuple[Messages, ...]]:
    """The prompt and the steps of a conversation."""
    starts = [place for place, message in enumerate(messages) if message.role == "assistant"]
    bounds = [*starts, len(messages)]
    return messages[: bounds[0]], tuple(messages[start:end] for start, end in pairwise(bounds))


def trace_messages(steps: Iterable[Step]) -> Messages:
    """The messages of the steps of a trace; steps that are texts have none."""
    return tuple(message for step in steps if not isinstance(step, str) for message in step)


def split_text(text: str) -> tuple[str, ...]:
    """The parts of a text between blank lines."""
    return tuple(part.strip("\n") for part in _BLANK_LINES.split(text) if part.strip())


def trace_text(steps: Sequence[Step]) -> str:
    """The text of steps: a blank line between them."""
    return "\n\n".join(step if isinstance(step, str) else transcript_text(step) for step in steps)


def unrated(demonstration: Demonstration) -> RatedSteps:
    """The steps of a conversation or completion, without labels. Raises Unusable if there is none."""
    response = demonstration.response
    last = Message("assistant", response) if isinstance(response, str) else response
    prompt, steps = split_trace((*demonstration.messages, last))
    if not prompt:
        raise Unusable("nothing comes before the first step")
    parts: tuple[Step, ...] = split_text(response) if isinstance(response, str) and len(steps) == 1 else steps
    if not parts:
        raise Unusable("the completion is empty")
    return RatedSteps(prompt, parts, (None,) * len(parts))


def _from_demonstration(form: RowFormat[Demonstration]) -> RowFormat[Rated]:
    parse: Callable[..., Rated] = lambda values: (unrated(form.parse(values)),)  # noqa: E731
    return replace(form, parse=parse)  # type: ignore[arg-type, return-value]


def _without_labels(values: object) -> Rated:
    return STEPWISE.parse({**values, "labels": [None] * len(values["completions"])})  # type: ignore[dict-item, index]


TRACES: tuple[RowFormat[Rated], ...] = (
    *STEPS,
    replace(STEPWISE, name="prompt, completions (steps)", needs=("prompt", "completions"), parse=_without_labels),
    *map(_from_demonstration, DEMONSTRATIONS),
)


# Pairs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TracePair:
    """Two continuations of a conversation, each of the assistant's messages and what it read in between."""

    messages: Messages
    chosen: Messages
    rejected: Messages


def has_trace(form: RowFormat[TracePair], values: Values) -> bool:
    """Whether a row is in this format, and one of its sides has several messages."""
    try:
        pair = form.parse(Cells(values, images=True)) if form.matches(values) else None
    except (Unusable, LeftOut):
        return False
    return pair is not None and max(len(pair.chosen), len(pair.rejected)) > 1


def _continuations(prompt: Messages, sides: Mapping[str, Messages]) -> TracePair:
    chosen, rejected = (without_prompt(side, prompt) for side in sides.values())
    for column, side in zip(sides, (chosen, rejected), strict=True):
        if not side or side[0].role != "assistant" or any(message.role == "system" for message in side):
            raise Unusable(f"{column} does not go on with a message of the assistant after the prompt")
    if chosen == rejected:
        raise LeftOut("pair", "both sides are equal")
    return TracePair(prompt, chosen, rejected)


def _after(ask: Ask, *columns: str) -> Callable[[Values], TracePair]:
    return lambda values: _continuations(ask(values), {column: turns(values, column) for column in columns})


def _from_shared(values: Values) -> TracePair:
    """Two conversations: the prompt is what they begin with alike, up to the first message of the assistant that
    differs."""
    sides = {column: turns(values, column) for column in BOTH}
    one, other = sides.values()
    shorter = min(len(one), len(other))
    alike = next((n for n in range(shorter) if one[n] != other[n]), shorter)
    while alike and not all(len(side) > alike and side[alike].role == "assistant" for side in (one, other)):
        alike -= 1
    pair = _continuations(one[:alike], {column: side[alike:] for column, side in sides.items()})
    return replace(pair, messages=framed(values, pair.messages))


TRACE_PAIRS: tuple[RowFormat[TracePair], ...] = (
    RowFormat(
        "prompt, chosen, rejected (traces)",
        ("prompt", *BOTH),
        _after(prompt_column, *BOTH),
        CONTEXT,
        fits=lambda values: all(holds_messages(values[column]) for column in BOTH),
    ),
    RowFormat(
        "input, preferred_output, non_preferred_output (OpenAI, traces)",
        ("input", "preferred_output", "non_preferred_output"),
        _after(openai_prompt, "preferred_output", "non_preferred_output"),
        fits=lambda values: isinstance(values["input"], Mapping),
    ),
    RowFormat(
        "chosen, rejected (traces)",
        BOTH,
        _from_shared,
        CONTEXT,
        fits=lambda values: all(holds_messages(values[column]) for column in BOTH),
    ),
)

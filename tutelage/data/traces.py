"""Completions in steps whose labels are not needed: traces of episodes, chains of thought, and rated steps.

A step of a trace is a message of the assistant with the messages after it, up to its next one: the results of its
calls, or the reply of a person. The prompt is what comes before the first of them. A completion that is one text is
split at its blank lines.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from tutelage.data.record_formats import DEMONSTRATIONS
from tutelage.data.records import Demonstration, Message, Messages, RatedSteps, Step
from tutelage.data.row_values import Unusable
from tutelage.data.step_formats import STEPS, STEPWISE, Rated
from tutelage.data.table_format import RowFormat

_BLANK_LINES = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")


def split_trace(messages: Messages) -> tuple[Messages, tuple[Messages, ...]]:
    """The prompt and the steps of a conversation."""
    starts = [place for place, message in enumerate(messages) if message.role == "assistant"]
    bounds = [*starts, len(messages)]
    return messages[: bounds[0]], tuple(messages[start:end] for start, end in pairwise(bounds))


def split_text(text: str) -> tuple[str, ...]:
    """The parts of a text between blank lines."""
    return tuple(part.strip("\n") for part in _BLANK_LINES.split(text) if part.strip())


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

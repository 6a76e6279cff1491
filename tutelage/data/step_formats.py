"""Formats of rated steps: completions in steps, each with the probability that it is good.

    stepwise        prompt, completions [step, …], labels [label, …] (TRL's stepwise supervision)
    PRM800K         question {problem}, label {steps}: ratings of candidates for each step (Lightman et al. 2023)
    Math-Shepherd   input, label: a question and its steps, with a mark after each (Wang et al. 2024, 2312.08935)

A row of PRM800K gives several records: one of the steps that were chosen, and one for each other candidate, whose
earlier steps are the chosen ones, unrated there, so that no rating counts twice.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tutelage.data.message_values import CONTEXT, prompt_column, turns
from tutelage.data.readers import Values, a_type
from tutelage.data.records import Messages, RatedSteps, Step, user
from tutelage.data.row_values import Cells, LeftOut, Unusable, as_object, encodable, number, text, truth
from tutelage.data.table_format import RowFormat

Rated: TypeAlias = tuple[RatedSteps, ...]
"""The records of a row."""
RatedStep: TypeAlias = tuple[Step, float | None]
"""Step with its label."""


def _rated(messages: Messages, steps: Sequence[RatedStep]) -> RatedSteps:
    return RatedSteps(messages, tuple(step for step, _ in steps), tuple(label for _, label in steps))


# Stepwise ------------------------------------------------------------------------------------------------------------


def _stepwise(values: Values) -> Rated:
    steps, labels = steps_in(values, "completions"), _list_of(values, "labels")
    if len(steps) != len(labels):
        raise Unusable("completions and labels have different lengths")
    rated = [_label(label, number) for number, label in enumerate(labels, 1)]
    return (RatedSteps(prompt_column(values), steps, tuple(rated)),)


def _list_of(values: Values, column: str) -> Sequence[object]:
    value = values.get(column)
    if not isinstance(value, list | tuple):
        raise Unusable(f"{column} is {a_type(value)}, not a list")
    return value


def steps_in(values: Values, column: str) -> tuple[Step, ...]:
    """The steps of a completion in a column: a list of texts, or of lists of messages."""
    steps = _list_of(values, column)
    if not steps:
        raise Unusable(f"{column} has no step")
    if len({isinstance(step, str) for step in steps}) > 1:
        raise Unusable(f"{column} holds both texts and messages")
    last = len(steps)
    return tuple(_step(values, step, f"{column}[{n}]", last=n == last) for n, step in enumerate(steps, 1))


def _step(values: Values, step: object, place: str, *, last: bool) -> Step:
    if not isinstance(step, list | tuple):
        return _text_of_step(step, place)
    column = place.partition("[")[0]
    cells = Cells({column: list(step)})
    messages = turns(cells, column)
    if isinstance(values, Cells):
        values.inside, values.remarks = values.inside + cells.inside, values.remarks + cells.remarks
    roles = [message.role for message in messages]
    if roles[:1] != ["assistant"] or "assistant" in roles[1:] or "system" in roles:
        raise Unusable(f"{place} is not one message of the assistant, followed by what it read then")
    if not (messages[1:] or last):
        raise Unusable(f"{place} has neither a result nor another message that the next step could continue")
    return messages


def _text_of_step(step: object, place: str) -> str:
    if not isinstance(step, str):
        raise Unusable(f"{place} is {a_type(step)}, not a text or a list of messages")
    if not step.strip():
        raise Unusable(f"{place} is empty")
    return encodable(step, place)


def _label(label: object, place: int) -> float | None:
    """true, false, a probability, or None."""
    if label is None:
        return None
    if isinstance(label, bool):
        return float(label)
    column = f"labels[{place}]"
    return number({column: label}, column, 0.0, 0.0, 1.0)


STEPWISE: RowFormat[Rated] = RowFormat(
    "prompt, completions, labels (stepwise supervision)",
    ("prompt", "completions", "labels"),
    _stepwise,
    CONTEXT,
    fits=lambda values: isinstance(values["completions"], list | tuple),
)

# PRM800K -------------------------------------------------------------------------------------------------------------

NOT_WRONG = {-1.0: 0.0, 0.0: 1.0, 1.0: 1.0}
"""Ratings of PRM800K as probabilities. 0 stands for a step that is not incorrect but makes no progress, so it is good,
as in the authors' scores of solutions."""
UNRATED = {
    "is_quality_control_question": "a quality control question, whose rating is not of the solution",
    "is_initial_screening_question": "a screening question",
}


def prm800k_prompt(values: Values) -> Messages:
    """`question` of PRM800K: {"problem": …}."""
    return user(text(as_object(values.get("question"), "question"), "problem"))


def _prm800k(values: Values) -> Rated:
    for column, what in UNRATED.items():
        if values.get(column) is not None and truth(values, column):
            raise LeftOut("row", what)
    label = as_object(values.get("label"), "label")
    if label.get("finish_reason") in ("bad_problem", "give_up"):
        raise LeftOut("row", f"its rater ended it as {label['finish_reason']}")
    messages, path, records = prm800k_prompt(values), list[RatedStep](), list[RatedSteps]()
    for place, step in enumerate(_list_of(label, "steps"), 1):
        where = f"label.steps[{place}]"
        candidates, chosen = _candidates(step, where)
        before = [(earlier, None) for earlier, _ in path]
        records += [_rated(messages, [*before, one]) for one in candidates if one is not chosen]
        if chosen is None:
            break
        path.append(chosen)
    if not path and not records:
        raise LeftOut("row", "its label has no step")
    return (_rated(messages, path), *records) if path else tuple(records)


def _candidates(step: object, where: str) -> tuple[list[RatedStep], RatedStep | None]:
    """The rated candidates of a step, and the one with which the solution goes on, if any."""
    cells = as_object(step, where)
    listed: Any = cells.get("completions") or ()
    every = [_candidate(one, f"{where}.completions[{i}]") for i, one in enumerate(listed, 1)]
    index, human = cells.get("chosen_completion"), cells.get("human_completion")
    if index is not None:
        if not isinstance(index, int) or not 0 <= index < len(every):
            raise Unusable(f"{where}.chosen_completion is not the number of a completion")
        return every, every[index]
    if human is None:
        return every, None
    written, rating = _candidate(human, f"{where}.human_completion")
    return every, (written, 1.0 if rating is None else rating)  # a rater wrote it because no candidate was good


def _candidate(value: object, where: str) -> RatedStep:
    cells = as_object(value, where)
    step, rating = _text_of_step(cells.get("text"), f"{where}.text"), cells.get("rating")
    if rating is None or cells.get("flagged") is True:
        return step, None
    if isinstance(rating, bool) or rating not in NOT_WRONG:
        raise Unusable(f"{where}.rating is {rating!r}, not -1, 0 or 1")
    return step, NOT_WRONG[rating]


PRM800K: RowFormat[Rated] = RowFormat(
    "question, label (PRM800K)",
    ("question", "label"),
    _prm800k,
    tuple(UNRATED),
    fits=lambda values: isinstance(values["label"], Mapping) and "steps" in values["label"],
    metadata=frozenset(("labeler", "generation")),
)

# Math-Shepherd -------------------------------------------------------------------------------------------------------

MARK = "ки"
FIRST = "Step 1:"
SIGNS = {"+": 1.0, "-": 0.0}


def shepherd_prompt(values: Values) -> Messages:
    """`input` of Math-Shepherd before its first step."""
    question, first, _ = text(values, "input").partition(FIRST)
    if not (first and question.strip()):
        raise Unusable(f"input is not a question followed by {FIRST!r}")
    return user(question.strip())


def _shepherd(values: Values) -> Rated:
    messages, marked, signed = shepherd_prompt(values), text(values, "input"), text(values, "label")
    *parts, rest = marked.split(MARK)
    if rest.strip():
        raise Unusable(f"input has text after its last {MARK}")
    labels, place = list[float](), 0
    for part in parts:
        sign = signed[place + len(part) : place + len(part) + 1]
        if not signed.startswith(part, place) or sign not in SIGNS:
            raise Unusable(f"label is not the text of input with + or - for each {MARK}")
        labels.append(SIGNS[sign])
        place += len(part) + 1
    if signed[place:].strip():
        raise Unusable(f"label is not the text of input with + or - for each {MARK}")
    start = marked.index(FIRST)
    steps = [_text_of_step((part[start:] if not i else part).strip(), f"step {i + 1}") for i, part in enumerate(parts)]
    return (RatedSteps(messages, tuple(steps), tuple(labels)),)


def _is_shepherd(values: Values) -> bool:
    return isinstance(values["input"], str) and MARK in values["input"] and isinstance(values["label"], str)


SHEPHERD: RowFormat[Rated] = RowFormat(
    "input, label (Math-Shepherd)", ("input", "label"), _shepherd, fits=_is_shepherd, metadata=frozenset(("task",))
)

STEPS: tuple[RowFormat[Rated], ...] = (STEPWISE, PRM800K, SHEPHERD)

"""Preferences, or labels of steps, of a study in the shapes of other tools.

    openai          a line of a preference data set for fine-tuning: input, preferred_output, non_preferred_output
    langfuse        a score for each response that is a trace or an observation, to be created by the interface
    langsmith       a feedback for each of two compared responses that are runs, joined by feedback_group_id
    prm800k         a solution with ratings of its steps up to the first wrong one (Lightman et al. 2023)
    math_shepherd   a question with its steps up to the last label, + or - after each (Wang et al. 2023)

Responses that `tutelage import` read have the id of the tool, such as langfuse:TRACE/OBSERVATION. A score is the
probability that the response is the better one, for a trace in several pairs the mean. Ids follow from the study and
the responses, so that a score which is sent again replaces the earlier one.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import mean
from typing import Literal, TypeAlias
from uuid import NAMESPACE_OID, uuid5

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.images import has_images
from tutelage.data.records import Message, message_row, tools_of
from tutelage.data.step_formats import FIRST, MARK
from tutelage.data.traces import trace_messages
from tutelage.people.store.studies import Study
from tutelage.people.training_data import LabelledStudy, Row, StepRow

Tool: TypeAlias = Literal["openai", "langfuse", "langsmith", "prm800k", "math_shepherd"]
ToolRow: TypeAlias = Mapping[str, object]
NAME = "preference"
"""Name of the scores, and key of the feedback."""


def openai_rows(rows: Sequence[Row], study: str) -> Iterator[ToolRow]:
    """Preferences as lines of OpenAI's preference data, without ties."""
    for row in rows:
        pair = row.preference
        if has_images(pair):
            raise TutelageError(
                f"The item '{row.question.key}' has an image, and openai.jsonl is for text alone; exclude such items, "
                "or export without openai."
            )
        if pair.p_chosen > 0.5:
            messages = [message_row(message) for message in pair.messages]
            tools = [json.loads(schema) for schema in tools_of(pair.messages)]
            yield {
                "input": {"messages": messages, "tools": tools, "parallel_tool_calls": True},
                "preferred_output": _output(row, row.chosen),
                "non_preferred_output": _output(row, row.rejected),
            }


def _output(row: Row, place: int) -> list[dict[str, object]]:
    completion = row.question.completions[place]
    messages = trace_messages(completion.steps) or (Message("assistant", completion.text),)
    return [message_row(message) for message in messages]


def _sides(row: Row) -> Iterator[tuple[str, float]]:
    """The id of each response of a pair, and the probability that it is the better one."""
    p = row.preference.p_chosen
    for place, probability in ((row.chosen, p), (row.rejected, 1 - p)):
        yield row.question.completions[place].id, round(probability, 6)


def langfuse_rows(rows: Sequence[Row], study: str) -> Iterator[ToolRow]:
    """Scores of traces and observations, as `POST /api/public/scores` takes them."""
    probabilities: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for key, probability in _sides(row):
            tool, _, target = key.partition(":")
            if tool == "langfuse":
                probabilities[target].append(probability)
    for target, values in probabilities.items():
        trace, _, observation = target.partition("/")
        score = {"id": str(uuid5(NAMESPACE_OID, f"{study}/{target}")), "traceId": trace}
        score |= {"observationId": observation} if observation else {}
        comment = f"study {study}: {counted(len(values), 'pair')}"
        yield score | {"name": NAME, "value": round(mean(values), 6), "dataType": "NUMERIC", "comment": comment}


def langsmith_rows(rows: Sequence[Row], study: str) -> Iterator[ToolRow]:
    """Feedback on pairs of runs, as `Client.create_feedback` and `POST /feedback` take it."""
    for row in rows:
        sides = dict(_sides(row))
        if all(key.startswith("langsmith:") for key in sides):
            group = str(uuid5(NAMESPACE_OID, "/".join((study, *sorted(sides)))))
            for key, probability in sides.items():
                yield {
                    "id": str(uuid5(NAMESPACE_OID, f"{group}/{key}")),
                    "run_id": key.removeprefix("langsmith:"),
                    "key": NAME,
                    "score": probability,
                    "comment": f"study {study}: {counted(sum(row.label.counts.values()), 'vote')}",
                    "feedback_group_id": group,
                    "feedback_source": {"type": "api", "metadata": {"study": study}},
                }


def prm800k_rows(rows: Sequence[StepRow], study: str) -> Iterator[ToolRow]:
    """Rated solutions as lines of PRM800K. As in its second phase, they end with the first wrong step, which is not
    chosen; the whole solution is in `pre_generated_steps`."""
    labeler = str(uuid5(NAMESPACE_OID, study))
    for row in rows:
        problem, steps = _solution(row, "prm800k")
        rated: list[dict[str, object]] = []
        for text, probability in zip(steps, row.probabilities, strict=True):
            if probability is None:
                break
            rating = 0 if probability == 0.5 else 1 if probability > 0.5 else -1
            candidates = [{"text": text, "rating": rating, "flagged": None}]
            chosen = None if rating < 0 else 0
            rated.append({"completions": candidates, "human_completion": None, "chosen_completion": chosen})
            if rating < 0:
                break
        if rated:
            wrong = rated[-1]["chosen_completion"] is None
            reason = "found_error" if wrong else "solution" if len(rated) == len(steps) else "give_up"
            yield {
                "labeler": labeler,
                "timestamp": None,
                "generation": None,
                "is_quality_control_question": False,
                "is_initial_screening_question": False,
                "question": {"problem": problem, "pre_generated_steps": steps},
                "label": {"steps": rated, "total_time": None, "finish_reason": reason},
            }


def math_shepherd_rows(rows: Sequence[StepRow], study: str) -> Iterator[ToolRow]:
    """Rated solutions as rows of Math-Shepherd, whose steps are numbered; a neutral step is +, as in PRM800K's
    scores."""
    for row in rows:
        question, steps = _solution(row, "math_shepherd")
        if any(MARK in text for text in (question, *steps)) or FIRST in question:
            raise TutelageError(
                f"The item '{row.question.key}' contains {MARK!r} or a question with {FIRST!r}, which separate its "
                "steps in math_shepherd.jsonl; exclude it, or export without math_shepherd."
            )
        labels = list(takewhile(lambda each: each is not None, row.probabilities))
        texts = [_numbered(text, number) for number, text in enumerate(steps[: len(labels)], 1)]
        signs = ["-" if label is not None and label < 0.5 else "+" for label in labels]
        if texts:
            marked = "\n".join(f"{text} {MARK}" for text in texts)
            signed = "\n".join(f"{text} {sign}" for text, sign in zip(texts, signs, strict=True))
            yield {"input": f"{question} {marked}", "label": f"{question} {signed}", "task": study}


def _numbered(text: str, number: int) -> str:
    return text if text.startswith(f"Step {number}:") else f"Step {number}: {text}"


def _solution(row: StepRow, tool: str) -> tuple[str, list[str]]:
    """The question and the steps of a text. Raises TutelageError for conversations and traces."""
    messages, steps = row.question.messages, row.question.completions[0].steps
    texts = [step for step in steps if isinstance(step, str)]
    if len(messages) != 1 or len(texts) < len(steps) or has_images(row.question):
        raise TutelageError(
            f"The item '{row.question.key}' is a conversation or a trace of messages, and {tool}.jsonl is for texts in "
            f"steps; exclude such items, or export without {tool}."
        )
    return messages[0].content, texts


TOOL_ROWS: Mapping[Tool, Callable[[Sequence[Row], str], Iterator[ToolRow]]] = {
    "openai": openai_rows,
    "langfuse": langfuse_rows,
    "langsmith": langsmith_rows,
}
STEP_TOOL_ROWS: Mapping[Tool, Callable[[Sequence[StepRow], str], Iterator[ToolRow]]] = {
    "prm800k": prm800k_rows,
    "math_shepherd": math_shepherd_rows,
}


def tool_rows(tool: Tool, labelled: LabelledStudy, study: Study) -> Iterator[ToolRow]:
    """What a study says, as a tool takes it. Raises TutelageError if the tool takes preferences and the study judges
    steps, or the reverse."""
    steps = study.kind.traits.steps
    if steps != (tool in STEP_TOOL_ROWS):
        fitting = ", ".join(STEP_TOOL_ROWS if steps else TOOL_ROWS)
        raise TutelageError(f"'{study.name}' {study.kind.traits.does}: --tools {tool} does not fit, but {fitting} do.")
    if steps:
        return STEP_TOOL_ROWS[tool](labelled.steps, study.name)
    return TOOL_ROWS[tool](labelled.rows, study.name)

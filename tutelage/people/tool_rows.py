"""Preferences of a study in the shapes of other tools.

    openai      a line of a preference data set for fine-tuning: input, preferred_output, non_preferred_output
    langfuse    a score for each response that is a trace or an observation, to be created by the interface
    langsmith   a feedback for each of two compared responses that are runs, joined by feedback_group_id

Responses that `tutelage import` read have the id of the tool, such as langfuse:TRACE/OBSERVATION. A score is the
probability that the response is the better one, for a trace in several pairs the mean. Ids follow from the study and
the responses, so that a score which is sent again replaces the earlier one.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Literal, TypeAlias
from uuid import NAMESPACE_OID, uuid5

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.images import has_images
from tutelage.data.records import Message, message_row, tools_of
from tutelage.people.store.item_catalogue import trace_of
from tutelage.people.training_data import Row

Tool: TypeAlias = Literal["openai", "langfuse", "langsmith"]
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
    messages = trace_of(completion) or (Message("assistant", completion.text),)
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


TOOL_ROWS: Mapping[Tool, Callable[[Sequence[Row], str], Iterator[ToolRow]]] = {
    "openai": openai_rows,
    "langfuse": langfuse_rows,
    "langsmith": langsmith_rows,
}

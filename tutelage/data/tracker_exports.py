"""Rows of exports of trackers and evaluation tools: what was said, and how people, models and scorers rated it.

    Langfuse    traces and observations: id, input, output; scores: name, value, dataType, traceId
    LangSmith   runs: id, run_type, inputs, outputs; feedback: key, score, value, correction, run_id
    Phoenix     spans: context.span_id, attributes.input.value; annotations: span_id, annotator_kind, result
    Opik        traces: id, input, output, feedback_scores (value_by_author)
    Braintrust  logs and experiments: id, input, output, expected, scores
    Inspect     samples of a log: id, epoch, input, output, messages, scores

Keys of trackers are those of the interfaces (`traceId`) or of their clients and bulk exports (`trace_id`).

Only Opik's scores of its pages (`ui`) are surely people's, as are Inspect's edits with an author, and reviews that
Braintrust writes into `expected`. Other scores of Opik and Braintrust are of an unknown kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tutelage.data.annotations import Exported, Parts, RaterKind, Statement, Subject
from tutelage.data.export_values import (
    ExportFormat,
    as_number,
    asked,
    exported,
    first_of,
    has,
    key_of,
    moment,
    said,
    words,
)
from tutelage.data.json_values import unfold_json
from tutelage.data.readers import Values, a_type
from tutelage.data.row_values import Unusable
from tutelage.data.vote_rows import cell_text


def _subject_of(
    tool: str, keys: tuple[str, str], asks: object, says: object, parts: Parts, model: str
) -> tuple[tuple[Subject, ...], str]:
    """The subject with an input and an output, by its id and another one; none and the reason if one of them has no
    text."""
    try:
        prompt = asked(asks, parts.prompt)
        response = said(says, parts.responses[0] if len(parts.responses) == 1 else "")
    except Unusable as reason:
        return (), str(reason)
    key, alias = keys
    return (Subject(f"{tool}:{key}", prompt, response, model, alias and f"{tool}:{alias}"),), ""


def as_mapping(value: object) -> Mapping[str, Any]:
    """An object, or the JSON text of one, as tables have it; empty for anything else."""
    value = unfold_json(value)
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list; empty for anything else."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _value(value: object) -> float | str | None:
    """A number, or a word; None for nothing and for lists and objects."""
    number = as_number(value)
    return number if number is not None else value.strip() or None if isinstance(value, str) else None


# Langfuse ------------------------------------------------------------------------------------------------------------


_LANGFUSE = ("traceId", "trace_id", "sessionId", "session_id", "htmlPath", "projectId", "project_id")
"""Columns of traces and observations, of which every export has one."""


def _langfuse_trace(values: Values, parts: Parts) -> Exported:
    """A trace or an observation, and the scores and observations that a trace may include. The root observation of a
    trace is the trace."""
    key, trace = key_of(values, "id"), words(values, "traceId", "trace_id")
    is_root = trace and not first_of(values, "parentObservationId", "parent_observation_id")
    within = f"{trace}/{key}" if trace else key
    keys = (trace, within) if is_root else (within, "")
    model = words(values, "model", "providedModelName", "provided_model_name")
    subjects, problem = _subject_of("langfuse", keys, values.get("input"), values.get("output"), parts, model)
    read = [exported(_langfuse_score, score, parts) for score in _objects(values.get("scores"))]
    read += [exported(_langfuse_trace, each, parts) for each in _objects(values.get("observations"))]
    return Exported(
        (*subjects, *(subject for each in read for subject in each.subjects)),
        tuple(statement for each in read for statement in each.statements),
        tuple(reason for each in read for reason in each.left_out),
        problem,
    )


def _langfuse_score(values: Values, parts: Parts) -> Exported:
    kind = words(values, "dataType", "data_type")
    about = values.get("subject")
    where = about if isinstance(about, Mapping) else {}
    trace, observation = words(values, "traceId", "trace_id"), words(values, "observationId", "observation_id")
    if where:
        trace, observation = words(where, "traceId"), words(where, "id")
    target = "/".join(filter(None, (trace, observation)))
    if not target or where.get("kind") in ("session", "experiment"):
        return Exported(left_out=("a score of a session or an experiment, not of one response",))
    if kind == "TEXT":
        return Exported(left_out=("a score that is a text rates nothing",))
    text = words(values, "stringValue", "string_value")
    raw = values.get("value")
    number = as_number(raw)
    value: float | str = text or cell_text({"value": raw}, "value")
    if kind in ("NUMERIC", "BOOLEAN"):
        if number is None:
            return Exported(left_out=(f"a score of the type {kind} without a number",))
        value = number
    statement = Statement(
        f"langfuse:{key_of(values, 'id')}",
        (f"langfuse:{target}",),
        words(values, "name"),
        value,
        words(values, "authorUserId", "author_user_id"),
        "model" if values.get("source") == "EVAL" else "human",
        words(values, "comment"),
        moment(values, "updatedAt", "updated_at", "timestamp"),
        corrects=kind == "CORRECTION",
    )
    return Exported((), (statement,))


# LangSmith -----------------------------------------------------------------------------------------------------------


def _langsmith_run(values: Values, parts: Parts) -> Exported:
    extra = values.get("extra")
    metadata = extra.get("metadata") if isinstance(extra, Mapping) else None
    model = words(metadata, "ls_model_name") if isinstance(metadata, Mapping) else ""
    keys = (key_of(values, "id"), "")
    subjects, problem = _subject_of("langsmith", keys, values.get("inputs"), values.get("outputs"), parts, model)
    return Exported(subjects, without=problem)


def _langsmith_feedback(values: Values, parts: Parts) -> Exported:
    run, source = words(values, "run_id"), values.get("feedback_source")
    if not run:
        return Exported(left_out=("a feedback on a project, not on one response",))
    by = source if isinstance(source, Mapping) else {}
    kind: RaterKind = "model" if by.get("type") in ("model", "auto_eval") else "human"
    correction, number = values.get("correction"), as_number(values.get("score"))
    value: float | str = words(values, "value") if number is None else number
    better = ""
    if isinstance(correction, Mapping) and (corrected := as_number(correction.get("score"))) is not None:
        value, kind = corrected, "human"
    elif correction:
        better = said(correction)
    group = words(values, "feedback_group_id")
    rated = Statement(
        f"langsmith:{key_of(values, 'id')}",
        (f"langsmith:{run}",),
        words(values, "key"),
        value,
        words(by, "user_id", "user_name"),
        kind,
        words(values, "comment"),
        moment(values, "modified_at", "created_at"),
        f"langsmith:{group}" if group else "",
    )
    corrects = replace(rated, id=f"{rated.id}/correction", value=better, group="", corrects=True)
    statements = (*([] if value == "" else [rated]), *([corrects] if better else []))
    if not statements:
        return Exported(left_out=("a feedback without a score, a value and a correction",))
    return Exported((), statements)


# Phoenix -------------------------------------------------------------------------------------------------------------


def _phoenix_span(values: Values, parts: Parts) -> Exported:
    keys = (key_of(values, "context.span_id"), "")
    asks, says = values.get("attributes.input.value"), values.get("attributes.output.value")
    subjects, problem = _subject_of("phoenix", keys, asks, says, parts, words(values, "attributes.llm.model_name"))
    return Exported(subjects, without=problem)


def _phoenix_annotation(values: Values, parts: Parts) -> Exported:
    result = values.get("result")
    found = result if isinstance(result, Mapping) else {}
    number, label = as_number(found.get("score")), words(found, "label")
    if number is None and not label:
        return Exported(left_out=("an annotation without a score and a label",))
    span, name, mark = (words(values, column) for column in ("span_id", "name", "identifier"))
    statement = Statement(
        f"phoenix:{words(values, 'id') or '/'.join((span, name, mark))}",
        (f"phoenix:{span}",),
        name,
        label if number is None else number,
        words(values, "user_id"),
        "human" if values.get("annotator_kind") == "HUMAN" else "model",
        words(found, "explanation"),
        moment(values, "updated_at", "created_at"),
    )
    return Exported((), (statement,))


# Opik ----------------------------------------------------------------------------------------------------------------


def _opik_trace(values: Values, parts: Parts) -> Exported:
    """A trace or a span with its scores, each by every author that it names."""
    key, model = key_of(values, "id"), words(values, "model")
    subjects, problem = _subject_of("opik", (key, ""), values.get("input"), values.get("output"), parts, model)
    statements = (each for score in _objects(values.get("feedback_scores")) for each in _opik_statements(key, score))
    return Exported(subjects, tuple(statements), (), problem)


def _opik_statements(key: str, score: Mapping[str, Any]) -> Iterator[Statement]:
    name, authors = words(score, "name"), as_mapping(score.get("value_by_author"))
    for author, entry in authors.items() or [(words(score, "last_updated_by", "created_by"), score)]:
        each = as_mapping(entry)
        value = _value(each.get("value"))
        kind: RaterKind = {"ui": "human", "online_scoring": "model"}.get(words(each, "source"), "unknown")  # type: ignore[assignment]
        yield Statement(
            f"opik:{key}/{name}/{author}", (f"opik:{key}",), name,
            words(each, "category_name") if value is None else value, str(author), kind, words(each, "reason"),
            moment(each, "last_updated_at", "created_at"),
        )  # fmt: skip


# Braintrust ----------------------------------------------------------------------------------------------------------


def _is_braintrust_row(values: Values) -> bool:
    return {"input", "output", "expected", "scores"} <= values.keys() and not isinstance(values["scores"], list)


def _braintrust_row(values: Values, parts: Parts) -> Exported:
    """A row with its scores. `expected` is an object of the reviews by their names, if several reviews write into it;
    otherwise it is a better response, if `corrections` names it."""
    key, model = key_of(values, "id", "span_id"), words(as_mapping(values.get("metadata")), "model")
    subjects, problem = _subject_of("braintrust", (key, ""), values.get("input"), values.get("output"), parts, model)
    about, expected = (f"braintrust:{key}",), values.get("expected")
    statements, left_out = list[Statement](), list[str]()
    for kind, answers in (("unknown", as_mapping(values.get("scores"))), ("human", as_mapping(expected))):
        for name, answer in answers.items():
            value = _value(answer)
            if value is not None:
                id_ = f"braintrust:{key}/{'expected/' if kind == 'human' else ''}{name}"
                statements.append(Statement(id_, about, name, value, kind=kind))  # type: ignore[arg-type]
            elif answer is not None:
                left_out.append(f"{name}: neither a number nor a word")
    if isinstance(expected, str) and expected.strip() and "expected" in parts.corrections:
        id_ = f"braintrust:{key}/expected"
        statements.append(Statement(id_, about, "expected", expected, corrects=True))
    return Exported(subjects, tuple(statements), tuple(left_out), problem)


# Inspect -------------------------------------------------------------------------------------------------------------

_INSPECT = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Correct, incorrect, partial and no answer, as Inspect's `value_to_float` counts them."""


def _inspect_sample(values: Values, parts: Parts) -> Exported:
    """A sample with the scores of scorers; a score that was edited is its last author's. A score of several values is
    several questions."""
    attachments = as_mapping(values.get("attachments"))
    if attachments:
        values = {
            **values,
            **{name: _resolved(values.get(name), attachments) for name in ("input", "messages", "output")},
        }
    key = words(values, "uuid") or "/".join((words(values, "eval_id"), key_of(values, "id"), words(values, "epoch")))
    output, messages = as_mapping(values.get("output")), values.get("messages")
    choices = output.get("choices")
    choice = as_mapping(choices[0]) if isinstance(choices, list) and choices else {}
    response = output.get("completion") or as_mapping(choice.get("message")).get("content")
    conversation = values.get("input")
    if isinstance(messages, list) and messages and as_mapping(messages[-1]).get("role") == "assistant":
        conversation, response = messages[:-1], messages[-1:]
    subjects, problem = _subject_of("inspect", (key, ""), conversation, response, parts, words(output, "model"))
    statements, left_out = list[Statement](), list[str]()
    for scorer, score in as_mapping(values.get("scores")).items():
        if not isinstance(score, Mapping):
            left_out.append(f"{scorer}: its score is {a_type(score)}, not an object with a value")
            continue
        edits = _objects(score.get("history"))
        by = as_mapping(edits[-1].get("provenance")) if edits else {}
        author, reason = words(by, "author"), words(score, "explanation") or words(by, "reason")
        whole = score.get("value")
        for part, answer in whole.items() if isinstance(whole, Mapping) else [("", whole)]:
            name = f"{scorer}/{part}" if part else scorer
            value = _INSPECT.get(answer, _value(answer)) if isinstance(answer, str) else _value(answer)
            if value is None:
                left_out.append(f"{name}: neither a number nor a word")
                continue
            kind: RaterKind = "human" if author else "model"
            id_, time = f"inspect:{key}/{name}", moment(by, "timestamp")
            statements.append(Statement(id_, (f"inspect:{key}",), name, value, author, kind, reason, time))
    return Exported(subjects, tuple(statements), tuple(left_out), problem)


_ATTACHMENT = "attachment://"


def _resolved(value: Any, attachments: Mapping[str, object]) -> Any:
    """The value with the texts in place of their references, which logs have for long texts."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, Mapping):
        return {name: _resolved(each, attachments) for name, each in value.items()}
    return [_resolved(each, attachments) for each in value] if isinstance(value, list) else value


TRACKERS: tuple[ExportFormat, ...] = (
    ("Langfuse scores", has("name", "value", one_of=("dataType", "data_type")), _langfuse_score),
    ("LangSmith feedback", has("key", "run_id", "score", "feedback_source"), _langsmith_feedback),
    ("Phoenix annotations", has("span_id", "annotator_kind", "name"), _phoenix_annotation),
    ("LangSmith runs", has("id", "run_type", "inputs", "outputs"), _langsmith_run),
    ("Phoenix spans", has("context.span_id", "attributes.input.value"), _phoenix_span),
    ("Inspect samples", has("id", "epoch", "input", "output", "messages", "scores"), _inspect_sample),
    ("Braintrust rows", _is_braintrust_row, _braintrust_row),
    ("Opik traces", has("id", "input", "output", one_of=("feedback_scores", "last_updated_at")), _opik_trace),
    ("Langfuse traces or observations", has("id", "input", "output", one_of=_LANGFUSE), _langfuse_trace),
)

"""Rows of exports of trackers: what was said and how it was rated.

    Langfuse    traces and observations: id, input, output; scores: name, value, dataType, traceId
    LangSmith   runs: id, run_type, inputs, outputs; feedback: key, score, value, correction, run_id
    Phoenix     spans: context.span_id, attributes.input.value; annotations: span_id, annotator_kind, result

Keys are those of the interfaces (`traceId`) or of their clients and bulk exports (`trace_id`).
"""

from collections.abc import Mapping
from dataclasses import replace

from tutelage.data.annotations import Exported, Parts, RaterKind, Statement, Subject
from tutelage.data.export_values import as_number, asked, exported, first_of, key_of, moment, said, words
from tutelage.data.readers import Values
from tutelage.data.row_values import Unusable
from tutelage.data.vote_rows import cell_text


def subject_of(
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


# Langfuse ------------------------------------------------------------------------------------------------------------


def is_langfuse_score(values: Values) -> bool:
    return "name" in values and not {"dataType", "data_type"}.isdisjoint(values) and "value" in values


def is_langfuse_trace(values: Values) -> bool:
    marks = {"traceId", "trace_id", "sessionId", "session_id", "htmlPath", "projectId", "project_id"}
    return {"id", "input", "output"} <= values.keys() and not marks.isdisjoint(values)


def langfuse_trace(values: Values, parts: Parts) -> Exported:
    """A trace or an observation, and the scores and observations that a trace may include. The root observation of a
    trace is the trace."""
    key, trace = key_of(values, "id"), words(values, "traceId", "trace_id")
    is_root = trace and not first_of(values, "parentObservationId", "parent_observation_id")
    within = f"{trace}/{key}" if trace else key
    keys = (trace, within) if is_root else (within, "")
    model = words(values, "model", "providedModelName", "provided_model_name")
    subjects, problem = subject_of("langfuse", keys, values.get("input"), values.get("output"), parts, model)
    scores, nested = values.get("scores"), values.get("observations")
    listed = [score for score in scores or () if isinstance(score, Mapping)] if isinstance(scores, list) else []
    inner = [each for each in nested or () if isinstance(each, Mapping)] if isinstance(nested, list) else []
    read = [exported(langfuse_score, score, parts) for score in listed]
    read += [exported(langfuse_trace, each, parts) for each in inner]
    return Exported(
        (*subjects, *(subject for each in read for subject in each.subjects)),
        tuple(statement for each in read for statement in each.statements),
        tuple(reason for each in read for reason in each.left_out),
        problem,
    )


def langfuse_score(values: Values, parts: Parts) -> Exported:
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


def langsmith_run(values: Values, parts: Parts) -> Exported:
    extra = values.get("extra")
    metadata = extra.get("metadata") if isinstance(extra, Mapping) else None
    model = words(metadata, "ls_model_name") if isinstance(metadata, Mapping) else ""
    keys = (key_of(values, "id"), "")
    subjects, problem = subject_of("langsmith", keys, values.get("inputs"), values.get("outputs"), parts, model)
    return Exported(subjects, without=problem)


def langsmith_feedback(values: Values, parts: Parts) -> Exported:
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


def phoenix_span(values: Values, parts: Parts) -> Exported:
    keys = (key_of(values, "context.span_id"), "")
    asks, says = values.get("attributes.input.value"), values.get("attributes.output.value")
    subjects, problem = subject_of("phoenix", keys, asks, says, parts, words(values, "attributes.llm.model_name"))
    return Exported(subjects, without=problem)


def phoenix_annotation(values: Values, parts: Parts) -> Exported:
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

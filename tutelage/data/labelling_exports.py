"""Rows of exports of labelling tools: the fields of a record, and the answers of raters about it.

    Argilla          id, fields, responses; or flattened: QUESTION.responses, QUESTION.responses.users
    Label Studio     id, data, annotations; or JSON_MIN and CSV: annotation_id, annotator, lead_time
    Mechanical Turk  HITId, AssignmentId, WorkerId, Input.NAME, Answer.NAME
    Prolific         Submission id, Participant id, Status: whose work counts

A record has one response, which is rated or corrected, or two, of which one is chosen. Its fields have the names that
their project gave them: the usual ones are recognised, others are named by `Parts`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tutelage.data.annotations import Exported, Parts, Statement, Subject
from tutelage.data.export_values import ExportFormat, as_number, asked, has, key_of, moment, said, words
from tutelage.data.json_values import unfold_json
from tutelage.data.readers import Values, a_type
from tutelage.data.records import Messages
from tutelage.data.row_values import Unusable, as_object
from tutelage.data.vote_rows import fold_name, work_status

_PROMPTS = ("prompt", "question", "instruction", "input", "query", "messages", "conversation", "context")
_STEMS = ("response", "completion", "answer", "output", "generation", "reply", "text")
_ENDS = (("1", "2"), ("a", "b"), ("0", "1"), ("left", "right"))
_REASONS = frozenset(("reason", "why", "comment", "explanation", "justification"))
"""Questions whose text is the reason for the other answers of a rater."""
_ANSWERS = re.compile(r"(.+)\.responses")


def _fold(name: str) -> str:
    """A name for comparisons: "response1" for "Response_1"."""
    return re.sub(r"[\W_]", "", fold_name(name))


@dataclass(frozen=True)
class _Answer:
    """The answer of a rater to a question about a record, as the tool has it."""

    id: str
    question: str
    value: object
    rater: str
    time: int = 0
    dropped: str = ""


def _record(key: str, fields: Mapping[str, object], parts: Parts, answers: Iterable[_Answer]) -> Exported:
    """The responses of a record as subjects, and the answers of raters about them."""
    every = list(answers)
    reasons = {each.rater: _reason_of(each.value) for each in every if _fold(each.question) in _REASONS}
    answers = [each for each in every if _fold(each.question) not in _REASONS]
    try:
        names = _response_names(fields, parts)
        subjects = _subjects(key, fields, names, _prompt_of(fields, parts, names))
    except Unusable as problem:
        return Exported(left_out=(str(problem),) * len(answers), without=str(problem))
    statements: list[Statement] = []
    left_out: list[str] = []
    for each in answers:
        try:
            statements.append(_statement(each, subjects, names, parts, reasons.get(each.rater, "")))
        except Unusable as problem:
            left_out.append(str(problem))
    return Exported(subjects, tuple(statements), tuple(left_out))


def _subjects(key: str, fields: Mapping[str, object], names: tuple[str, ...], prompt: Messages) -> tuple[Subject, ...]:
    ids = [key] if len(names) == 1 else [f"{key}/{name}" for name in names]
    return tuple(
        Subject(id_, prompt, said(fields[name]), words(fields, f"model_{end}", "model"))
        for id_, name, end in zip(ids, names, "ab", strict=False)
    )


def _statement(
    answer: _Answer, subjects: tuple[Subject, ...], names: tuple[str, ...], parts: Parts, reason: str
) -> Statement:
    if answer.dropped:
        raise Unusable(answer.dropped)
    corrects = answer.question in parts.corrections
    try:
        value = _text_of(answer.value) if corrects else _value(answer.value, names)
    except Unusable as problem:
        raise Unusable(f"{answer.question}: {problem}") from problem
    if len(names) == 2 and (corrects or isinstance(value, float)):
        raise Unusable(f"{answer.question}: about two responses, and no choice between them")
    about = tuple(subject.id for subject in subjects)
    return Statement(
        answer.id, about, answer.question, value, answer.rater, "human", reason, answer.time, corrects=corrects
    )


def _response_names(fields: Mapping[str, object], parts: Parts) -> tuple[str, ...]:
    """Names of the fields with one or two responses."""
    if parts.responses:
        missing = [name for name in parts.responses if not fields.get(name)]
        if missing:
            raise Unusable(f"there is no {missing[0]}")
        return parts.responses
    folded = {_fold(name): name for name, value in fields.items() if value}
    for stem in _STEMS:
        for one, other in _ENDS:
            if stem + one in folded and stem + other in folded:
                return folded[stem + one], folded[stem + other]
    single = [folded[stem] for stem in _STEMS if stem in folded]
    if len(single) != 1:
        raise Unusable(f"its fields are {', '.join(fields)}: name those of the responses (--responses)")
    return (single[0],)


def _prompt_of(fields: Mapping[str, object], parts: Parts, responses: tuple[str, ...]) -> Messages:
    names = [parts.prompt] if parts.prompt else [name for name in fields if _fold(name) in _PROMPTS]
    names = [name for name in names if fields.get(name) and name not in responses]
    if len(names) != 1:
        raise Unusable(f"its fields are {', '.join(fields)}: name that of the prompt (--prompt)")
    return asked(fields[names[0]])


_SIDES = {"left": "a", "right": "b", "a": "a", "b": "b"}
"""Words for the first and the second response. Numbers are none: they may be ratings."""
_LISTS = ("choices", "text", "taxonomy", "ranker")
_VALUES = ("selected", "rating", "number", *_LISTS)


def _value(value: object, names: tuple[str, ...]) -> float | str:
    """The number or word of an answer; for a choice between two responses a word of `CHOICES`, if it names one."""
    value = unfold_json(value)
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, Mapping):
        keys = [key for key in _VALUES if key in value]
        if len(keys) != 1:
            raise Unusable(f"an answer of an unknown form ({', '.join(map(str, value))})")
        return _value(value[keys[0]], names)
    if isinstance(value, list):
        return _ranked(value, names)
    if len(names) == 2 and isinstance(value, str | int):
        word = _fold(str(value))
        of_names = {_fold(name): side for name, side in zip(names, "ab", strict=True)}
        return of_names.get(word) or _SIDES.get(word) or str(value).strip()
    number = as_number(value)
    if number is not None:
        return number
    if not isinstance(value, str) or not value.strip():
        raise Unusable(f"an answer that is {a_type(value)}")
    return value.strip()


def _ranked(ranking: list[object], names: tuple[str, ...]) -> str:
    """The choice in a ranking of two responses, best first."""
    words = [str(each.get("value", each.get("id", ""))) if isinstance(each, Mapping) else str(each) for each in ranking]
    sides = [side for word in words for name, side in zip(names, "ab", strict=False) if _fold(name) == _fold(word)]
    if len(names) != 2 or len(sides) != 2:
        raise Unusable("a list of answers")
    ranks = [each.get("rank") if isinstance(each, Mapping) else place for place, each in enumerate(ranking)]
    if ranks[0] == ranks[1]:
        return "tie"
    return sides[0] if ranks[0] is None or ranks[1] is None or str(ranks[0]) < str(ranks[1]) else sides[1]


def _text_of(value: object) -> str:
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, Mapping):
        return _text_of(value.get("text"))
    if not isinstance(value, str) or not value.strip():
        raise Unusable(f"a correction that is {a_type(value)}")
    return value


def _reason_of(value: object) -> str:
    """The text of a reason, or its texts in lines; empty if there is none."""
    texts = value.get("text") if isinstance(value, Mapping) else value
    return "\n".join(str(text).strip() for text in (texts if isinstance(texts, list) else [texts]) if text is not None)


def _argilla_record(values: Values, parts: Parts) -> Exported:
    """A record of `Dataset.records.to_json` (responses by question) or of the server's interface (by rater)."""
    key = f"argilla:{key_of(values, '_server_id', 'id')}"
    fields, responses = values.get("fields"), values.get("responses")
    return _record(key, as_object(fields, "fields"), parts, _argilla_answers(key, responses))


def _argilla_answers(key: str, responses: object) -> Iterator[_Answer]:
    if isinstance(responses, Mapping):
        for question, given in responses.items():
            for place, each in enumerate(_objects(given, f"responses.{question}"), 1):
                rater = str(each.get("user_id") or "")
                id_ = f"{key}/{question}/{rater or place}"
                yield _Answer(id_, question, each.get("value"), rater, dropped=_status(each))
        return
    for place, each in enumerate(_objects(responses, "responses"), 1):
        rater = str(each.get("user_id") or "")
        time, problem = _time(each, "updated_at", "inserted_at")
        values, dropped = each.get("values"), _status(each) or problem
        for question, answer in values.items() if isinstance(values, Mapping) else ():
            value = answer.get("value") if isinstance(answer, Mapping) else answer
            yield _Answer(f"{key}/{question}/{rater or place}", question, value, rater, time, dropped)


def _objects(values: object, name: str) -> list[Mapping[str, Any]]:
    """The objects of a list, which may be absent."""
    items = [] if values is None else values
    if not isinstance(items, list) or not all(isinstance(each, Mapping) for each in items):
        raise Unusable(f"{name} is no list of objects")
    return items


def _time(values: Values, *names: str) -> tuple[int, str]:
    """Milliseconds since 1970, and the reason why they are unknown."""
    try:
        return moment(values, *names), ""
    except Unusable as problem:
        return 0, str(problem)


def _status(response: Mapping[str, object]) -> str:
    status = response.get("status")
    return f"a response that is {status}" if status in ("draft", "discarded") else ""


def _argilla_flat(values: Values, parts: Parts) -> Exported:
    key = f"argilla:{key_of(values, '_server_id', 'id')}"
    responses = {}
    for question in (match[1] for column in values if (match := _ANSWERS.fullmatch(column))):
        cells = (values.get(f"{question}.responses{end}") for end in ("", ".users", ".status"))
        given, raters, statuses = (cell if isinstance(cell, list) else [] for cell in cells)
        rows = zip_longest(given, raters[: len(given)], statuses[: len(given)])
        responses[question] = [{"value": value, "user_id": rater, "status": status} for value, rater, status in rows]
    own = ("id", "status", "_server_id")
    fields = {name: values[name] for name in values if "." not in name and name not in own}
    return _record(key, fields, parts, _argilla_answers(key, responses))


def _label_studio_task(values: Values, parts: Parts) -> Exported:
    key, data = f"label-studio:{key_of(values, 'id')}", values.get("data")
    return _record(key, as_object(data, "data"), parts, _label_studio_answers(key, values.get("annotations")))


def _label_studio_answers(key: str, annotations: object) -> Iterator[_Answer]:
    for each in _objects(annotations, "annotations"):
        by = each.get("completed_by")
        rater = words(by, "email", "id") if isinstance(by, Mapping) else str(by or "")
        time, problem = _time(each, "updated_at", "created_at")
        dropped = "an annotation that was cancelled" if each.get("was_cancelled") else problem
        results = _objects(each.get("result"), "result")
        if not results:
            yield _Answer("", "", None, rater, time, dropped or "an annotation without a result")
        for result in results:
            name = str(result.get("from_name") or "")
            yield _Answer(f"{key}/{each.get('id')}/{name}", name, _result_value(result), rater, time, dropped)


def _result_value(result: Mapping[str, Any]) -> object:
    """The value of a result; for the side of a pairwise tag the name of the tag shown there, usually a field's."""
    value, tags = result.get("value"), result.get("to_name")
    tags = tags.split(",") if isinstance(tags, str) else tags
    side = value.get("selected") if isinstance(value, Mapping) else None
    if side in ("left", "right") and isinstance(tags, list) and len(tags) == 2:
        return str(tags[("left", "right").index(side)]).strip()
    return value


_LABEL_STUDIO = ("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement")


def _label_studio_row(values: Values, parts: Parts) -> Exported:
    """A row of JSON_MIN or CSV: data and answers side by side."""
    key, annotation = f"label-studio:{key_of(values, 'id')}", key_of(values, "annotation_id")
    fields = {name: values[name] for name in values if name not in _LABEL_STUDIO and values[name] is not None}
    names = _response_names(fields, parts)
    prompts = [parts.prompt] if parts.prompt else [name for name in fields if _fold(name) in _PROMPTS]
    rater, time = words(values, "annotator"), moment(values, "updated_at", "created_at")
    answers = [
        _Answer(f"{key}/{annotation}/{name}", name, value, rater, time)
        for name, value in fields.items()
        if name not in (*names, *prompts)
    ]
    return _record(key, fields, parts, answers)


def _mechanical_turk_row(values: Values, parts: Parts) -> Exported:
    """An assignment of the results file that a requester downloads."""
    rater, assignment = words(values, "WorkerId"), key_of(values, "AssignmentId")
    key, time = f"mturk:{key_of(values, 'HITId')}", 0
    status = words(values, "AssignmentStatus")
    dropped = f"an assignment that is {status}" if status == "Rejected" else ""
    fields = {name.removeprefix("Input."): values[name] for name in values if name.startswith("Input.")}
    answers = [
        _Answer(f"mturk:{assignment}/{name}", name.removeprefix("Answer."), values[name], rater, time, dropped)
        for name in values
        if name.startswith("Answer.") and values[name] is not None
    ]
    return _record(key, fields, parts, answers)


def _prolific_submission(values: Values, parts: Parts) -> Exported:
    """A line of the submissions of a study: the participant, and what became of the work; empty if it counts."""
    status, counts = work_status(values, "Status")
    return Exported(work=(key_of(values, "Participant id"), "" if counts else status))


LABELLING: tuple[ExportFormat, ...] = (
    ("Argilla records", has("id", "fields", "responses"), _argilla_record),
    ("Argilla records, flattened", lambda values: any(map(_ANSWERS.fullmatch, values)), _argilla_flat),
    ("Label Studio tasks", has("id", "data", "annotations"), _label_studio_task),
    ("Label Studio annotations", has("annotation_id", "annotator", "lead_time"), _label_studio_row),
    ("Mechanical Turk results", has("HITId", "AssignmentId", "WorkerId"), _mechanical_turk_row),
    ("Prolific submissions", has("Submission id", "Participant id", "Status"), _prolific_submission),
)

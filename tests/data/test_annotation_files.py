"""Rows of trackers and labelling tools in the exact shape of their exports, and what is read from them.

`tests/real_tools` compares the shapes with the tools' own client classes.
"""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.annotation_files import Export, read_annotations
from tutelage.data.annotations import Annotation, Parts
from tutelage.data.formats import annotation_formats, load_preferences
from tutelage.data.records import Message, user

Row = dict[str, Any]
WHY = user("Why?")
NOON = 1_767_268_800_000
"""Milliseconds of 2026-01-01T12:00:00Z."""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(name: str, *rows: Row) -> str:
        path = tmp_path / name
        if name.endswith(".csv"):
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        elif name.endswith(".json"):
            path.write_text(json.dumps(list(rows)))
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


def only(export: Export) -> Annotation:
    ((annotation, _),) = export.annotations
    return annotation


def said(export: Export) -> list[tuple[str, str, object, str]]:
    return [(each.role, each.question, each.value, each.rater) for each, _ in export.annotations]


# Langfuse ------------------------------------------------------------------------------------------------------------


def trace(key: str, **more: object) -> Row:
    return {
        "id": key,
        "timestamp": "2026-01-01T11:00:00.000Z",
        "name": "chat",
        "userId": "end-user",
        "sessionId": None,
        "input": {"messages": [{"role": "user", "content": "Why?"}]},
        "output": {"role": "assistant", "content": f"{key}."},
        "metadata": {},
        "tags": [],
        "environment": "default",
        "latency": 0.4,
        **more,
    }


def score(key: str, about: str, **more: object) -> Row:
    return {
        "id": key,
        "traceId": about,
        "observationId": None,
        "name": "helpful",
        "value": 1,
        "stringValue": None,
        "dataType": "NUMERIC",
        "source": "ANNOTATION",
        "comment": "Short.",
        "authorUserId": "anna",
        "configId": None,
        "queueId": None,
        "timestamp": "2026-01-01T11:59:00.000Z",
        "updatedAt": "2026-01-01T12:00:00.000Z",
        **more,
    }


def test_langfuse_scores_are_joined_with_traces(write: Any) -> None:
    annotation = only(read_annotations([write("scores.jsonl", score("s", "t")), write("t.jsonl", trace("t"))], Parts()))
    assert annotation == Annotation(
        "langfuse:s", "rating", "helpful", WHY, ("t.",), ("langfuse:t",), ("",), 1.0, "anna", "human", "Short.", NOON
    )


def test_every_type_of_a_langfuse_score(write: Any) -> None:
    scores = [
        score("n", "t", value=0.5),
        score("b", "t", value=1, stringValue="True", dataType="BOOLEAN"),
        score("c", "t", value=0, stringValue="correct", dataType="CATEGORICAL"),
        score("o", "t", name="output", value=0, stringValue="Better.", dataType="CORRECTION"),
        score("x", "t", value=0, stringValue="A note.", dataType="TEXT"),
        score("e", "t", value=0.1, source="EVAL", authorUserId=None),
    ]
    export = read_annotations([write("t.jsonl", trace("t")), write("s.jsonl", *scores)], Parts())
    assert said(export) == [
        ("rating", "helpful", 0.5, "anna"),
        ("rating", "helpful", 1.0, "anna"),
        ("rating", "helpful", "correct", "anna"),
        ("correction", "output", "Better.", "anna"),
        ("rating", "helpful", 0.1, ""),
    ]
    assert [each.kind for each, _ in export.annotations] == ["human"] * 4 + ["model"]
    assert list(export.ledger.left_out.values()) == [[f"{export.files[1].source} line 5"]]


def test_a_langfuse_trace_with_its_scores(write: Any) -> None:
    whole = trace("t", scores=[score("s", "t"), score("r", "t", value=0)], observations=[])
    export = read_annotations([write("t.jsonl", whole)], Parts())
    assert [value for _, _, value, _ in said(export)] == [1.0, 0.0]


def test_scores_of_the_newer_interface_and_of_bulk_exports(write: Any) -> None:
    newer = score("s", "", value=True, dataType="BOOLEAN", subject={"kind": "trace", "id": "t"})
    del newer["traceId"], newer["observationId"], newer["stringValue"]
    bulk = {"id": "b", "trace_id": "t", "observation_id": None, "name": "helpful", "value": 0.0, "source": "API"}
    bulk |= {"data_type": "NUMERIC", "string_value": None, "updated_at": "2026-01-01 12:00:00.000000", "comment": None}
    files = [write("t.jsonl", trace("t")), write("new.jsonl", newer), write("bulk.jsonl", bulk)]
    export = read_annotations(files, Parts())
    assert [(each.value, each.time) for each, _ in export.annotations] == [(1.0, NOON), (0.0, NOON)]


def test_the_root_observation_is_its_trace(write: Any) -> None:
    root = {"id": "o1", "traceId": "t", "type": "SPAN", "parentObservationId": None, "input": "Why?", "output": "Root."}
    inner = {**root, "id": "o2", "type": "GENERATION", "parentObservationId": "o1", "output": "Inner.", "model": "m"}
    scores = [score("s1", "t"), score("s2", "t", observationId="o2"), score("s3", "t", observationId="o1")]
    export = read_annotations([write("o.jsonl", root, inner), write("s.jsonl", *scores)], Parts())
    assert [each.responses for each, _ in export.annotations] == [("Root.",), ("Inner.",), ("Root.",)]
    assert export.annotations[1][0].models == ("m",)


def test_a_trace_with_several_roots_has_none(write: Any) -> None:
    """As in exports without the column of the parent."""
    rows = [{"id": f"o{n}", "traceId": "t", "type": "SPAN", "input": "Why?", "output": f"{n}."} for n in range(2)]
    scores = [score("s1", "t"), score("s2", "t", observationId="o1")]
    export = read_annotations([write("o.jsonl", *rows), write("s.jsonl", *scores)], Parts())
    assert only(export).responses == ("1.",)
    assert [len(places) for places in export.ledger.left_out.values()] == [1]


def test_a_score_of_a_session_rates_no_response(write: Any) -> None:
    files = [write("t.jsonl", trace("t")), write("s.jsonl", score("s", "", sessionId="x"))]
    assert read_annotations(files, Parts()).ledger.read == 1


# LangSmith -----------------------------------------------------------------------------------------------------------


def run(key: str, **more: object) -> Row:
    return {
        "id": key,
        "name": "chain",
        "run_type": "chain",
        "start_time": "2026-01-01T11:00:00",
        "inputs": {"question": "Why?"},
        "outputs": {"output": f"{key}."},
        "extra": {"metadata": {"ls_model_name": "m"}},
        "trace_id": key,
        **more,
    }


def feedback(key: str, about: str, score: float | None, **more: object) -> Row:
    return {
        "id": key,
        "created_at": "2026-01-01T11:00:00",
        "modified_at": "2026-01-01T12:00:00",
        "run_id": about,
        "trace_id": about,
        "key": "better",
        "score": score,
        "value": None,
        "comment": None,
        "correction": None,
        "feedback_source": {"type": "app", "metadata": None, "user_id": "anna", "user_name": None},
        "comparative_experiment_id": None,
        "feedback_group_id": None,
        "extra": None,
        **more,
    }


def test_langsmith_feedback_of_one_group_is_a_choice(write: Any) -> None:
    pair = [feedback("f1", "r2", 1, feedback_group_id="g"), feedback("f2", "r1", 0, feedback_group_id="g")]
    export = read_annotations([write("f.jsonl", *pair), write("r.jsonl", run("r1"), run("r2"))], Parts())
    annotation = only(export)
    assert (annotation.role, annotation.responses, annotation.value) == ("choice", ("r1.", "r2."), "b")
    assert (annotation.models, annotation.rater, annotation.time) == (("m", "m"), "anna", NOON)


def test_langsmith_feedback_may_be_a_score_and_a_correction(write: Any) -> None:
    both = feedback("f", "r", 0, correction={"output": "Better."})
    export = read_annotations([write("r.jsonl", run("r")), write("f.jsonl", both)], Parts())
    assert said(export) == [("rating", "better", 0.0, "anna"), ("correction", "better", "Better.", "anna")]
    assert len({each.id for each, _ in export.annotations}) == 2


def test_langsmith_scores_values_and_corrections(write: Any) -> None:
    rows = [
        feedback("f1", "r", 1),
        feedback("f2", "r", None, value="correct"),
        feedback("f3", "r", None, correction={"output": "Better."}),
        feedback("f4", "r", 0, correction={"score": 1}, feedback_source={"type": "model"}),
        feedback("f5", "r", 0.5, feedback_source={"type": "auto_eval"}),
        feedback("f6", "r", None),
    ]
    export = read_annotations([write("r.jsonl", run("r")), write("f.jsonl", *rows)], Parts())
    assert [(each.role, each.value, each.kind) for each, _ in export.annotations] == [
        ("rating", 1.0, "human"),
        ("rating", "correct", "human"),
        ("correction", "Better.", "human"),
        ("rating", 1.0, "human"),
        ("rating", 0.5, "model"),
    ]
    assert export.ledger.read == 1


# Phoenix -------------------------------------------------------------------------------------------------------------


def test_phoenix_annotations_are_joined_with_spans(write: Any) -> None:
    span = {"context.span_id": "s", "name": "llm", "attributes.input.value": "Why?", "attributes.output.value": "So."}
    row = {"span_id": "s", "name": "quality", "annotator_kind": "HUMAN", "metadata": {}, "identifier": "", "id": "1"}
    row |= {"result": {"label": "good", "score": 0.9, "explanation": "Clear."}, "source": "APP", "user_id": "anna"}
    annotation = only(read_annotations([write("s.jsonl", span), write("a.jsonl", row)], Parts()))
    assert (annotation.value, annotation.reason, annotation.rater) == (0.9, "Clear.", "anna")


# Argilla -------------------------------------------------------------------------------------------------------------


def record(fields: Row, responses: object) -> Row:
    whole = {"id": "1", "fields": fields, "metadata": {}, "suggestions": {}, "responses": responses, "vectors": {}}
    return whole | {"status": "completed", "_server_id": "abc"}


TWO = {"prompt": "Why?", "response_1": "One.", "response_2": "Two."}


def test_argilla_choices_name_a_field_or_a_side(write: Any) -> None:
    words = ("response_2", "Response 1", "tie", "1", "b", "left", "neither")  # a number may be a rating
    given = {"better": [{"value": word, "user_id": f"u{n}"} for n, word in enumerate(words)]}
    given["reason"] = [{"value": "Longer.", "user_id": "u0"}]
    export = read_annotations([write("r.json", record(TWO, given))], Parts())
    assert [each.value for each, _ in export.annotations] == ["b", "a", "tie", "1", "b", "a", "neither"]
    assert [each.reason for each, _ in export.annotations] == ["Longer."] + [""] * 6
    assert export.annotations[0][0].response_ids == ("argilla:abc/response_1", "argilla:abc/response_2")


def test_argilla_ratings_rankings_and_corrections(write: Any) -> None:
    one = {"instruction": "Why?", "response": "So."}
    given = {"quality": [{"value": 4, "user_id": "u"}], "rewrite": [{"value": "Better.", "user_id": "u"}]}
    export = read_annotations([write("r.json", record(one, given))], Parts(corrections=("rewrite",)))
    assert said(export) == [("rating", "quality", 4.0, "u"), ("correction", "rewrite", "Better.", "u")]
    ranking = {"order": [{"value": ["response_2", "response_1"], "user_id": "u"}]}
    assert only(read_annotations([write("k.json", record(TWO, ranking))], Parts())).value == "b"


def test_argilla_records_as_columns(write: Any) -> None:
    flat = {"id": "1", "status": "completed", "_server_id": "abc", **TWO, "better.suggestion": None}
    flat |= {"better.responses": ["response_1", "response_2", "response_2"]}
    flat |= {
        "better.responses.users": ["u1", "u2", "u3"],
        "better.responses.status": ["submitted", "draft", "discarded"],
    }
    export = read_annotations([write("f.json", flat)], Parts())
    assert said(export) == [("choice", "better", "a", "u1")]
    assert export.ledger.read == 2


def test_argilla_answers_without_raters_are_several(write: Any) -> None:
    one = {"id": "1", "prompt": "Why?", "response": "So.", "quality.responses": [1, 0, 1]}
    given = {"quality": [{"value": 1}, {"value": 0}, {"value": 1}]}
    for row in (one, record({"prompt": "Why?", "response": "So."}, given)):
        annotations = [each for each, _ in read_annotations([write("f.json", row)], Parts()).annotations]
        assert [each.value for each in annotations] == [1.0, 0.0, 1.0]
        assert len({each.id for each in annotations}) == 3


def test_argilla_fields_of_other_names_are_named_with_their_flag(write: Any) -> None:
    fields = {"ask": "Why?", "first": "One.", "second": "Two."}
    given = {"better": [{"value": "second", "user_id": "u"}]}
    path = write("r.json", record(fields, given))
    (reason,) = read_annotations([path], Parts()).ledger.left_out
    assert "ask, first, second" in reason
    assert "--responses" in reason
    assert only(read_annotations([path], Parts("ask", ("first", "second")))).value == "b"


# Label Studio --------------------------------------------------------------------------------------------------------


def task(results: list[Row], **more: object) -> Row:
    annotation = {"id": 7, "completed_by": 3, "result": results, "was_cancelled": False, "lead_time": 4.2}
    annotation |= {"created_at": "2026-01-01T11:00:00Z", "updated_at": "2026-01-01T12:00:00Z"}
    return {
        "id": 1,
        "data": {"prompt": "Why?", "answer1": "One.", "answer2": "Two."},
        "annotations": [annotation | more],
    }


def result(name: str, kind: str, **value: object) -> Row:
    return {"id": "x", "from_name": name, "to_name": "answer1,answer2", "type": kind, "value": value}


def test_label_studio_tasks(write: Any) -> None:
    results = [result("comparison", "pairwise", selected="right"), result("why", "textarea", text=["Clear.", "Short."])]
    annotation = only(read_annotations([write("p.json", task(results))], Parts()))
    assert (annotation.role, annotation.value, annotation.rater, annotation.time) == ("choice", "b", "3", NOON)
    assert (annotation.responses, annotation.reason) == (("One.", "Two."), "Clear.\nShort.")


def test_the_left_of_a_pairwise_tag_is_the_first_that_it_names(write: Any) -> None:
    left = result("comparison", "pairwise", selected="left")
    swapped, unknown = left | {"to_name": "answer2,answer1"}, left | {"to_name": ["txt-1", "txt-2"]}
    export = read_annotations([write("p.json", *(task([each]) for each in (left, swapped, unknown)))], Parts())
    assert [each.value for each, _ in export.annotations] == ["a", "b", "txt-1"]


def test_label_studio_ratings_and_choices_of_one_response(write: Any) -> None:
    results = [result("stars", "rating", rating=4), result("verdict", "choices", choices=["Good"])]
    row = task(results)
    row["data"] = {"question": "Why?", "answer": "One."}
    assert said(read_annotations([write("p.json", row)], Parts())) == [
        ("rating", "stars", 4.0, "3"),
        ("rating", "verdict", "Good", "3"),
    ]


def test_label_studio_work_that_does_not_count(write: Any) -> None:
    cancelled = task([], was_cancelled=True)
    skipped = task([result("comparison", "pairwise", selected="left")], was_cancelled=True)
    export = read_annotations([write("p.json", cancelled, skipped, task([]))], Parts())
    assert export.annotations == ()
    assert export.ledger.read == 3


@pytest.mark.parametrize("name", ["min.json", "rows.csv"])
def test_label_studio_rows(write: Any, name: str) -> None:
    cell: object = [{"selected": "left"}]
    row = {"id": 1, "prompt": "Why?", "answer1": "One.", "answer2": "Two.", "annotator": 3, "annotation_id": 7}
    row |= {"comparison": json.dumps(cell) if name.endswith("csv") else cell, "lead_time": 4.2}
    row |= {"created_at": "2026-01-01T11:00:00Z", "updated_at": "2026-01-01T12:00:00Z"}
    annotation = only(read_annotations([write(name, row)], Parts()))
    assert (annotation.id, annotation.value) == ("label-studio:1/7/comparison", "a")


# Mechanical Turk -----------------------------------------------------------------------------------------------------


def test_mechanical_turk_results(write: Any) -> None:
    row = {"HITId": "h", "AssignmentId": "a1", "WorkerId": "w1", "AssignmentStatus": "Approved", "Input.prompt": "Why?"}
    row |= {
        "Input.response_a": "One.",
        "Input.response_b": "Two.",
        "Answer.better": "response_b",
        "Answer.comment": "Ok",
    }
    rejected = row | {"AssignmentId": "a2", "WorkerId": "w2", "AssignmentStatus": "Rejected"}
    export = read_annotations([write("batch.csv", row, rejected)], Parts())
    annotation = only(export)
    assert (annotation.id, annotation.value, annotation.rater) == ("mturk:a1/Answer.better", "b", "w1")
    assert annotation.reason == "Ok"
    assert export.ledger.read == 1


# All -----------------------------------------------------------------------------------------------------------------


def test_conversations_keep_their_turns(write: Any) -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    row = trace("t", input=talk)
    export = read_annotations([write("t.jsonl", row), write("s.jsonl", score("s", "t"))], Parts())
    assert only(export).messages == (Message("system", "Be brief."), *WHY)


def test_rows_without_a_response_are_listed(write: Any) -> None:
    export = read_annotations([write("t.jsonl", trace("t", output=None), trace("u"))], Parts())
    assert [subject.id for subject in export.subjects] == ["langfuse:u"]
    assert export.without == ("line 1: the output is empty",)


def test_other_loaders_say_which_command_reads_an_export(write: Any) -> None:
    with pytest.raises(TutelageError, match=r"tutelage import.*Label Studio tasks"):
        load_preferences(write("p.json", task([])))


def test_a_trace_beside_its_observations_is_itself(write: Any) -> None:
    root = {"id": "o1", "traceId": "t", "type": "SPAN", "parentObservationId": None, "input": "Why?", "output": "Root."}
    files = [write("t.jsonl", trace("t", observations=[root])), write("s.jsonl", score("s", "t"))]
    assert only(read_annotations(files, Parts())).responses == ("t.",)


@pytest.mark.parametrize("wrong", [{"id": None}, {"updatedAt": "yesterday"}])
def test_a_score_that_is_unusable_costs_a_trace_no_other(write: Any, wrong: Row) -> None:
    row = trace("t", scores=[score("1", "t"), score("2", "t") | wrong, score("3", "t")])
    export = read_annotations([write("t.jsonl", row)], Parts())
    assert [each.id for each, _ in export.annotations] == ["langfuse:1", "langfuse:3"]
    assert [len(places) for places in export.ledger.left_out.values()] == [1]


def test_every_answer_to_a_record_is_counted(write: Any) -> None:
    """Also about a record without responses, and of a rater whose time is none."""
    answers = [{"values": {"better": {"value": "a"}}, "user_id": str(n), "updated_at": None} for n in range(3)]
    (unknown,) = read_annotations([write("1.jsonl", record({"x": "?"}, answers))], Parts()).ledger.left_out.values()
    assert len(unknown) == 3
    answers[1]["updated_at"] = "yesterday"
    export = read_annotations([write("2.jsonl", record(TWO, answers))], Parts())
    assert [each.rater for each, _ in export.annotations] == ["0", "2"]
    assert export.ledger.read == 1
    assert read_annotations([write("3.jsonl", record({"x": "?"}, []))], Parts()).ledger.read == 0


ROWS: dict[str, Row] = {
    "trace": trace("t"),
    "score": score("s", "t"),
    "run": run("r"),
    "feedback": feedback("f", "r", 1),
    "record": {"id": "1", "fields": TWO, "responses": {"better": [{"value": "a", "user_id": "u"}]}},
    "task": task([result("comparison", "pairwise", selected="left")]),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_without_an_id_are_left_out_and_never_taken_for_one(write: Any, name: str) -> None:
    export = read_annotations([write("x.jsonl", *[ROWS[name] | {"id": None}] * 2)], Parts())
    assert (export.annotations, export.subjects) == ((), ())
    assert [len(places) for reason, places in export.ledger.left_out.items() if "id" in reason] == [2]


def _mutations(value: object) -> Iterator[object]:
    """The value with one part of it replaced by something of another type."""
    yield from (None, 3, float("nan"), "x", [3], ["x"], [[]], {"x": 1}, [{"x": [1]}])
    if isinstance(value, dict):
        yield from ({**value, key: other} for key, part in value.items() for other in _mutations(part))
    if isinstance(value, list):
        yield from ([*value[:n], other, *value[n + 1 :]] for n, part in enumerate(value) for other in _mutations(part))


@for_each(ROWS)
def test_every_row_is_read_or_left_out(name: str) -> None:
    """A row of a type that no tool writes is left out with a reason, not with a traceback."""
    form = next(each for each in annotation_formats(Parts()) if each.fits(ROWS[name]))
    count = 0
    for row in _mutations(ROWS[name]):
        if isinstance(row, dict) and row.keys() >= ROWS[name].keys():
            exported = form.parse(row)
            assert all(isinstance(each.value, str) or math.isfinite(each.value) for each in exported.statements)
            count += 1
    assert count > 20


def test_other_files_are_no_exports(write: Any) -> None:
    with pytest.raises(TutelageError, match="Langfuse scores"):
        read_annotations([write("x.jsonl", {"prompt": "Why?", "chosen": "A", "rejected": "B"})], Parts())

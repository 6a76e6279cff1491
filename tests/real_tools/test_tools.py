"""Exports written by the tools' own client classes, imported; and what is exported for them, read by their classes.

make test-tools
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tutelage.data.annotation_files import Export, read_annotations
from tutelage.data.annotations import Parts
from tutelage.people.tool_rows import langfuse_rows, langsmith_rows, openai_rows

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON = int(NOW.timestamp() * 1000)
ASK = [{"role": "user", "content": "Why?"}]


def write(path: Path, *rows: str) -> str:
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return str(path)


def said(export: Export) -> list[tuple[Any, ...]]:
    return [(each.role, each.value, each.rater, each.responses, each.time) for each, _ in export.annotations]


def test_langfuse(tmp_path: Path) -> None:
    pytest.importorskip("langfuse")
    from langfuse.api.commons.types.observation_v2 import ObservationV2
    from langfuse.api.commons.types.score import Score_Boolean, Score_Correction, Score_Numeric
    from langfuse.api.scores.types.score_subject_v3 import ScoreSubjectV3_Trace
    from langfuse.api.scores.types.score_v3 import ScoreV3_Boolean

    observation = ObservationV2(
        id="o", trace_id="t", start_time=NOW, project_id="p", type="GENERATION", input={"messages": ASK}, output="So."
    )
    about = {"trace_id": "t", "name": "good", "source": "ANNOTATION", "timestamp": NOW, "created_at": NOW}
    about |= {"updated_at": NOW, "author_user_id": "anna", "environment": "default"}
    newer = {name: value for name, value in about.items() if name != "trace_id"}
    scores = (
        Score_Numeric(id="1", value=0.25, **about),
        Score_Boolean(id="2", value=1, string_value="True", **about),
        Score_Correction(id="3", value=0, string_value="Better.", **about),
        ScoreV3_Boolean(id="4", project_id="p", value=False, subject=ScoreSubjectV3_Trace(id="t"), **newer),
    )
    files = [write(tmp_path / "o.jsonl", observation.json())]
    files += [write(tmp_path / f"s{n}.jsonl", each.json()) for n, each in enumerate(scores)]
    values = [("rating", 0.25), ("rating", 1.0), ("correction", "Better."), ("rating", 0.0)]
    assert said(read_annotations(files, Parts())) == [(*each, "anna", ("So.",), NOON) for each in values]


def test_langsmith(tmp_path: Path) -> None:
    pytest.importorskip("langsmith")
    from langsmith.schemas import Feedback, FeedbackSourceBase, Run

    ids, group = [uuid4(), uuid4()], uuid4()
    runs = [
        Run(id=key, name="chat", start_time=NOW, run_type="llm", inputs={"messages": ASK}, outputs={"output": f"{n}."},
            trace_id=key, extra={"metadata": {"ls_model_name": "m"}})
        for n, key in enumerate(ids)
    ]  # fmt: skip
    source = FeedbackSourceBase(type="app", user_id="anna")
    feedback = [
        Feedback(id=uuid4(), created_at=NOW, modified_at=NOW, run_id=key, trace_id=key, key="better", score=n,
                 feedback_source=source, feedback_group_id=group)
        for n, key in enumerate(ids)
    ]  # fmt: skip
    files = [
        write(tmp_path / "runs.jsonl", *(run.model_dump_json() for run in runs)),
        write(tmp_path / "feedback.jsonl", *(each.model_dump_json() for each in feedback)),
    ]
    ((role, value, rater, responses, time),) = said(read_annotations(files, Parts()))
    assert (role, rater, time) == ("choice", "anna", NOON)
    assert responses["ab".index(value)] == "1."


def test_argilla(tmp_path: Path) -> None:
    pytest.importorskip("argilla")
    from argilla import Record, Response
    from argilla.records._io import GenericIO, JsonIO

    rater = uuid4()
    fields = {"prompt": "Why?", "response_1": "One.", "response_2": "Two."}
    records = [Record(id="x", fields=fields, responses=[Response("better", "response_2", user_id=rater)])]
    path = JsonIO.to_json(records, tmp_path / "records.json")
    flat = write(tmp_path / "flat.jsonl", *map(json.dumps, GenericIO.to_list(records, flatten=True)))
    expected = [("choice", "b", str(rater), ("One.", "Two."), 0)]
    assert said(read_annotations([str(path)], Parts())) == expected
    assert said(read_annotations([flat], Parts())) == expected


@pytest.mark.parametrize("form", ["JSON", "JSON_MIN", "CSV"])
def test_label_studio(tmp_path: Path, form: str) -> None:
    pytest.importorskip("label_studio_sdk")
    from label_studio_sdk.converter import Converter

    config = """<View><Text name="p" value="$prompt"/><Text name="answer1" value="$answer1"/>
    <Text name="answer2" value="$answer2"/><Pairwise name="better" toName="answer1,answer2"/></View>"""
    result = {"id": "r", "from_name": "better", "to_name": "answer1,answer2", "type": "pairwise"}
    annotation = {"id": 7, "completed_by": 3, "result": [result | {"value": {"selected": "right"}}]}
    annotation |= {"was_cancelled": False, "lead_time": 4.2}
    annotation |= {"created_at": NOW.isoformat(), "updated_at": NOW.isoformat()}
    data = {"prompt": "Why?", "answer1": "One.", "answer2": "Two."}
    source = tmp_path / "tasks.json"
    source.write_text(json.dumps([{"id": 1, "data": data, "annotations": [annotation]}]))
    Converter(config, str(tmp_path)).convert(str(source), str(tmp_path / "out"), form, is_dir=False)
    (path,) = (tmp_path / "out").iterdir()
    assert said(read_annotations([str(path)], Parts())) == [("choice", "b", "3", ("One.", "Two."), NOON)]


# Back ----------------------------------------------------------------------------------------------------------------


def judged(*keys: str) -> list[Any]:
    """A preference of a study between two responses with these ids."""
    from types import SimpleNamespace

    from tutelage.data.records import CompletionRecord, Preference, user

    completions = [CompletionRecord(key, "p", text, "m") for key, text in zip(keys, ("So.", "No."), strict=True)]
    question = SimpleNamespace(completions=completions)
    label = SimpleNamespace(counts={"a": 2, "b": 1})
    pair = Preference(user("Why?"), "So.", "No.", 0.75)
    return [SimpleNamespace(preference=pair, question=question, label=label, chosen=0, rejected=1)]


def test_scores_for_langfuse() -> None:
    pytest.importorskip("langfuse")
    from langfuse.api.core.pydantic_utilities import parse_obj_as
    from langfuse.api.scores.types.create_score_request import CreateScoreRequest

    rows = langfuse_rows(judged("langfuse:t", "langfuse:u/o"), "study")
    requests = [parse_obj_as(CreateScoreRequest, row) for row in rows]
    assert [(each.trace_id, each.observation_id, each.value) for each in requests] == [
        ("t", None, 0.75),
        ("u", "o", 0.25),
    ]


def test_feedback_for_langsmith() -> None:
    pytest.importorskip("langsmith")
    from langsmith.schemas import FeedbackCreate

    keys = [uuid4(), uuid4()]
    rows = langsmith_rows(judged(*(f"langsmith:{key}" for key in keys)), "study")
    created = [FeedbackCreate(**row, trace_id=UUID(int=0)) for row in rows]
    assert [(each.run_id, each.score) for each in created] == [(keys[0], 0.75), (keys[1], 0.25)]
    assert len({each.feedback_group_id for each in created}) == 1


def test_preferences_for_openai() -> None:
    pytest.importorskip("openai")
    from openai.types.chat import ChatCompletionMessageParam
    from pydantic import TypeAdapter

    (row,) = openai_rows(judged("x", "y"), "study")
    messages = TypeAdapter(list[ChatCompletionMessageParam])
    assert isinstance(row["input"], dict)
    for value in (row["input"]["messages"], row["preferred_output"], row["non_preferred_output"]):
        messages.validate_python(value, strict=True)


def test_opik(tmp_path: Path) -> None:
    pytest.importorskip("opik")
    from opik.rest_api.types.feedback_score_public import FeedbackScorePublic
    from opik.rest_api.types.trace_public import TracePublic
    from opik.rest_api.types.value_entry_public import ValueEntryPublic

    by = {"anna": ValueEntryPublic(value=1.0, source="ui", last_updated_at=NOW, reason="kind")}
    scores = [
        FeedbackScorePublic(name="helpful", value=1.0, source="ui", last_updated_at=NOW, value_by_author=by),
        FeedbackScorePublic(name="moderation", value=0.0, source="online_scoring", last_updated_at=NOW),
    ]
    trace = TracePublic(
        id="t", project_id="p", start_time=NOW, last_updated_at=NOW, input={"messages": ASK}, output={"output": "So."},
        feedback_scores=scores,
    )  # fmt: skip
    files = [write(tmp_path / "t.jsonl", trace.model_dump_json())]
    export = read_annotations(files, Parts())
    assert said(export) == [("rating", 1.0, "anna", ("So.",), NOON), ("rating", 0.0, "", ("So.",), NOON)]
    assert [each.kind for each, _ in export.annotations] == ["human", "model"]


def test_braintrust(tmp_path: Path) -> None:
    """The columns are those that the client declares."""
    pytest.importorskip("braintrust")
    from braintrust._generated_types import ProjectLogsEvent

    row: dict[str, Any] = {"id": "a", "input": ASK, "output": "So.", "expected": {"quality": "good"}}
    row |= {"scores": {"Factuality": 0.5}, "metadata": {"model": "m"}, "project_id": "p", "log_id": "g"}
    row |= {"span_id": "s", "root_span_id": "s", "_xact_id": "1", "created": NOW.isoformat()}
    assert row.keys() <= ProjectLogsEvent.__annotations__.keys()
    export = read_annotations([write(tmp_path / "log.jsonl", json.dumps(row))], Parts())
    assert said(export) == [("rating", 0.5, "", ("So.",), 0), ("rating", "good", "", ("So.",), 0)]
    assert [each.kind for each, _ in export.annotations] == ["unknown", "human"]


@pytest.mark.parametrize("ending", ["eval", "json"])
def test_inspect(tmp_path: Path, ending: str) -> None:
    """A log as Inspect writes it, Zstandard and references to long texts included, with an edit by a person."""
    pytest.importorskip("inspect_ai")
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalSample,
        EvalSpec,
        ProvenanceData,
        edit_score,
        read_eval_log,
        write_eval_log,
    )
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
    from inspect_ai.scorer import Score, ScoreEdit

    long = "So. " * 400
    samples = [
        EvalSample(
            id=number, epoch=1, input="Why?", target="So.", output=ModelOutput.from_content("m", long),
            messages=[ChatMessageUser(content="Why?"), ChatMessageAssistant(content=long)],
            scores={"match": Score(value="C", answer="So.")},
        )
        for number in (1, 2)
    ]  # fmt: skip
    spec = EvalSpec(
        created=NOW.isoformat(), task="why", dataset=EvalDataset(), model="m", config=EvalConfig(), eval_id="E"
    )
    log = EvalLog(eval=spec, status="success", samples=samples)
    by = ProvenanceData(author="anna", timestamp=NOW, reason="read it")
    edit_score(log, 2, "match", ScoreEdit(value="I", provenance=by), recompute_metrics=False)
    path = str(tmp_path / f"log.{ending}")
    write_eval_log(log, path)
    assert len(read_eval_log(path).samples or []) == 2
    export = read_annotations([path], Parts())
    assert said(export) == [("rating", 1.0, "", (long,), 0), ("rating", 0.0, "anna", (long,), NOON)]
    assert [each.kind for each, _ in export.annotations] == ["model", "human"]

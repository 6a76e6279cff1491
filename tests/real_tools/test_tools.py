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

    from tutelage.data.records import Preference, user

    question = SimpleNamespace(completions=[SimpleNamespace(id=key) for key in keys])
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

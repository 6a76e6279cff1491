"""Rows of evaluation tools in the exact shape of their exports, and what is read from them.

`tests/real_tools` compares the shapes with the tools' own client classes.
"""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.annotation_files import Export, read_annotations
from tutelage.data.annotations import Ledger, Parts, Reading, derive
from tutelage.data.records import Message, user

Row = dict[str, Any]
NOON = 1_767_268_800_000
"""Milliseconds of 2026-01-01T12:00:00Z."""


def write(path: Path, *rows: Mapping[str, object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def said(export: Export) -> list[tuple[str, str, object, str, str]]:
    return [(each.id, each.question, each.value, each.rater, each.kind) for each, _ in export.annotations]


def fates(export: Export, **reading: Any) -> dict[str, int]:
    """What became of the annotations, by what they became or by the reason why they are left out."""
    ledger = Ledger()
    derive(export.annotations, Reading(**reading), ledger)
    return {name: len(places) for name, places in (*ledger.became.items(), *ledger.left_out.items())}


# Opik ----------------------------------------------------------------------------------------------------------------


def opik(key: str, *scores: Row, **more: object) -> Row:
    return {
        "id": key,
        "project_id": "0190babc-62a0-71d2-832a-0feffa4676eb",
        "name": "chat",
        "start_time": "2026-01-01T11:00:00Z",
        "end_time": "2026-01-01T11:00:01Z",
        "input": {"messages": [{"role": "user", "content": "Why?"}]},
        "output": {"output": f"{key}."},
        "metadata": {},
        "tags": None,
        "created_at": "2026-01-01T11:00:02Z",
        "last_updated_at": "2026-01-01T11:00:02Z",
        "feedback_scores": list(scores) or None,
        "span_count": 1,
        **more,
    }


def opik_score(name: str, value: float, source: str = "ui", **more: object) -> Row:
    times = {"created_at": "2026-01-01T11:30:00Z", "last_updated_at": "2026-01-01T12:00:00Z"}
    row = {"name": name, "category_name": None, "value": value, "reason": "because", "source": source}
    return row | times | {"created_by": "anna", "last_updated_by": "anna", "value_by_author": None, **more}


def test_opik_traces_have_a_score_of_each_author(tmp_path: Path) -> None:
    by = {name: opik_score("helpful", value) for name, value in (("anna", 1.0), ("bert", 0.0))}
    rows = [
        opik("t1", opik_score("helpful", 0.5, value_by_author=by)),
        opik("t2", opik_score("helpful", 0.7, "online_scoring"), opik_score("toxic", 0.1, "sdk")),
        opik("t3"),
    ]
    export = read_annotations([write(tmp_path / "traces.jsonl", *rows)], Parts())
    assert export.files[0].format == "Opik traces"
    assert said(export) == [
        ("opik:t1/helpful/anna", "helpful", 1.0, "anna", "human"),
        ("opik:t1/helpful/bert", "helpful", 0.0, "bert", "human"),
        ("opik:t2/helpful/anna", "helpful", 0.7, "anna", "model"),
        ("opik:t2/toxic/anna", "toxic", 0.1, "anna", "unknown"),
    ]
    first = export.annotations[0][0]
    assert (first.messages, first.responses, first.reason, first.time) == (user("Why?"), ("t1.",), "because", NOON)
    assert [subject.id for subject in export.subjects] == ["opik:t1", "opik:t2", "opik:t3"]
    assert list(fates(export).values()) == [2, 1, 1]
    assert fates(export, models=True, questions=("helpful",)) == {
        "rating": 3,
        "of a question that --question does not name": 1,
    }


# Braintrust ----------------------------------------------------------------------------------------------------------


def braintrust(key: str, **more: object) -> Row:
    return {
        "id": key,
        "span_id": f"s{key}",
        "root_span_id": f"s{key}",
        "_xact_id": "1000193300000000000",
        "created": "2026-01-01T12:00:00.000Z",
        "project_id": "p",
        "log_id": "g",
        "input": [{"role": "user", "content": "Why?"}],
        "output": f"{key}.",
        "expected": None,
        "scores": None,
        "metadata": {"model": "gpt"},
        "tags": None,
        "metrics": {"tokens": 3},
        "span_attributes": {"name": "chat", "type": "llm"},
        "is_root": True,
        **more,
    }


def test_braintrust_rows_have_scores_and_reviews(tmp_path: Path) -> None:
    rows = [
        braintrust("a", scores={"Factuality": 0.6, "helpful": None}),
        braintrust("b", expected={"quality": "good", "tone": 1}),
        braintrust("c", expected="Better.", scores={"Factuality": [1]}),
    ]
    export = read_annotations([write(tmp_path / "log.jsonl", *rows)], Parts(corrections=("expected",)))
    assert export.files[0].format == "Braintrust rows"
    assert said(export) == [
        ("braintrust:a/Factuality", "Factuality", 0.6, "", "unknown"),
        ("braintrust:b/expected/quality", "quality", "good", "", "human"),
        ("braintrust:b/expected/tone", "tone", 1.0, "", "human"),
        ("braintrust:c/expected", "expected", "Better.", "", "human"),
    ]
    assert [len(places) for places in export.ledger.left_out.values()] == [1]
    assert export.subjects[0].model == "gpt"
    assert export.annotations[3][0].role == "correction"
    plain = read_annotations([write(tmp_path / "log.jsonl", *rows)], Parts())
    assert len(plain.annotations) == 3  # an expected text is a reference, unless it is said to be a correction


def test_braintrust_tables_have_objects_as_text(tmp_path: Path) -> None:
    row = braintrust("a", scores={"helpful": 1}, expected={"quality": "bad"})
    cells = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
    export = read_annotations([write(tmp_path / "log.jsonl", cells)], Parts())
    assert [(question, value) for _, question, value, *_ in said(export)] == [("helpful", 1.0), ("quality", "bad")]
    assert export.subjects[0].messages == user("Why?")


# Inspect -------------------------------------------------------------------------------------------------------------


def sample(key: int | str, epoch: int = 1, **more: object) -> Row:
    answer = {"role": "assistant", "content": "Because.", "source": "generate", "model": "m"}
    return {
        "id": key,
        "epoch": epoch,
        "input": "Why?",
        "choices": None,
        "target": "Because",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}, answer],
        "output": {"model": "m", "choices": [{"message": answer, "stop_reason": "stop"}], "completion": "Because."},
        "scores": {
            "match": {"value": "C", "answer": "Because", "explanation": "equal", "metadata": None, "history": []}
        },
        "metadata": {},
        "store": {},
        **more,
    }


def edited(value: str, author: str, time: str = "2026-01-01T12:00:00+00:00") -> Row:
    provenance = {"timestamp": time, "author": author, "reason": "read it", "metadata": {}}
    first = {"value": "C", "answer": "UNCHANGED", "explanation": "UNCHANGED", "provenance": None}
    history = [first, {"value": value, "answer": "UNCHANGED", "explanation": "UNCHANGED", "provenance": provenance}]
    return {"value": value, "answer": "Because", "explanation": None, "metadata": None, "history": history}


def log(*samples: Row) -> Row:
    run = {"eval_id": "E", "run_id": "R", "task": "why", "model": "m", "created": "2026-01-01T11:00:00+00:00"}
    return {"version": 2, "status": "success", "eval": run, "samples": list(samples)}


def test_inspect_samples_have_scores_of_scorers_and_edits_of_people(tmp_path: Path) -> None:
    scores = {"match": edited("I", "anna"), "parts": {"value": {"tone": 0.5, "length": 7, "list": [1]}, "history": []}}
    rows = [sample(1), sample(1, 2, scores=scores), sample("x", uuid="U", scores=None)]
    (tmp_path / "log.json").write_text(json.dumps(log(*rows)))
    export = read_annotations([str(tmp_path / "log.json")], Parts())
    assert export.files[0].format == "Inspect samples"
    assert said(export) == [
        ("inspect:E/1/1/match", "match", 1.0, "", "model"),
        ("inspect:E/1/2/match", "match", 0.0, "anna", "human"),
        ("inspect:E/1/2/parts/tone", "parts/tone", 0.5, "", "model"),
        ("inspect:E/1/2/parts/length", "parts/length", 7.0, "", "model"),
    ]
    assert [len(places) for places in export.ledger.left_out.values()] == [1]
    edit = export.annotations[1][0]
    assert (edit.reason, edit.time) == ("read it", NOON)
    assert edit.messages == (Message("system", "Be brief."), Message("user", "Why?"))
    assert [(subject.id, subject.response, subject.model) for subject in export.subjects] == [
        ("inspect:E/1/1", "Because.", "m"), ("inspect:E/1/2", "Because.", "m"), ("inspect:U", "Because.", "m"),
    ]  # fmt: skip


def test_an_archive_of_inspect_is_the_same_log(tmp_path: Path) -> None:
    rows = [sample(1), sample(2, scores={"match": edited("I", "anna")})]
    whole = log(*rows)
    (tmp_path / "log.json").write_text(json.dumps(whole))
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "eval": whole["eval"]}))
        archive.writestr("_journal/start.json", "{}")
        for row in rows:
            archive.writestr(f"samples/{row['id']}_epoch_1.json", json.dumps(row))
    exports = [read_annotations([str(tmp_path / name)], Parts()) for name in ("log.json", "log.eval")]
    assert exports[0].annotations == exports[1].annotations
    assert exports[0].subjects == exports[1].subjects


@for_each([b"PK\x03\x04", b"", b"{}"])
def test_a_damaged_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(content)
    with pytest.raises(TutelageError, match=r"log\.eval"):
        read_annotations([str(tmp_path / "log.eval")], Parts())


def test_a_log_without_samples_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps(log()))
    with pytest.raises(TutelageError, match="without samples"):
        read_annotations([str(tmp_path / "log.json")], Parts())


def test_a_score_of_inspect_that_is_no_object_is_left_out_by_name(tmp_path: Path) -> None:
    scores = {"plain": "C", "number": 1.0, "none": None, "list": ["C"], "match": {"value": "C", "history": 3}}
    odd = sample(1, scores=scores) | {"output": {"completion": "Five.", "choices": {}}}
    (tmp_path / "log.json").write_text(json.dumps(log(odd)))
    export = read_annotations([str(tmp_path / "log.json")], Parts())
    assert [name for _, name, *_ in said(export)] == ["match"]
    left_out = export.ledger.left_out
    assert {reason.partition(":")[0] for reason in left_out} == {"plain", "number", "none", "list"}
    assert all("not an object" in reason for reason in left_out)

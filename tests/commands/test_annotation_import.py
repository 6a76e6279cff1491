"""`tutelage import`, again and again, and what other commands make of its folder."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.commands.annotation_import import ImportSettings, main
from tutelage.commands.line import main as tutelage
from tutelage.data.formats import load_demonstrations, load_preferences, load_unpaired

Row = dict[str, Any]


def feedback(number: int, score: float, group: str = "", **more: object) -> Row:
    row = {"id": f"f{number}", "run_id": f"r{number}", "key": "better", "score": score, "comment": None}
    row |= {"modified_at": "2026-01-01T12:00:00", "feedback_group_id": group or None}
    return row | {"feedback_source": {"type": "app", "user_id": "anna@example.org"}, "correction": None, **more}


def run(number: int) -> Row:
    question = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Mail ada@example.org?"}]
    return {
        "id": f"r{number}",
        "run_type": "llm",
        "inputs": {"messages": question},
        "outputs": {"output": f"{number}."},
    }


def write(path: Path, *rows: Row) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def runs(tmp_path: Path) -> str:
    return write(tmp_path / "runs.jsonl", *map(run, range(4)))


def imported(out: Path, *files: str, **settings: Any) -> dict[str, bytes]:
    """Import, and the contents of the folder."""
    assert main(ImportSettings(files=files, out=out, **settings)) == 0
    return {file.name: file.read_bytes() for file in out.iterdir()}


def test_importing_again_changes_nothing(runs: str, tmp_path: Path) -> None:
    scores = write(tmp_path / "scores.jsonl", feedback(0, 1, "g"), feedback(1, 0, "g"))
    once = imported(tmp_path / "out", runs, scores)
    assert imported(tmp_path / "out", runs, scores) == once
    assert imported(tmp_path / "out", scores) == once  # the runs of the first import are known


def test_texts_with_line_separators_are_imported_again(tmp_path: Path) -> None:
    strange = run(0) | {"inputs": {"question": "One\u2028two\x85three\x0cfour\r\nfive"}}
    files = write(tmp_path / "runs.jsonl", strange), write(tmp_path / "scores.jsonl", feedback(0, 1))
    once = imported(tmp_path / "out", *files)
    assert imported(tmp_path / "out", *files) == once


def test_parts_of_an_export_are_the_whole_in_any_order(runs: str, tmp_path: Path) -> None:
    one, other = feedback(0, 1), feedback(1, 0, feedback_source={"type": "app", "user_id": "bert"})
    first, second = write(tmp_path / "1.jsonl", one), write(tmp_path / "2.jsonl", other)
    imported(tmp_path / "parts", runs, first)
    imported(tmp_path / "parts", second)
    imported(tmp_path / "whole", runs, write(tmp_path / "all.jsonl", one, other))
    for name in ("annotations", "unpaired", "preferences"):
        assert rows(tmp_path / "parts" / f"{name}.jsonl") == rows(tmp_path / "whole" / f"{name}.jsonl")


def langfuse_score(key: str, value: int, observation: str = "") -> Row:
    row = {"id": key, "name": "good", "value": value, "dataType": "BOOLEAN", "traceId": "t"}
    return row | {"observationId": observation or None}


@pytest.mark.parametrize("traces_first", [True, False])
def test_a_trace_and_its_root_observation_are_two_in_any_order(tmp_path: Path, traces_first: bool) -> None:
    root = {"id": "o", "traceId": "t", "parentObservationId": None, "input": "Why?", "output": "Root."}
    files = [
        write(tmp_path / "traces.jsonl", {"id": "t", "projectId": "p", "input": "Why?", "output": "Trace."}),
        write(tmp_path / "observations.jsonl", root),
        write(tmp_path / "scores.jsonl", langfuse_score("1", 1), langfuse_score("2", 0, "o")),
    ]
    for file in files if traces_first else files[1::-1] + files[2:]:
        imported(tmp_path / "out", file)
    completions = {row["id"]: row["text"] for row in rows(tmp_path / "out" / "completions.jsonl")}
    assert completions == {"langfuse:t": "Trace.", "langfuse:t/o": "Root."}
    ratings = {row["completion"]: row["choice"] for row in rows(tmp_path / "out" / "ratings.jsonl")}
    assert ratings == {"Trace.": 1.0, "Root.": 0.0}


def test_a_root_observation_is_meant_by_both_ids_in_later_imports(tmp_path: Path) -> None:
    root = {"id": "o", "traceId": "t", "parentObservationId": None, "input": "Why?", "output": "Root."}
    imported(tmp_path / "out", write(tmp_path / "observations.jsonl", root))
    imported(tmp_path / "out", write(tmp_path / "1.jsonl", langfuse_score("1", 1)))
    imported(tmp_path / "out", write(tmp_path / "2.jsonl", langfuse_score("2", 0, "o")))
    assert [row["completion"] for row in rows(tmp_path / "out" / "ratings.jsonl")] == ["Root.", "Root."]


def test_a_later_edit_counts_and_an_earlier_one_does_not(runs: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    imported(out, runs, write(tmp_path / "1.jsonl", feedback(0, 1)))
    imported(out, write(tmp_path / "2.jsonl", feedback(0, 0, modified_at="2026-01-02T12:00:00")))
    assert [label.label for label in load_unpaired(out / "unpaired.jsonl").records] == [False]
    imported(out, write(tmp_path / "3.jsonl", feedback(0, 1, modified_at="2026-01-01T13:00:00")))
    assert [label.label for label in load_unpaired(out / "unpaired.jsonl").records] == [False]
    assert [row["where"] for row in rows(out / "left_out.jsonl")] == ["line 1"]


def test_people_are_numbered_alike_in_every_import(runs: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bert = {"type": "app", "user_id": "bert"}
    imported(out, runs, write(tmp_path / "1.jsonl", feedback(0, 1), feedback(1, 1, feedback_source=bert)))
    files = imported(out, write(tmp_path / "2.jsonl", feedback(2, 1, feedback_source=bert), feedback(3, 1)))
    assert [row["rater"] for row in rows(out / "annotations.jsonl")] == ["rater-1", "rater-2", "rater-2", "rater-1"]
    assert not any(b"anna" in content or b"bert" in content for content in files.values())


def record(*answers: Row) -> Row:
    fields = {"prompt": "Why?", "response": "So."}
    return {"id": "1", "_server_id": "abc", "fields": fields, "responses": {"quality": list(answers)}}


def test_ids_of_annotations_tell_no_ids_of_people(tmp_path: Path) -> None:
    """Argilla has none, so that they are those of the records and the raters."""
    out = tmp_path / "out"
    anna, bert = {"user_id": "anna", "value": 1}, {"user_id": "bert", "value": 0}
    once = imported(out, write(tmp_path / "records.jsonl", record(anna, bert)))
    assert not any(b"anna" in content or b"bert" in content for content in once.values())
    imported(out, write(tmp_path / "records.jsonl", record(bert, anna)))
    assert {row["rater"]: row["choice"] for row in rows(out / "ratings.jsonl")} == {"rater-1": 1.0, "rater-2": 0.0}


def test_ids_of_people_on_request(runs: str, tmp_path: Path) -> None:
    out, scores = tmp_path / "out", write(tmp_path / "1.jsonl", feedback(0, 1))
    imported(out, runs, scores, names=True)
    assert [row["rater"] for row in rows(out / "ratings.jsonl")] == ["anna@example.org"]
    with pytest.raises(TutelageError, match="--names"):
        imported(out, runs, scores)


def test_personal_data_are_replaced_before_anything_is_stored(runs: str, tmp_path: Path) -> None:
    scores = write(
        tmp_path / "1.jsonl",
        feedback(0, 1, comment="Ask ada@example.org."),
        feedback(1, 0, correction={"output": "Write to ada@example.org."}),
    )
    files = imported(tmp_path / "out", runs, scores, redact=True)
    assert not any(b"ada@" in content for content in files.values())
    assert load_demonstrations(tmp_path / "out" / "demonstrations.jsonl").records[0].response == "Write to [email]."
    with pytest.raises(TutelageError, match="--redact"):
        imported(tmp_path / "out", runs, scores)


def test_an_export_without_times_is_no_earlier_edit(tmp_path: Path) -> None:
    """Argilla's interface has times, its client's files have none."""
    dated = record() | {
        "responses": [{"user_id": "u", "values": {"quality": {"value": 1}}, "updated_at": "2026-01-01"}]
    }
    imported(tmp_path / "out", write(tmp_path / "1.jsonl", dated))
    changed = imported(tmp_path / "out", write(tmp_path / "2.jsonl", record({"user_id": "u", "value": 0})))
    assert [(row["choice"], row["time"][:4]) for row in rows(tmp_path / "out" / "ratings.jsonl")] == [(0.0, "2026")]
    assert imported(tmp_path / "out", str(tmp_path / "2.jsonl")) == changed


def test_texts_that_are_no_corrections_are_redacted_too(tmp_path: Path) -> None:
    texts = [{"user_id": str(n), "value": text} for n, text in enumerate(("Ask ada@example.org.", "ada@example.org"))]
    files = imported(tmp_path / "out", write(tmp_path / "r.jsonl", record(*texts)), redact=True)
    assert not any(b"ada@" in content for content in files.values())
    imported(tmp_path / "good", str(tmp_path / "r.jsonl"), redact=True, good=("ada@example.org",))
    assert [row["choice"] for row in rows(tmp_path / "good" / "ratings.jsonl")] == [0.0, 1.0]


def test_every_annotation_is_accounted_for(runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = feedback(0, 1, "g"), feedback(1, 0, "g")
    other = feedback(9, 1), feedback(2, 1, feedback_source={"type": "model"})
    imported(tmp_path / "out", runs, write(tmp_path / "scores.jsonl", *pair, *other))
    told = capsys.readouterr().out
    assert "4 annotations read: 1 vote, 2 left out" in told
    assert {row["where"].rpartition("/")[2] for row in rows(tmp_path / "out" / "left_out.jsonl")} == {
        "scores.jsonl line 3",
        "scores.jsonl line 4",
    }


def test_many_reasons_are_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [{"user_id": str(n), "value": f"{n} notes " * 100} for n in range(50)]
    imported(tmp_path / "out", write(tmp_path / "r.jsonl", record(*texts)))
    told = capsys.readouterr().out
    assert len(told) < 10_000
    counts = re.findall(r"left out (\d+):", told)
    assert sum(map(int, counts)) == len(rows(tmp_path / "out" / "left_out.jsonl")) == 50


def test_an_annotation_that_is_given_twice_counts_once(runs: str, tmp_path: Path) -> None:
    edit = feedback(0, 0, modified_at="2026-01-02T12:00:00")
    imported(tmp_path / "out", runs, write(tmp_path / "1.jsonl", feedback(0, 1), edit, feedback(0, 1)))
    assert [row["choice"] for row in rows(tmp_path / "out" / "ratings.jsonl")] == [0.0]
    assert {row["where"][-6:] for row in rows(tmp_path / "out" / "left_out.jsonl")} == {"line 1", "line 3"}


def test_files_that_follow_from_nothing_are_removed(runs: str, tmp_path: Path) -> None:
    out, scores = tmp_path / "out", write(tmp_path / "1.jsonl", feedback(0, 1))
    assert "unpaired.jsonl" in imported(out, runs, scores)
    later = write(tmp_path / "2.jsonl", feedback(0, 0.3, modified_at="2026-01-03T12:00:00"))
    assert "unpaired.jsonl" not in imported(out, later)


def test_other_folders_are_left_alone(runs: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(TutelageError, match="--out"):
        imported(tmp_path / "out", runs)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "import.json").write_text("{}")
    (tmp_path / "old" / "annotations.jsonl").touch()
    with pytest.raises(TutelageError, match="old"):
        imported(tmp_path / "old", runs)


def test_nothing_is_written_if_nothing_can_be_used(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="line 1"):
        imported(tmp_path / "out", write(tmp_path / "runs.jsonl", run(0) | {"outputs": None}))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("choice", "offends"), [("1", "--choice 1"), ("1=better", "--choice 1=better")])
def test_meanings_of_words(choice: str, offends: str) -> None:
    with pytest.raises(TutelageError, match=offends):
        ImportSettings(files=("x",), out=Path("y"), choice=(choice,))


def test_a_study_takes_the_votes_and_the_questions(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    scores = write(tmp_path / "scores.jsonl", feedback(0, 1, "g"), feedback(1, 0, "g"))
    assert tutelage(["import", runs, scores, "--out", str(out)]) == 0
    assert tutelage(["collect", "init", str(tmp_path / "asked"), "--from-sample", str(out)]) == 0
    assert "1 new question" in capsys.readouterr().out
    assert tutelage(["collect", "import", str(tmp_path / "voted"), str(out / "votes.jsonl")]) == 0
    assert tutelage(["collect", "export", str(tmp_path / "voted"), "--out", str(tmp_path / "exported")]) == 0
    ours, theirs = (
        load_preferences(folder / "preferences.jsonl").records[0] for folder in (out, tmp_path / "exported")
    )
    assert (ours.messages, ours.chosen, ours.rejected) == (theirs.messages, theirs.chosen, theirs.rejected)
    assert [message.role for message in ours.messages] == ["system", "user"]


def submission(name: str, status: str) -> Row:
    row = {"Submission id": f"s-{name}", "Participant id": name, "Status": status, "Started at": "2026-01-01T11:00:00"}
    return row | {"Completed at": "2026-01-01T12:00:00", "Time taken": 60, "Completion code": "C", "Age": "31"}


def by(name: str, key: int, score: float) -> Row:
    return feedback(0, score, id=f"f{key}", feedback_source={"type": "app", "user_id": name})


@pytest.mark.parametrize("names", [False, True])
def test_rejected_work_never_counts(runs: str, tmp_path: Path, names: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether its submissions come with the scores, before them or after them."""
    raters = ("anna", "bert", "carl", "dora")
    scores = write(tmp_path / "scores.jsonl", *(by(name, place, 1.0) for place, name in enumerate(raters)))
    people = [submission("anna", "APPROVED"), submission("bert", "REJECTED"), submission("carl", "RETURNED")]
    people += [submission("dora", "TIMED-OUT"), submission("dora", "AWAITING REVIEW"), submission("emil", "ACTIVE")]
    work = write(tmp_path / "work.jsonl", *people)
    settings = {"names": names}
    together = imported(tmp_path / "together", runs, scores, work, **settings)
    assert "2 left out" in capsys.readouterr().out
    assert len(rows(tmp_path / "together" / "ratings.jsonl")) == 2
    for order in ((runs, scores), (work,)), ((runs, work), (scores,)):
        out = tmp_path / f"order {len(list(tmp_path.iterdir()))}"
        for files in order:
            imported(out, *files, **settings)
        assert rows(out / "ratings.jsonl") == rows(tmp_path / "together" / "ratings.jsonl")
    assert b"emil" not in b"".join(together.values())
    later = write(tmp_path / "later.jsonl", submission("bert", "APPROVED"))
    imported(tmp_path / "together", later, **settings)
    assert len(rows(tmp_path / "together" / "ratings.jsonl")) == 3


def test_work_of_an_unknown_status_does_not_count(
    runs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = write(tmp_path / "work.jsonl", submission("anna", "SLEEPING"))
    imported(tmp_path / "out", runs, write(tmp_path / "scores.jsonl", by("anna", 1, 1.0)), work)
    assert "work was sleeping" in capsys.readouterr().out
    assert not (tmp_path / "out" / "ratings.jsonl").exists()


ASKED = [{"role": "user", "content": "Mail ada@example.org?"}]


def opik(value: float, hour: int) -> Row:
    by = {"anna@example.org": {"value": value, "source": "ui", "last_updated_at": f"2026-01-01T{hour}:00:00Z"}}
    scores = [{"name": "good", "value": value, "source": "ui", "value_by_author": by}]
    return {"id": "t", "input": {"messages": ASKED}, "output": {"output": "So."}, "feedback_scores": scores}


def inspect(value: float, hour: int) -> Row:
    by = {"author": "anna@example.org", "timestamp": f"2026-01-01T{hour}:00:00+00:00", "reason": "read it"}
    scores = {"good": {"value": value, "explanation": None, "history": [{"value": value, "provenance": by}]}}
    answer = {"role": "assistant", "content": "So."}
    row = {"id": 1, "epoch": 1, "input": ASKED, "messages": [*ASKED, answer], "output": {"completion": "So."}}
    return row | {"scores": scores, "uuid": "U"}


def braintrust(value: float, hour: int) -> Row:
    return {"id": "a", "input": ASKED, "output": "So.", "expected": {"good": value}, "scores": None}


@for_each([opik, inspect, braintrust])
def test_evaluations_are_imported_once_in_private_and_later_edits_win(row: Any, tmp_path: Path) -> None:
    out, first = tmp_path / "out", write(tmp_path / "1.jsonl", row(0.0, 11))
    once = imported(out, first, redact=True)
    assert imported(out, first, redact=True) == once
    assert b"example.org" not in b"".join(once.values())
    (rating,) = rows(out / "ratings.jsonl")
    assert rating["rater"] == ("" if row is braintrust else "rater-1")
    imported(out, write(tmp_path / "2.jsonl", row(1.0, 13)), redact=True)
    (edited,) = rows(out / "ratings.jsonl")
    assert (edited["choice"], edited["id"]) == (1.0, rating["id"])
    if row is not braintrust:  # its rows have no times of edits
        imported(out, write(tmp_path / "3.jsonl", row(0.0, 12)), redact=True)
        assert rows(out / "ratings.jsonl") == [edited]

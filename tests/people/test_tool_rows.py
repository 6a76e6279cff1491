"""Preferences of a study in the shapes of other tools, and read again as an import reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tutelage.commands.line import main
from tutelage.data.annotation_files import read_annotations
from tutelage.data.annotations import Parts, Reading, derive
from tutelage.data.formats import load_preferences, load_steps
from tutelage.data.records import CompletionRecord, Messages, Prompt, RatedSteps, Step, user
from tutelage.people import Item, Presentation, add_items, add_rater, create_study, open_store, open_study, submit
from tutelage.people.answers import Answer
from tutelage.people.assignment import next_assignment
from tutelage.people.store.bulk import AnswerRecord, write_answers


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


RUNS = [
    {"id": f"r{n}", "run_type": "llm", "inputs": f"Question {n // 2}?", "outputs": f"Answer {n}."} for n in range(8)
]
ROOTS = [
    {"id": f"o{n}", "traceId": f"t{n}", "input": f"Question {n // 2}?", "output": f"Answer {n}."} for n in range(4)
]
INNER = [
    {**row, "id": f"o{n}", "parentObservationId": f"o{n - 4}", "input": f"Inner {n // 2}?"}
    for n, row in enumerate(ROOTS, 4)
]


def judge(file: Path) -> None:
    """Two raters prefer the same response of each question, sometimes the first of it and sometimes the second."""
    store = open_store(file)
    study = open_study(store)
    for name in ("Anna", "Bert"):
        rater = add_rater(store, study.id, name).id
        while (question := next_assignment(store, rater)) is not None:
            side = "left" if any(str(n) in question.left for n in (0, 3, 4, 7)) else "right"
            submit(store, question.id, Answer(side, 2, key=f"{name}/{question.id}"))
    store.close()


@pytest.fixture(params=["langsmith", "langfuse"])
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Path]:
    """The tool, its file of responses, and the export of a study in which people judged them."""
    source = write(tmp_path / "responses.jsonl", RUNS if request.param == "langsmith" else ROOTS + INNER)
    study, out = tmp_path / "study", tmp_path / "exported"
    assert main(["import", source, "--out", str(tmp_path / "imported")]) == 0
    assert main(["collect", "init", str(study), "--from-sample", str(tmp_path / "imported")]) == 0
    judge(study / "study.sqlite")
    assert main(["collect", "export", str(study), "--out", str(out), "--tools", request.param, "openai"]) == 0
    return request.param, source, out


def test_scores_for_a_tool_say_what_raters_said(exported: tuple[str, str, Path]) -> None:
    tool, source, out = exported
    ours = [pair for pair in load_preferences(out / "preferences.jsonl").records if pair.p_chosen > 0.5]
    assert ours
    rows = lines(out / f"{tool}.jsonl")
    if tool == "langsmith":
        assert all(row["feedback_group_id"] for row in rows)
    else:
        assert {row.get("observationId") for row in rows} == {None, "o4", "o5", "o6", "o7"}
    assert len({row["id"] for row in rows}) == len(rows)
    export = read_annotations([source, str(out / f"{tool}.jsonl")], Parts())
    assert not export.ledger.left_out
    theirs = derive(export.annotations, Reading(), export.ledger).preferences
    pairs = [{(pair.messages, pair.chosen, pair.rejected) for pair in each} for each in (ours, theirs)]
    assert pairs[0] == pairs[1]


def test_preferences_for_openai_are_read_as_the_same_pairs(exported: tuple[str, str, Path]) -> None:
    _, _, out = exported
    ours = [pair for pair in load_preferences(out / "preferences.jsonl").records if pair.p_chosen > 0.5]
    theirs = load_preferences(out / "openai.jsonl").records
    assert [(pair.messages, pair.chosen, pair.rejected) for pair in ours] == [
        (pair.messages, pair.chosen, pair.rejected) for pair in theirs
    ]


LABELS = {"p": [1, 0, -1, 1], "q": [1, 1, 0], "r": [-1, 1]}
"""Labels of the steps of three solutions."""


def rated(records: list[RatedSteps]) -> set[tuple[Messages, tuple[Step, ...], float]]:
    """Every labelled step with those before it."""
    return {
        (each.messages, each.steps[: place + 1], label)
        for each in records
        for place, label in enumerate(each.labels)
        if label is not None
    }


@pytest.mark.parametrize("numbered", [False, True])
def test_labels_of_steps_are_read_again_as_other_programs_write_them(tmp_path: Path, numbered: bool) -> None:
    begin = [f"Step {n}: " if numbered else "" for n in range(1, 5)]
    steps = {key: tuple(f"{begin[n]}{key}{n}" for n in range(len(labels))) for key, labels in LABELS.items()}
    store = open_store(tmp_path / "study.sqlite")
    study = create_study(store, "steps", kind="steps", presentation=Presentation("?", 3))
    prompts = [Prompt(key, user(f"Problem {key}?")) for key in LABELS]
    completions = [CompletionRecord(key, key, "x", "m", steps=steps[key]) for key in LABELS]
    add_items(store, study.id, prompts, completions, [Item(key, key, (key,)) for key in LABELS])
    add_rater(store, study.id, "anna")
    said = [
        AnswerRecord(key, "anna", (0,), Answer("judged", content={"labels": labels}, key=key), 1)
        for key, labels in LABELS.items()
    ]
    write_answers(store, study.id, said, source="test")
    store.close()
    tools = ["prm800k", "math_shepherd"]
    out, file = tmp_path / "out", str(tmp_path / "study.sqlite")
    assert main(["collect", "export", file, "--out", str(out), "--tools", *tools]) == 0
    assert main(["collect", "export", file, "--out", str(tmp_path / "no"), "--tools", "openai"]) == 2
    solutions = lines(out / "prm800k.jsonl")
    assert [row["label"]["finish_reason"] for row in solutions] == ["found_error", "solution", "found_error"]
    assert [row["question"]["pre_generated_steps"] for row in solutions] == [list(steps[key]) for key in "pqr"]

    def labelled(most: dict[str, int], name: str) -> set[tuple[Messages, tuple[Step, ...], float]]:
        """The first steps of each solution with their labels; a neutral one is not wrong."""
        texts = {key: [f"{name.format(n + 1)}{key}{n}" for n in range(4)] for key in most}
        return {
            (user(f"Problem {key}?"), tuple(texts[key][: n + 1]), float(LABELS[key][n] >= 0))
            for key, count in most.items()
            for n in range(count)
        }

    read = rated(list(load_steps(out / "prm800k.jsonl").records))
    assert read == labelled({"p": 3, "q": 3, "r": 1}, "Step {}: " if numbered else "")
    assert rated(list(load_steps(out / "math_shepherd.jsonl").records)) == labelled(
        {"p": 4, "q": 3, "r": 2}, "Step {}: "
    )

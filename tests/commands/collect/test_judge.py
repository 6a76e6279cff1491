"""A model that answers the questions of a study, from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from served import choices, serving

from tutelage.commands.line import main
from tutelage.people import add_rater, list_questions, open_store, open_study
from tutelage.people.answers import Answer, judged
from tutelage.people.store.bulk import AnswerRecord, write_answers

PROMPTS = 6


def reply(body: dict[str, Any], number: int) -> dict[str, Any]:
    text = body["messages"][0]["content"]
    response = text.partition("[Response]\n")[2].partition("\n[End of response]")[0]
    criterion = text.partition("[Criterion]\n")[2].partition("\n[End of criterion]")[0]
    return choices("[[MET]]" if criterion in response else "[[UNMET]]")


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_a_sample_with_rubrics_becomes_a_study_that_people_and_a_judge_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample, study = tmp_path / "sample", str(tmp_path / "study.sqlite")
    sample.mkdir()
    ids = [f"p{n}" for n in range(PROMPTS)]
    rubrics = [{"criterion": "right", "points": 3}, {"criterion": "rude", "points": -1}]
    write(sample / "prompts.jsonl", [{"id": key, "prompt": f"{key}?", "rubrics": rubrics} for key in ids])
    texts = [(key, f"{key}{side}", text) for key in ids for side, text in (("a", "right and rude"), ("b", "wrong"))]
    write(
        sample / "completions.jsonl",
        [
            {"id": own, "prompt_id": key, "text": text, "sampler": "m", "sampling": "", "finished": True}
            for key, own, text in texts
        ],
    )
    write(
        sample / "comparisons.jsonl",
        [{"id": f"c{key}", "prompt_id": key, "a_id": f"{key}a", "b_id": f"{key}b", "origin": "random"} for key in ids],
    )
    assert main(["collect", "init", study, "--from-sample", str(sample), "--kind", "checklist"]) == 0
    store = open_store(study)
    opened = open_study(store)
    add_rater(store, opened.id, "anna")
    said = judged({"right": ["met", "unmet"], "rude": ["unmet", "unmet"]})  # she overlooks that the right one is rude
    records = [
        AnswerRecord(question.key, "anna", (0, 1), Answer(said.choice, content=said.content, key=question.key), 1)
        for question in list_questions(store, opened.id)
    ]
    write_answers(store, opened.id, records, source="test")
    store.close()
    with serving(reply) as served:
        capsys.readouterr()
        assert main(["collect", "judge", study, "--endpoint", served.url, "--model", "m"]) == 0
        assert len(served.asked) == PROMPTS * 4
    out = capsys.readouterr().out
    assert f"{PROMPTS * 4} requests" in out
    assert "all criteria: agrees with 75% (75% to 75%)" in out
    assert "'right': agrees with 100%" in out
    assert "'rude': agrees with 50%" in out
    assert main(["collect", "judge", study, "--reward", "builtins:len"]) == 2

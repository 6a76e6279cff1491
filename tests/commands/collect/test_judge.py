"""A model that answers the questions of a study, from the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from offenders import for_each
from served import choices, serving

from tutelage.commands.collect.judge import uncertainty
from tutelage.commands.line import main
from tutelage.people import add_rater, list_questions, list_votes, open_store, open_study
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


def study_of_pairs(folder: Path, name: str, kind: str, rubrics: list[int]) -> str:
    """A study of a pair for each number: that of the criteria of its prompt."""
    sample, study = folder / f"{name}-sample", str(folder / f"{name}.sqlite")
    sample.mkdir()
    prompts = [
        {"id": f"p{n}", "prompt": f"p{n}?", "rubric": [f"right {k}" for k in range(count)]}
        for n, count in enumerate(rubrics)
    ]
    write(sample / "prompts.jsonl", [dict(row) for row in prompts])
    texts = [
        (f"p{n}", f"p{n}{side}", text) for n in range(len(rubrics)) for side, text in (("a", "x 0"), ("b", "right 0"))
    ]
    write(
        sample / "completions.jsonl",
        [
            {"id": own, "prompt_id": key, "text": text, "sampler": "m", "sampling": "", "finished": True}
            for key, own, text in texts
        ],
    )
    pairs = [
        {"id": f"c{n}", "prompt_id": f"p{n}", "a_id": f"p{n}a", "b_id": f"p{n}b", "origin": "random"}
        for n in range(len(rubrics))
    ]
    write(sample / "comparisons.jsonl", pairs)
    assert main(["collect", "init", study, "--from-sample", str(sample), "--kind", kind]) == 0
    return study


def test_a_limit_bounds_the_requests_that_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The questions that a limit admits may be those of most criteria; answered ones are not counted again."""
    counts = [1, 5, 2, 3]
    study = study_of_pairs(tmp_path, "study", "checklist", counts)
    with serving(reply) as served:
        seen = 0
        for limit, said in ((1, 10), (2, None), (4, None)):
            capsys.readouterr()
            judge = ["collect", "judge", study, "--endpoint", served.url, "--model", "m", "--limit", str(limit)]
            assert main(judge) == 0
            told = int(capsys.readouterr().out.split("At most ")[1].split(" ")[0])
            assert said is None or told == said
            assert len(served.asked) - seen <= told
            seen = len(served.asked)
        assert told == 2 * counts[-1] or told in {2 * each for each in counts}  # one question is left
        assert seen == 2 * sum(counts)


@for_each(["pairs", "rating", "rubric"])
def test_a_judge_file_answers_as_its_flags_do(by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(body: dict[str, Any], number: int) -> dict[str, Any]:
        text = body["messages"][0]["content"]
        assert ("Only what is right" in text) == (by != "rubric")
        if by == "rubric":
            return reply(body, number)
        if by == "rating":
            return choices("[[9]]" if "right" in text.partition("[Response]\n")[2] else "[[2]]")
        first = text.partition("[Response A]\n")[2].partition("\n[End of response A]")[0]
        return choices("[[A]]" if "right" in first else "[[B]]")

    study = study_of_pairs(tmp_path, "study", "checklist" if by == "rubric" else "pair", [2, 2, 2])
    with serving(answer) as served:
        file = tmp_path / "judge.toml"
        rubric = "" if by == "rubric" else 'rubric = "Only what is right counts."'
        file.write_text(f'url = "{served.url}"\nmodel = "big/model"\nby = "{by}"\n{rubric}\n', encoding="utf-8")
        capsys.readouterr()
        assert main(["collect", "judge", study, "--judge", str(file)]) == 0
        out = capsys.readouterr().out
        assert len(served.asked) == {"pairs": 6, "rating": 6, "rubric": 12}[by]
        assert f"At most {len(served.asked)} requests" in out
        assert "big/model: 3 questions answered" in out
    store = open_store(study)
    texts = {question.key: question.texts for question in list_questions(store, 1)}
    for vote in list_votes(store, 1):
        assert texts[vote.item]["ab".index(vote.verdict)] == "right 0"
    store.close()
    if by == "rating":  # with a column of prompts, which a study does not keep
        own = tmp_path / "own.txt"
        own.write_text("{guidelines} {conversation} {response} {solution}", encoding="utf-8")
        other_file = tmp_path / "other.toml"
        other_file.write_text(f'{file.read_text(encoding="utf-8")}template = "own.txt"\n', encoding="utf-8")
        assert main(["collect", "judge", study, "--rater", "other", "--judge", str(other_file)]) == 2
        assert "{solution}" in capsys.readouterr().err
    other = study_of_pairs(tmp_path, "other", "pair" if by == "rubric" else "checklist", [1])
    assert main(["collect", "judge", other, "--judge", str(file)]) == 2
    assert 'by = "rubric"' in capsys.readouterr().err or by == "rubric"


def test_a_coin_is_uncertain_to_one_model_and_a_disagreement_to_several() -> None:
    """Pairs of which two models are sure of the opposite, sure of the same, and both at a loss."""
    sure = np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 0.5]])
    assert uncertainty(sure[:1]).tolist() == [0, 0, 1]
    assert uncertainty(sure).tolist() == [0.5, 0, 0]
    p = np.random.default_rng(1).uniform(size=(3, 20))
    for some in (p, p[:1]):
        np.testing.assert_allclose(uncertainty(some), uncertainty(1 - some))

"""The round of a policy with tools, in seconds: a smaller model that learns less."""

import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from remarks import collected

from tutelage.base.config import Shape
from tutelage.base.errors import TutelageError
from tutelage.commands.line import main
from tutelage.data.formats import load_prompts, load_steps
from tutelage.demo.rounds import tools
from tutelage.demo.rounds.round import RoundPlace, run_round, run_stages
from tutelage.demo.rounds.tools import ToolsRound, ToolsScale
from tutelage.train.run.json_lines import read_lines

SMALL = ToolsScale(
    shape=Shape(vocabulary=380, hidden=16, layers=1, heads=2, context=192),
    demonstrations=60,
    sft_epochs=1.0,
    steps=1,
    batch=4,
    seeds=2,
    test_episodes=1,
    sampled_prompts=90,
    judged_prompts=30,
    episodes=2,
    overlap=3,
    turn_tokens=8,
)
STAGES = ["sft", "sample", "judge", "reward", "judge_outcome", "reward_outcome", "improve", "compare", "evaluate"]
REWARDS = ["step votes", "outcome votes", "solution"]


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished round, and what it printed."""
    out, printed = tmp_path_factory.mktemp("tools") / "round", StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "ToolsScale", lambda: SMALL)
        with redirect_stdout(printed):
            assert main(["demo", "--world", "tools", "--out", str(out)]) == 0
    return out, printed.getvalue()


@pytest.mark.long
def test_the_stages_are_done_and_reported(finished: tuple[Path, str]) -> None:
    out, printed = finished
    told = read(out / "round.json")
    assert [(stage["name"], stage["status"]) for stage in told["stages"]] == [(name, "done") for name in STAGES]
    assert told["command"] == "tutelage demo --world tools --seed 0"
    assert tools.STORY.title in (out / "report.html").read_text(encoding="utf-8")
    for expected in ("turns of an episode", "tutelage docs agents", *(f"Paid by {name}" for name in REWARDS)):
        assert expected in printed
    assert "collect init" not in printed


@pytest.mark.long
def test_the_figures_are_those_of_the_episodes(finished: tuple[Path, str]) -> None:
    """A question is solved if the last turn is its solution, which the world knows."""
    out, _ = finished
    summary = read(out / "summary.json")
    rows = [json.loads(line) for line in (out / "evaluate" / "answers.jsonl").read_text().splitlines()]
    asked = load_prompts(out / "data" / "prompts_held_out.jsonl").records
    solutions = {prompt.messages[-1].content: prompt.data["solution"] for prompt in asked}
    for side, name in (("before", "sft"), ("after", "policy")):
        solved = [row[side].rpartition("assistant: ")[2] == solutions[row["prompt"]] for row in rows]
        assert summary[name]["gold_mean"] == pytest.approx(sum(solved) / len(rows))
        assert 1 <= summary[name]["turns"] <= tools.TURNS
    assert list(read(out / "evaluate" / "summary.json")["win_rate"]) == ["gold"]
    assert list(summary["rewards"]) == REWARDS
    for reward in summary["rewards"].values():
        assert reward["interval"][0] <= reward["mean"] <= reward["interval"][1]
    assert 0 <= summary["step_reward"]["accuracy"] <= 1


@pytest.mark.long
def test_raters_judge_steps_of_train_episodes_with_the_tools_in_view(finished: tuple[Path, str]) -> None:
    out, _ = finished
    labelled, test = (load_steps(out / "judge" / f"{name}.jsonl").records for name in ("steps", "test_steps"))
    asked = [{record.messages[-1].content for record in records} for records in (labelled, test)]
    held_out = {p.messages[-1].content for p in load_prompts(out / "data" / "prompts_held_out.jsonl").records}
    assert all(asked)
    assert not asked[0] & asked[1]
    assert not held_out & (asked[0] | asked[1])
    assert all(len(record.messages[0].tools) == 2 for record in labelled)
    assert all(label in (0.0, 1.0) for record in test for label in record.labels)
    raters = {row["name"]: row for row in read(out / "judge" / "judgements.json")["raters"]}
    assert {name: row["truth"] for name, row in raters.items()} == tools.RATERS


@pytest.mark.long
def test_as_many_votes_are_on_outcomes_as_on_steps(finished: tuple[Path, str]) -> None:
    out, _ = finished
    votes, outcomes = (read(out / name / "judgements.json")["votes"] for name in ("judge", "judge_outcome"))
    assert outcomes == pytest.approx(votes, rel=0.1)
    labelled = load_steps(out / "judge_outcome" / "steps.jsonl").records
    assert {len(record.steps) for record in labelled} == {1}
    asked = [
        {next(m.content for m in record.messages if m.role == "user") for record in load_steps(file).records}
        for file in (out / "judge_outcome" / "steps.jsonl", out / "judge_outcome" / "test_steps.jsonl")
    ]
    assert all(asked)
    assert not asked[0] & asked[1]


@pytest.mark.long
def test_the_curves_are_those_of_the_runs(finished: tuple[Path, str]) -> None:
    out, _ = finished
    compared = read(out / "compare" / "summary.json")
    assert list(compared["curves"]) == compared["columns"] == REWARDS
    runs = [out / "improve", out / "compare" / "step-votes-1"]
    logged = [[row["gold/mean"] for row in read_lines(run / "metrics.jsonl") if "gold/mean" in row] for run in runs]
    curve = compared["curves"]["step votes"]
    assert curve["mean"] == pytest.approx([sum(step) / 2 for step in zip(*logged, strict=True)])
    assert curve["low"] == pytest.approx(list(map(min, *logged)))
    assert curve["high"] == pytest.approx(list(map(max, *logged)))


@pytest.mark.long
def test_held_out_questions_have_other_prices(finished: tuple[Path, str]) -> None:
    out, _ = finished
    lists = [(out / "data" / f"prices_{split}.jsonl").read_text() for split in ("train", "held_out")]
    assert lists[0] != lists[1]
    for stage, split in (("improve", "train"), ("evaluate", "held_out")):
        assert f"prices_{split}.jsonl" in (out / stage / "config.json").read_text()


@pytest.mark.long
def test_a_second_run_trains_nothing_and_another_scale_is_refused(finished: tuple[Path, str]) -> None:
    out, _ = finished
    place, told = RoundPlace(out, 0, quiet=False), list[str]()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    with collected(told):
        run_round(ToolsRound(place=place, scale=SMALL))
    assert sum("done already" in line for line in told) == len(STAGES)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    with pytest.raises(TutelageError, match="stage 'improve' was made with other settings"):
        run_round(ToolsRound(place=place, scale=replace(SMALL, steps=2)))


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a round of full size, without the comparison of rewards."""
    out = tmp_path_factory.mktemp("learnt") / "round"
    stages = ToolsRound(place=RoundPlace(out, 0, quiet=True), scale=ToolsScale()).stages()
    needed = ("sft", "sample", "judge", "reward", "improve", "evaluate")
    run_stages(out, tools.STORY, [stage for stage in stages if stage.name in needed])
    return out


@pytest.mark.long
def test_the_policy_learns_its_tools_from_votes_on_steps(learnt: Path) -> None:
    summary = read(learnt / "evaluate" / "summary.json")
    before, after = (summary[side]["gold_mean"] for side in ("against", "model"))
    assert before < 0.3
    assert after > 0.8


@pytest.mark.long
def test_the_step_reward_judges_steps_of_other_questions_as_in_truth(learnt: Path) -> None:
    """Better than the votes, as the labels are."""
    fitted, judged = (read(learnt / name / "summary.json") for name in ("reward", "judge"))
    votes = sum(tools.RATERS.values()) / len(tools.RATERS)
    assert votes < judged["label_accuracy"]
    assert fitted["accuracy_interval"][0] > votes


@pytest.mark.long
def test_reliabilities_are_recovered_from_the_votes_alone(learnt: Path) -> None:
    """Of six 95 % intervals at most one misses the truth."""
    raters = read(learnt / "judge" / "judgements.json")["raters"]
    inside = [row["interval"][0] <= row["truth"] <= row["interval"][1] for row in raters]
    assert sum(inside) >= 5
    assert all(abs(row["reliability"] - row["truth"]) < 0.1 for row in raters)
    assert min(raters, key=lambda row: row["reliability"])["name"] == "Freya"

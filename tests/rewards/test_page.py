"""docs/rewards.md and docs/howto/custom_reward.md do what they say: their code is imported, their commands are run."""

import json
import re
import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from served import choices, serving

from tutelage.base import config
from tutelage.base.modules import function_named
from tutelage.commands.line import main
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint
from tutelage.data.formats import load_prompts
from tutelage.data.record_formats import FIELDS
from tutelage.data.records import Message
from tutelage.rewards.factory import RULES, make_reward
from tutelage.rewards.judge import swiss
from tutelage.rewards.reward import Completion, Completions
from tutelage.rewards.scores import scores_of

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO, PAGE = ((DOCS / name).read_text(encoding="utf-8") for name in ("howto/custom_reward.md", "rewards.md"))
NOWHERE = config.Model("nowhere", device="cpu")


def blocks(language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", HOW_TO + PAGE, flags=re.S | re.M)
    return [text for name, text in fenced if name == language]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    file, _ = blocks("json")  # the other is a row with a rubric
    (tmp_path / "sums.jsonl").write_text(file, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scores(name, completions):
    return scores_of(make_reward([f"my_rewards:{name}"], None, NOWHERE), completions).tolist()


def test_the_functions_read_the_columns_the_system_message_and_the_turns(folder):
    prompts = load_prompts(folder / "sums.jsonl").records
    assert [prompt.data for prompt in prompts] == [{"solution": "7"}, {"solution": "5"}]
    assert [turn.role for turn in prompts[1].messages] == ["system", "user", "assistant", "user"]
    completions = Completions(prompts, ["It is 7.", "It is 7."])
    assert scores("correct", completions) == [1.0, 0.0]
    assert scores("short", completions) == pytest.approx([-0.08, -0.08])
    talk = (
        Message("system", "Be polite."),
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", "Why?"),
    )
    assert scores("polite", [Completion("p", talk, "Thank you."), Completion("q", talk[1:], "Thank you.")]) == [
        0.5,
        0.0,
    ]


def test_the_rules_sums_and_ensembles_say_what_the_page_says(folder):
    right = Completion("p", (), "<think>3 + 4</think>So #### 7", {"solution": "7"})
    long = Completion("p", (), "word " * 400, {"solution": "7"})
    assert scores("SOLVED", [right, long]) == [1.0, 0.0]
    assert scores("THOUGHT", [right, long]) == [1.0, 0.0]
    assert scores("BRIEF", [right, long]) == [0.0, -1.0]
    assert scores("MATHS", [right, long]) == pytest.approx([1.1, -0.1])
    assert scores("CAUTIOUS", [right, long]) == [1.0, 0.0]


def test_the_judge_asks_for_a_rating_in_its_own_range(folder):
    judge = function_named("my_rewards:JUDGE")
    reached = judge.endpoint.endpoint
    assert (reached.url, reached.model) == ("http://localhost:8000/v1", "judge-model")
    with serving(lambda body, number: choices("Yes. [[5]]")) as served:
        judge = replace(judge, endpoint=PaidEndpoint(Endpoint(served.url, "judge-model")))
        assert judge([Completion("p", (), "Stars are far away.")]) == [5.0]
    request = served.asked[0]["messages"][0]["content"]
    assert "would a child of nine understand it?" in request
    assert "from 1 (worst) to 5 (best)" in request


def test_the_file_of_the_judge_is_one(folder):
    text, _ = blocks("toml")  # the other is a judge of rubrics
    (folder / "judge.toml").write_text(text, encoding="utf-8")
    judge = make_reward(["judge:judge.toml"], None, NOWHERE)
    assert judge.schedule is swiss
    assert "a child of nine" in judge.compare.guidelines


def test_the_commands_run(folder, tiny_model):
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("tutelage improve")]
    assert len(commands) == 2
    small = "--steps 1 --batch-size 2 --sampling.max-new-tokens 4 --sample-every 1 --model.device cpu --quiet"
    for command, run in zip(commands, ("sums", "rules"), strict=True):
        words = shlex.split(command.replace("runs/sft/model", str(tiny_model("llama"))))[1:]
        assert main([*words, *small.split()]) == 0
        rows = [json.loads(line) for line in (folder / f"runs/{run}/samples.jsonl").read_text().splitlines()]
        assert rows


def test_the_page_has_every_rule_with_its_settings():
    for name, rule in RULES.items():
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
        assert all(f"`{setting.name}" in line for setting in fields(rule))


def test_the_pages_name_every_field_that_is_not_kept_and_every_part_of_a_completion():
    assert all(f"`{name}`" in PAGE for name in FIELDS)
    assert all(f"`{name}`" in HOW_TO for name in Completion.__dataclass_fields__)

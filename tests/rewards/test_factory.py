"""Rules from the words of the command line."""

import json
import sys
from pathlib import Path

import pytest

from tutelage.base import config
from tutelage.base.concurrency import Calls
from tutelage.base.errors import TutelageError
from tutelage.base.modules import function_named
from tutelage.data.formats import load_prompts
from tutelage.models.heads import new_reward_model
from tutelage.rewards.composite import WeightedReward
from tutelage.rewards.factory import RULES, columns_by_name, make_reward, require_columns, rule_named
from tutelage.rewards.function import FunctionReward
from tutelage.rewards.math_rules import MathMatch, NumberMatch
from tutelage.rewards.model_reward import ModelReward, StepReward
from tutelage.rewards.reward import Reward, reward_name
from tutelage.rewards.rules import ExactMatch, LengthLimit, PatternMatch, TagFormat
from tutelage.rewards.scores import scores_of

from .made import completion


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("math", MathMatch()),
        ("format", TagFormat()),
        ("format(tags=[think, answer])", TagFormat(("think", "answer"))),
        ("length(limit=200, unit=tokens)", LengthLimit(200, "tokens")),
        ("number(tolerance=0)", NumberMatch(tolerance=0.0)),
        ("regex(pattern='[A-D]\\\\.')", PatternMatch(r"[A-D]\.")),
        (r"exact(column='solution', pattern=r'\((\w)\)')", ExactMatch("solution", r"\((\w)\)")),
    ],
)
def test_a_rule_has_the_settings_that_it_is_given(text: str, rule: Reward) -> None:
    assert rule_named(text) == rule


def test_every_rule_is_called_by_its_name() -> None:
    needed = {"length": "(limit=1)", "regex": "(pattern=a)"}
    for name in RULES:
        assert reward_name(rule_named(name + needed.get(name, ""))) == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("maths", "There is no rule 'maths'.*did you mean 'math'"),
        ("", "The rules are exact, "),
        ("length", "rule:length: limit is required"),
        ("length(limit=many)", "limit must be a whole number, not the text 'many'"),
        ("length(limit=5, unit=pages)", "unit must be"),
        ("length(limt=5)", "did you mean 'limit'"),
        ("length(5)", "settings of rule:length.* cannot be read"),
        ("length(limit=)", "settings of rule:length.* cannot be read"),
        ("length(limit=1+1j*x)", "settings of rule:length.* cannot be read"),
        ("regex(pattern='(')", "is not a regular expression"),
    ],
)
def test_rules_that_are_none(text: str, told: str) -> None:
    with pytest.raises(TutelageError, match=told):
        rule_named(text)


NOWHERE = config.Model("nowhere", device="cpu")
MODULE = """
from tutelage.rewards.rules import ExactMatch

def words(prompts, answers):
    return [float(len(answer.split())) for answer in answers]

def level(completions):
    return [one.data["level"] for one in completions]

def three(prompts, answers, scores):
    return scores

SOLUTION = ExactMatch("solution")
NUMBER = 3
"""
TWO = [completion("a b", level=5, solution="a b"), completion("c", level=7, solution="d")]


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "rewards_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("names", "scores"),
    [
        (["rewards_of_mine:words"], [2.0, 1.0]),
        (["rewards_of_mine:level"], [5.0, 7.0]),
        (["rewards_of_mine:level(workers=2, timeout=20, retries=1)=2"], [10.0, 14.0]),
        (["rewards_of_mine:SOLUTION"], [1.0, 0.0]),
        (["rule:length(limit=1, unit=words)"], [-1.0, 0.0]),
        (["rule:length(limit=1, unit=words)=2", "rule:exact(column=solution, pattern='(.+)=?')=.5"], [-1.5, 0.0]),
        (["rewards_of_mine:words=0.5", "rewards_of_mine:SOLUTION=-2", "rewards_of_mine:level"], [4.0, 7.5]),
    ],
)
def test_functions_and_rewards_of_a_module_with_weights(names, scores):
    assert scores_of(make_reward(names, None, NOWHERE), TWO).tolist() == scores


def test_a_function_has_the_calls_that_it_is_given():
    reward = make_reward(["rewards_of_mine:words(workers=8, timeout=2.5)"], None, NOWHERE)
    assert isinstance(reward, FunctionReward)
    assert (reward.name, reward.calls) == ("rewards_of_mine:words", Calls(8, 2.5))


def test_one_reward_of_weight_one_stands_alone():
    assert isinstance(make_reward(["rewards_of_mine:words"], None, NOWHERE), FunctionReward)
    assert isinstance(make_reward(["rewards_of_mine:words=1.0"], None, NOWHERE), FunctionReward)
    assert isinstance(make_reward(["rewards_of_mine:words=2"], None, NOWHERE), WeightedReward)
    assert isinstance(function_named("rewards_of_mine:SOLUTION"), ExactMatch)


def test_a_folder_is_a_reward_model_that_reads_text_without_a_policy(tiny_model, tmp_path):
    new_reward_model(config.Model(tiny_model("llama"), device="cpu"), config.Lora(), seed=0).save(tmp_path / "rm")
    reward = make_reward([str(tmp_path / "rm")], None, NOWHERE)
    assert isinstance(reward, ModelReward)
    assert not reward.same_tokens


def test_a_model_of_steps_folds_them_as_its_name_says(tiny_model, tmp_path):
    model = new_reward_model(config.Model(tiny_model("llama"), device="cpu"), config.Lora(), seed=0)
    model.save(tmp_path / "rm")
    with pytest.raises(TutelageError, match="min"):
        make_reward([f"min:{tmp_path / 'rm'}"], None, NOWHERE)
    model.separator = ";"
    model.save(tmp_path / "prm")
    for name, fold in ((f"{tmp_path / 'prm'}", "last"), (f"min:{tmp_path / 'prm'}", "min")):
        reward = make_reward([name], None, NOWHERE)
        assert isinstance(reward, StepReward)
        assert (reward.fold, reward.model.separator, reward.name) == (fold, ";", "prm")
    (tmp_path / "prm" / "steps.json").write_text("{}")
    with pytest.raises(TutelageError, match=r"steps\.json"):
        make_reward([str(tmp_path / "prm")], None, NOWHERE)


def test_the_columns_that_are_read_are_known_without_loading_a_model():
    names = ["rule:math=2", "rewards_of_mine:SOLUTION", "rewards_of_mine:words", "runs/reward/model"]
    assert columns_by_name(names) == {
        "rule:math": ("answer",),
        "rewards_of_mine:SOLUTION": ("solution",),
        "rewards_of_mine:words": (),
    }


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "No reward was given"),
        (["rewards_of_mine:nothing"], "has no 'nothing'"),
        (["rewards_of_mine:NUMBER"], "is not a function"),
        (["no_such_module:words"], "cannot be imported"),
        (["rewards_of_mine:three"], r"asks for prompts, answers, scores; it must take \(completions\), or"),
        (["rewards_of_mine:words=much"], "is not a number"),
        (["rewards_of_mine:words(worker=8)"], "did you mean 'workers'"),
        (["rewards_of_mine:words(workers=-8)"], "workers has to be 0 or more"),
        (["rewards_of_mine:words(timeout=8)"], r"words\(timeout=8\): .* give workers"),
        (["rewards_of_mine:words(workers=)"], r"words\(workers=\) cannot be read"),
        (["rewards_of_mine:words=0"], "other than 0"),
        (["rule:length(limit=1)=0"], "other than 0"),
        (["rule:exact=much"], "is not a number"),
        (["rule:exact)=1"], "There is no rule"),
        (["readability"], r"no reward model 'readability'; the rule of this name is rule:readability\."),
    ],
)
def test_names_that_are_none(names, told):
    with pytest.raises(TutelageError, match=told):
        make_reward(names, None, NOWHERE)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import no_such_library", r"cannot be imported: No module named 'no_such_library'\.$"),
        ("def words(completions:", r"cannot be imported: SyntaxError: .*\(broken_rewards\.py, line 1\)\.$"),
        ("LIMIT = 1\nNONE = LIMIT.length", r"AttributeError: 'int' object .* \(broken_rewards\.py:2\)\.$"),
        ("LIMIT = 1 / 0", r"ZeroDivisionError: division by zero \(broken_rewards\.py:1\)\.$"),
    ],
)
def test_a_module_that_fails_while_it_is_imported(text, told, tmp_path, monkeypatch):
    (tmp_path / "broken_rewards.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TutelageError, match=told):
        make_reward(["broken_rewards:words"], None, NOWHERE)


def test_a_module_that_lies_where_python_does_not_look(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "rewards_of_the_folder.py").write_text("def words(completions): return [0.0] * len(completions)")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as of the command, not of python -m
    with pytest.raises(TutelageError, match=r"rewards_of_the_folder\.py lies in this folder.*PYTHONPATH=\. before"):
        make_reward(["rewards_of_the_folder:words"], None, NOWHERE)


def write(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_first_row_without_the_column_is_named_by_its_place(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"prompt": f"{i} + 1?", "answer": i + 1, "hint": "count"} for i in range(20)]
    rows[3] = {"prompt": "", "answer": 4}  # unusable, and no row of the prompts
    rows[7] = rows[6]  # repeated
    rows[16] = {"prompt": "16 + 1?", "solution": 17}
    rows[18]["answer"] = None
    loaded = load_prompts(write(tmp_path, rows))
    told = r"rule:math reads the column 'answer', which line 17 of .* not have \(2 of 18 rows lack it\).*: solution"
    with pytest.raises(TutelageError, match=told):
        require_columns(["rule:length(limit=3)", "rule:math=.5"], loaded)
    require_columns(["rule:length(limit=3)", "runs/reward/model"], loaded)


def test_rows_that_have_the_column_pass(tmp_path: Path) -> None:
    loaded = load_prompts(write(tmp_path, [{"prompt": "1 + 1?", "answer": 2}]))
    assert loaded.places == ("line 1",)
    require_columns(["rule:number", "rule:exact(column=answer)"], loaded)

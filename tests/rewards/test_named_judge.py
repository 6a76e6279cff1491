"""A judge from a file of settings."""

from pathlib import Path

import pytest
from served import choices, serving

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import KEY
from tutelage.rewards.judge import JudgeReward, PairwiseJudgeReward
from tutelage.rewards.matches import round_robin, swiss
from tutelage.rewards.named import make_reward
from tutelage.rewards.named_judge import judge_named

from .made import completion

NOWHERE = config.Model("nowhere", device="cpu")
LEAST = 'url = "http://localhost:1/v1"\nmodel = "m"\nrubric = "Kind and short."\n'


def write(folder: Path, text: str) -> str:
    path = folder / "judge.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_judge_that_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "hush")
    with serving(lambda body, number: choices("Fine. [[4]]")) as served:
        text = LEAST.replace("http://localhost:1/v1", served.url) + 'highest = 5\nreplies = "kept.jsonl"\n'
        reward = make_reward([f"judge:{write(tmp_path, text)}=0.5"], None, NOWHERE)
        scores = reward([completion("a"), completion("a")])
        assert list(scores) == [2.0, 2.0]
    assert served.keys == ["Bearer hush"]
    asked = served.asked[0]["messages"][0]["content"]
    assert "Kind and short." in asked
    assert "from 1 (worst) to 5 (best)" in asked
    assert (tmp_path / "kept.jsonl").is_file(), "paths are relative to the file of settings"


@pytest.mark.parametrize(("by", "schedule"), [("pairs", round_robin), ("tournament", swiss)])
def test_a_judge_that_compares(tmp_path: Path, by: str, schedule: object) -> None:
    reward = judge_named(write(tmp_path, LEAST + f'by = "{by}"\nquestion = "Which is kinder?"\n'))
    assert isinstance(reward, PairwiseJudgeReward)
    assert reward.schedule is schedule
    assert reward.compare.question == "Which is kinder?"  # type: ignore[attr-defined]


def test_a_prompt_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("{guidelines}|{conversation}|{response}")
    reward = judge_named(write(tmp_path, LEAST + 'template = "prompt.txt"\n'))
    assert isinstance(reward, JudgeReward)
    assert reward.template == "{guidelines}|{conversation}|{response}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LEAST.replace("Kind and short.", " "), r"judge.toml: The rubric is empty"),
        (LEAST.replace('rubric = "Kind and short."\n', ""), "rubric is required"),
        (LEAST + 'by = "vibes"\n', "by must be"),
        (LEAST + "highest = 1\n", "from 1 to 1 says nothing"),
        (LEAST + 'by = "pairs"\nhighest = 5\n', "by = 'pairs' gives none"),
        (LEAST + "budget = 5\n", "needs the prices"),
        (LEAST + "at_once = 0\n", "at_once has to be 1"),
        (LEAST + 'template = "none.txt"\n', "cannot be read"),
        (LEAST + "temprature = 1\n", "did you mean 'temperature'"),
        (LEAST.replace("http://", ""), "is no endpoint"),
        ("rubric =", "is not valid TOML"),
    ],
)
def test_files_that_describe_no_judge(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(TutelageError, match=told):
        judge_named(write(tmp_path, text))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(TutelageError, match=r"Cannot read the settings file nowhere.toml"):
        make_reward(["judge:nowhere.toml"], None, NOWHERE)


def test_a_prompt_without_a_place_for_the_rubric_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("{conversation}|{response}")
    with pytest.raises(TutelageError, match=r"lacks \{guidelines\}"):
        judge_named(write(tmp_path, LEAST + 'template = "prompt.txt"\n'))

"""`examples/7_whole_loop.py` runs and returns what is in its folder; in its own size the policy gets better."""

import json
from pathlib import Path
from types import ModuleType

import example_files
import pytest

import tutelage as tt

SMALL = {
    "SHAPE": tt.Shape(vocabulary=800, hidden=32, layers=1, heads=1, context=160),
    "TOKENS": 40_000, "DEMONSTRATIONS": 200, "PROMPTS": 40, "HELD_OUT": 32, "STEPS": 2,
}  # fmt: skip


@pytest.fixture
def example() -> ModuleType:
    return example_files.example("7_whole_loop")


def test_the_whole_loop_through_the_python_api(example: ModuleType, tmp_path: Path) -> None:
    vars(example).update(SMALL)
    result = example.main(tmp_path)
    summary = json.loads((tmp_path / "evaluate" / "summary.json").read_text())
    assert result.against["gold_mean"] == summary["against"]["gold_mean"]
    assert result.figures["gold_mean"] == summary["model"]["gold_mean"]
    assert result.win_rate("gold") == summary["win_rate"]["gold"]["win_rate"]
    assert result.figures["kl"] != 0, "PPO moved the policy"
    assert result.figures["kl"] > -4 * result.figures["kl_error"], "a mean of log-ratios, whose expectation is a KL"
    assert summary["prompts"] == SMALL["HELD_OUT"]


@pytest.mark.long
def test_the_policy_of_the_whole_loop_gets_better(example: ModuleType, tmp_path: Path) -> None:
    result = example.main(tmp_path)
    assert result.figures["gold_mean"] > result.against["gold_mean"] + 0.3
    assert result.win_rate("gold") > 0.7

"""Rewards on a benchmark in the format of RewardBench 2, and win rates at equal length."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_commands import files, read_jsonl, write_jsonl

import tutelage as tt
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.evaluate.reward_benchmark import load_benchmark
from tutelage.commands.evaluate.run import _win_rates
from tutelage.commands.evaluate.summary import Side
from tutelage.data.records import Prompt, user
from tutelage.models.heads import new_reward_model
from tutelage.rewards.reward import Completions

ROWS = [
    {"id": "0", "subset": "Math", "prompt": "1 + 1?", "chosen": ["abcd"], "rejected": ["a", "ab", "abc"]},
    {"id": "1", "subset": "Math", "prompt": "2 + 2?", "chosen": ["a"], "rejected": ["ab", "abc", "ab"]},
    {"id": "ref:5", "subset": "Ties", "prompt": "A colour?", "chosen": ["abcd"], "rejected": ["a"]},
    {"id": "tied:5", "subset": "Ties", "prompt": "Colours?", "chosen": ["abcd", "abce"], "rejected": ["a", "b"]},
]


def letters(prompts: list[str], answers: list[str]) -> list[float]:
    return [float(len(answer)) for answer in answers]


def constant(prompts: list[str], answers: list[str]) -> list[float]:
    return [0.0 for _ in answers]


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return Path(write_jsonl(tmp_path / "bench.jsonl", ROWS))


def test_rewards_are_scored_by_subset(benchmark: Path, tmp_path: Path) -> None:
    result = tt.evaluate(
        model=f"{__name__}:letters", reward=constant, reward_bench=benchmark, out=tmp_path / "out", quiet=True
    )
    found = result.summary["reward_bench"]
    assert [one["score"] for one in found["letters"]["subsets"]] == pytest.approx([0.5, 1.01])
    assert [one["score"] for one in found["constant"]["subsets"]] == pytest.approx([0.25, 0.0])
    assert result.figures == {"letters": pytest.approx(0.755), "constant": pytest.approx(0.125)}
    lines = read_jsonl(tmp_path / "out" / "reward_bench.jsonl")
    assert lines[0]["scores_letters"] == [4.0, 1.0, 2.0, 3.0]
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == json.loads(json.dumps(result.summary))


def test_a_sequence_classifier_is_scored_by_its_own_scores(tiny_model, benchmark: Path, tmp_path: Path) -> None:
    model = new_reward_model(config.Model(tiny_model("llama"), device="cpu"), config.Lora(), seed=0)
    model.save(tmp_path / "rm")
    tt.evaluate(model=tmp_path / "rm", device="cpu", reward_bench=benchmark, out=tmp_path / "out", quiet=True)
    lines = read_jsonl(tmp_path / "out" / "reward_bench.jsonl")
    reward = tt.load_reward(tmp_path / "rm", device="cpu")
    row = ROWS[3]
    texts = [*row["chosen"], *row["rejected"]]
    own = reward(Completions([Prompt("p", user(str(row["prompt"])))] * 4, texts))
    assert lines[3]["scores_rm"] == pytest.approx(own.tolist(), abs=1e-4)  # batched with others


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"prompts": "p.jsonl"}, "--prompts"), ({"n": 2}, "--n is not"), ({"against": "model"}, "--against")],
)
def test_settings_that_are_not_about_rewards(settings, words, benchmark: Path, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match=words):
        tt.evaluate(model="rule:format", reward_bench=benchmark, out=tmp_path / "out", **settings)


def test_the_win_rate_at_equal_length_of_a_model_against_itself(tiny_model, tmp_path: Path) -> None:
    data, model = files(tmp_path / "data"), tiny_model("llama")
    result = tt.evaluate(
        model=model, against=model, device="cpu", prompts=data["prompts"], reward=letters, out=tmp_path / "out",
        sampling=tt.Sampling(temperature=1.0, max_new_tokens=8), quiet=True,
    )  # fmt: skip
    even = result.summary["win_rate"]["letters"]["length_controlled"]
    assert (even["value"], even["length_effect"]) == pytest.approx((0.5, 0.0))
    assert any(row["name"] == "win rate by letters at equal length" for row in result.summary["rows"])


def test_lengths_of_two_vocabularies_compare_as_texts() -> None:
    """A model that writes the other's texts in other tokens has no extra length, and wins half at any reward."""
    prompts, texts = [Prompt(str(n), user("Why?")) for n in range(6)], [f"{'so ' * n}." for n in range(6)]
    sides = [
        Side(name, SimpleNamespace(prompts=prompts, texts=own), {"letters": [float(len(text)) for text in own]}, {})  # type: ignore[arg-type]
        for name, own in (("model", texts), ("against", texts[::-1]))
    ]
    own, swapped = (_win_rates(*pair)["letters"]["length_controlled"] for pair in (sides, sides[::-1]))
    assert own["value"] == pytest.approx(1 - swapped["value"])
    assert own["length_effect"] == pytest.approx(swapped["length_effect"])
    assert own["length_effect"] > 1
    assert _win_rates(sides[0], sides[0])["letters"]["length_controlled"]["length_effect"] == 0


ROW = {"id": "12", "subset": "Math", "prompt": "1 + 1?", "chosen": ["2"], "rejected": ["1", "3", "4"]}
EXTRA = {"num_correct": 1, "total_completions": 4, "models": ["a", "b"], "additional_metadata": {"x": 1}}


def test_a_row_of_the_published_form(tmp_path: Path) -> None:
    tie = ROW | {"id": "tied:3", "subset": "Ties", "chosen": ["red", "blue"], "num_correct": 2}
    one, other = load_benchmark(write_jsonl(tmp_path / "rows.jsonl", [ROW | EXTRA, tie])).records
    assert (one.completions, one.correct, one.prompt[0].content) == (("2", "1", "3", "4"), 1, "1 + 1?")
    assert not one.has_ties
    assert (other.has_ties, other.tie, other.correct) == (True, ("tied", 3), 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_correct": 2}, "num_correct is 2"),
        ({"total_completions": 3}, "total_completions is 3"),
        ({"chosen": "2"}, "chosen"),
        ({"rejected": []}, "rejected"),
        ({"subset": "Ties"}, "neither ref:N nor tied:N"),
        ({"subset": "Ties", "id": "tied:1"}, "tied:1 has 1 correct"),
    ],
)
def test_a_row_that_is_none(change: dict[str, object], words: str, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "rows.jsonl", [ROW, ROW | {"id": "13"} | change])
    with pytest.raises(TutelageError, match=f"{words}(.|\n)*line 2|line 2(.|\n)*{words}"):
        load_benchmark(file)


def test_an_id_that_repeats(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="'12' repeats"):
        load_benchmark(write_jsonl(tmp_path / "rows.jsonl", [ROW, ROW]))

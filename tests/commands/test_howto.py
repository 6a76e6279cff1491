"""The commands of the how-to pages run in their order, on a tiny model and on small files in place of the reader's."""

import json
import sys

import pytest
from docs.fences import ROOT, commands
from tiny_commands import TOPICS, rate, write_jsonl

from tutelage.commands.line import main

ASKED = [f"What is {topic}{mark}" for topic in TOPICS for mark in "?!"]
SMALL = {
    "sft": "--optimiser.lr 1e-3 --epochs 1 --samples 1 --rouge 1 --sampling.max-new-tokens 4",
    "reward": "--epochs 1 --batch-size 8",
    "improve": "--steps 2 --optimiser.lr 3e-2 --batch-size 4 --sampling.max-new-tokens 4",
    "dpo": "--epochs 1 --batch-size 8",
    "sample": "--sampling.max-new-tokens 4",
    "evaluate": "--sampling.max-new-tokens 4",
}
"""What makes a command quick; none of it is on the pages, because a reader's own is not."""


@pytest.fixture
def reader(tiny_model, tmp_path, monkeypatch):
    """The folder of a reader with the files that the pages name, and a function that runs a page's commands."""
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "demonstrations.jsonl", [{"prompt": q, "completion": "It is far."} for q in ASKED])
    pairs = [{"prompt": q, "chosen": "A star.", "rejected": f"No {n}."} for n, q in enumerate(ASKED)]
    write_jsonl(tmp_path / "pairs.jsonl", pairs)
    write_jsonl(tmp_path / "prompts.jsonl", [{"prompt": q} for q in ASKED[:10]])
    write_jsonl(tmp_path / "held_out.jsonl", [{"prompt": q} for q in ASKED[:4]])
    rows = [{"prompt": "What is 3 + 4?", "solution": "7"}, {"prompt": "What is 2 + 2?", "solution": "4"}]
    write_jsonl(tmp_path / "sums.jsonl", rows)
    votes = [f"{q},A star {n}.,No {n}.,{who},{1 + n % 2}" for n, q in enumerate(ASKED) for who in "xy"]
    (tmp_path / "table.csv").write_text("\n".join(["instruction,output_1,output_2,annotator,label", *votes]) + "\n")
    (tmp_path / "votes.csv").write_text("item,rater,choice\n" + "".join(f"{n},x,a\n{n},y,b\n" for n in range(9)))
    return lambda page: run(page, tiny_model("llama"))


def run(page, model):
    """Run the commands of a page but those that wait for people; raters answer where `collect serve` would listen."""
    quick = {name: f"{flags} --model.device cpu --quiet".split() for name, flags in SMALL.items()}
    quick["iterate"] = ["--sampling.max-new-tokens", "4"]
    for command in commands(ROOT / "docs" / "howto" / page):
        name, *words = (word.replace("path/to/model", model) for word in command.words)
        if (name, words[0]) == ("collect", "serve"):
            rate(words[1])
            continue
        if (name, words[0]) == ("collect", "import"):
            words = [word.replace("votes.csv", "table.csv") for word in words]
        words += quick.get(name, [])
        assert main([name, *words]) in ((0, 1) if name == "doctor" else (0,)), command


def test_the_way_of_a_team_runs(reader, tmp_path):
    reader("align_to_a_team.md")
    assert "runs/evaluation" in {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("report.html")}
    assert json.loads((tmp_path / "runs/reward/summary.json").read_text())["pairs"] > 0


def test_the_way_from_votes_runs(reader, tiny_model, tmp_path):
    (tmp_path / "runs" / "sft").mkdir(parents=True)
    (tmp_path / "runs/sft/model").symlink_to(tiny_model("llama"))
    reader("votes_to_reward.md")
    assert (tmp_path / "runs/reward/report.html").is_file()


def test_the_way_of_a_reward_of_ones_own_runs(reader, tiny_model, tmp_path, monkeypatch):
    text = (ROOT / "docs/howto/custom_reward.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "my_rewards.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    (tmp_path / "runs" / "sft").mkdir(parents=True)
    (tmp_path / "runs/sft/model").symlink_to(tiny_model("llama"))
    reader("custom_reward.md")
    assert (tmp_path / "runs/sums/samples.jsonl").read_text()

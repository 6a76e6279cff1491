"""The commands of the how-to pages run in their order, on a tiny model and on small files in place of the reader's."""

import json
import sys

import httpx
import pytest
from docs.fences import ROOT, commands
from tiny_commands import TOPICS, rate, write_jsonl

import tutelage as tt
from tutelage.commands import watch
from tutelage.commands.line import main
from tutelage.people import list_votes, open_store, open_study

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
        if name == "serve":
            use(dict(zip(words[::2], words[1::2], strict=True)))
            continue
        if name == "watch":
            words = [f"{word} {' '.join(quick[word.split()[1]])}" if " " in word else word for word in words]
        if (name, words[0]) == ("collect", "import"):
            words = [word.replace("votes.csv", "table.csv") for word in words]
        words += quick.get(name, [])
        assert main([name, *words]) in ((0, 1) if name in ("doctor", "promote") else (0,)), command


def use(flags):
    """Serve a model to users who want stars: they say what they think of an answer, write a better one, choose."""
    settings = {flag.removeprefix("--"): value for flag, value in flags.items()}
    settings |= {"split": float(settings["split"])} if "split" in settings else {}
    with (
        tt.serve(**settings, port=0, max_new_tokens=12) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        sha256 = client.get("/v1/feedback").json()["consent"]["sha256"]
        for number, asked in enumerate(ASKED):
            user = {"user": f"user {number % 10}"}
            body = user | {"messages": [{"role": "user", "content": asked}], "max_tokens": 4, "store": True}
            body["metadata"] = {"consent": sha256}
            first, second = (client.post("/v1/chat/completions", json=body).json()["id"] for _ in range(2))
            said = user | {"thumb": ("up", "down")[number % 2], "better": f"A star {number}.", "preferred": second}
            assert client.post("/v1/feedback", json={"completion": first} | said).status_code == 200


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


def test_the_way_from_use_to_an_offer_runs(reader, tiny_model, tmp_path, monkeypatch, capsys):
    """Raters confirm, a model learns from it, users compare it with the present one, and the decision is left open."""
    (tmp_path / "runs" / "sft").mkdir(parents=True)
    (tmp_path / "runs/sft/model").symlink_to(tiny_model("llama"))
    monkeypatch.setattr(watch, "run", lambda words: main(words[3:]))  # in this process: its imports take seconds
    reader("learning_from_use.md")
    told = capsys.readouterr().out
    store = open_store(tmp_path / "runs/use/study.sqlite")
    study = open_study(store)
    assert {vote.chosen_by == "use" for vote in list_votes(store, study.id)} == {True, False}
    store.close()
    assert json.loads((tmp_path / "runs/reward/summary.json").read_text())["pairs"] > 0
    assert "tutelage promote runs/ppo --outcomes runs/use --split 0.1" in told
    assert "runs/ppo is not promoted" in told
    assert not (tmp_path / "runs/ppo/promotions.json").exists()

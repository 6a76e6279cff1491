"""Before the first step of a run: a disk that is full, a batch that is larger than the data, weights of 0."""

import shutil
from collections import namedtuple
from dataclasses import replace

import pytest
from learning_commands import dpo_settings, preferences, rejection_settings, singles
from tiers import long_except
from tiny_commands import files, improve_settings, reward_settings, sft_settings, write_jsonl

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.runs import check_disk
from tutelage.commands.table import find
from tutelage.models.backbone import load_backbone
from tutelage.models.heads import new_reward_model
from tutelage.models.policy import Policy

dpo = find("dpo")
improve = find("improve")
pretrain = find("pretrain")
rejection = find("rejection")
reward = find("reward")
sft = find("sft")

PLAIN = {"engine": "plain", "device": "cpu"}


@pytest.fixture
def begin(tiny_model, tmp_path):
    """`begin(command, **settings)`: run a command that trains."""
    base, data, out = tiny_model("llama"), files(tmp_path / "data"), tmp_path / "run"
    pairs, text = preferences(tmp_path / "p.jsonl"), tmp_path / "text.txt"
    text.write_text("\n\n".join(f"The sun is {n} stars." for n in range(30)), encoding="utf-8")
    usual = {"data": str(text), "model": base, **PLAIN, "out": out, "quiet": True, "max_length": 32}
    plain = {"model": config.Model(base, **PLAIN)}
    made = {
        "sft": (sft, sft_settings(base, data, out, **plain)),
        "pretrain": (pretrain, pretrain.settings(**usual)),
        "reward": (reward, reward_settings(base, data, out, **plain)),
        "improve": (improve, improve_settings(base, data, out, **plain)),
        "dpo": (dpo, dpo_settings(base, out, data=pairs, **plain)),
        "rejection": (rejection, rejection_settings(base, data["prompts"], out, **plain)),
    }
    return lambda name, **more: made[name][0].main(replace(made[name][1], **more))


@pytest.mark.parametrize(
    "name", long_except(["sft", "improve"], ["pretrain", "sft", "reward", "improve", "dpo", "rejection"])
)
def test_a_disk_that_is_full_from_the_start(begin, monkeypatch, tmp_path, name):
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 50_000, 50_000))
        with pytest.raises(
            TutelageError, match=r"run has 0.1 MB free, but a checkpoint .* at least 0.\d MB: free space"
        ):
            begin(name)
    assert not (tmp_path / "run" / "metrics.jsonl").read_text()
    assert begin(name, resume=True) == 0


class Run:
    """As much of a run as the check of its disk reads."""

    path = "there"
    start = 0


@pytest.mark.parametrize("rank", [0, 2])
def test_the_room_that_is_needed(tiny_model, monkeypatch, rank):
    """4 bytes for every weight of the final models; for every trained one 16 in a checkpoint."""
    base = config.Model(tiny_model("llama"), **PLAIN)
    policy = Policy(load_backbone(base, config.Lora(rank=rank)))
    critic = new_reward_model(base, config.Lora(), seed=0)
    every = [weight.numel() for model in (policy, critic) for weight in model.model.parameters()]
    trained = [weight.numel() for model in (policy, critic) for weight in model.parameters()]
    assert (sum(trained) < sum(every)) == bool(rank)
    needed = 4 * sum(every) + 16 * sum(trained)
    usage = namedtuple("usage", "total used free")

    def check(free, start=0):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 0, free))
        monkeypatch.setattr(Run, "start", start)
        check_disk(Run(), policy, critic)

    check(needed)
    with pytest.raises(TutelageError, match=f"at least {needed / 1e6:,.1f} MB: free space"):
        check(needed - 1)
    check(0, start=1)  # a run that goes on has its checkpoints


@pytest.mark.parametrize(
    ("name", "what"),
    [("pretrain", "rows"), ("sft", "18 rows"), ("reward", "18 pairs"), ("improve", "8 prompts"), ("dpo", "18 pairs")],
)
def test_a_batch_that_is_larger_than_the_data(begin, capsys, name, what):
    assert begin(name, batch_size=64, quiet=False) == 0
    said = capsys.readouterr().err
    assert "--batch-size is 64, but there are only" in said
    assert f"{what}: every step takes all of them." in said
    assert begin(name, batch_size=64, quiet=False) == 0
    assert "--batch-size" not in capsys.readouterr().err, "a finished run has no batches"


def test_a_batch_of_all_rows_is_nothing_to_remark_on(begin, capsys):
    assert begin("improve", batch_size=8, quiet=False, steps=1) == 0
    assert "--batch-size" not in capsys.readouterr().err


def test_single_answers_and_prompts_of_a_round(begin, capsys, tmp_path):
    data = singles(tmp_path / "s.jsonl")
    assert begin("dpo", data=data, unpaired=True, loss="kto", batch_size=64, quiet=False) == 0
    assert "there are only 36 answers: every step" in capsys.readouterr().err
    more = {"out": tmp_path / "other", "rounds": 1, "prompts_per_round": 50, "quiet": False}
    assert begin("rejection", **more) == 0
    assert "--prompts-per-round is 50, but there are only 6 prompts." in capsys.readouterr().err


def test_a_batch_of_answers_says_what_it_counts(begin, capsys, tmp_path):
    turns = [("user", "Why?"), ("assistant", "So."), ("user", "How?"), ("assistant", "Thus.")]
    messages = [{"role": role, "content": text} for role, text in turns]
    file = write_jsonl(tmp_path / "talks.jsonl", [{"messages": messages} for _ in range(4)])
    assert begin("sft", data=file, answers="every", batch_size=2, held_out=0.0, quiet=False) == 0
    assert "8 answers of 4 conversations. --batch-size 2 counts answers" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["reward", "dpo", "sft"])
def test_rows_that_weigh_nothing(begin, tmp_path, name):
    column = "completion" if name == "sft" else "chosen"
    rows = [{"prompt": f"Why {n}?", column: "So.", "rejected": "No.", "weight": 0} for n in range(9)]
    file = write_jsonl(tmp_path / "light.jsonl", rows)
    with pytest.raises(TutelageError, match=r"light.jsonl.* weight 0"):
        begin(name, data=file)
    file = write_jsonl(
        tmp_path / "light.jsonl",
        [rows[0] | {"weight": 1, "prompt": "a"}, *rows, rows[0] | {"weight": 1, "prompt": "b"}],
    )
    assert begin(name, data=file, out=tmp_path / "other") == 0

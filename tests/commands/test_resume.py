"""A run that was interrupted anywhere and resumed is, bit for bit, the run that was not."""

import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forked import command
from safetensors.torch import load_file
from tiers import long_except
from tiny_commands import (
    distill_settings,
    files,
    improve_settings,
    model,
    read_jsonl,
    reward_settings,
    sft_settings,
    write_jsonl,
)

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.table import find
from tutelage.data.formats import load_preferences
from tutelage.data.pairing import split_by_prompt
from tutelage.models.heads import load_reward_model, new_reward_model
from tutelage.rollout.local import LocalGenerator
from tutelage.train.learner import Learner
from tutelage.train.run.checkpoints import CheckpointFolder
from tutelage.train.run.folder import Run
from tutelage.train.run.interrupt import Interrupted
from tutelage.train.supervised.batches import encode_preferences
from tutelage.train.supervised.reward_model import preference_figures

distill = find("distill")
improve = find("improve")
reward = find("reward")
sft = find("sft")

EVERY_TWO = config.Checkpoints(every=2, keep=2)


class Crash(Exception):
    """What happens to the machine."""


def same(one, other):
    """Whether two nests of tensors, numbers and texts are equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def without_times(rows):
    return [{k: v for k, v in row.items() if k not in ("seconds", "tokens_per_second")} for row in rows]


def assert_same_run(one: Path, other: Path):
    """Model, optimiser, critic, controllers, metrics and samples are equal."""
    for name in ("metrics.jsonl", "samples.jsonl"):
        if (one / name).exists() or (other / name).exists():
            assert without_times(read_jsonl(one / name)) == without_times(read_jsonl(other / name)), name
    steps = sorted(folder.name for folder in (one / "checkpoints").iterdir())
    assert steps == sorted(folder.name for folder in (other / "checkpoints").iterdir())
    for step in steps:
        states = [torch.load(run / "checkpoints" / step / "state.pt", weights_only=True) for run in (one, other)]
        assert same(*states), f"the state of {step}"
    weights = sorted(file.relative_to(one) for file in one.rglob("*.safetensors"))
    assert weights == sorted(file.relative_to(other) for file in other.rglob("*.safetensors"))
    for file in weights:
        assert same(load_file(one / file), load_file(other / file)), file
    figures = [json.loads((run / "summary.json").read_text()) for run in (one, other)]
    for told in figures:
        for name in ("seconds", "tokens_per_second", "peak_rss_mb"):
            told.pop(name, None)
    assert figures[0] == figures[1]


def crash_in(monkeypatch, kind, name, when):
    """Let a method of a class fail the n-th time that it is called (counted from 1)."""
    original, calls = getattr(kind, name), iter(range(1, 1_000_000))

    def failing(self, *given, **named):
        if next(calls) == when:
            raise Crash
        return original(self, *given, **named)

    monkeypatch.setattr(kind, name, failing)


@pytest.fixture
def data(tmp_path):
    return files(tmp_path / "data")


def reward_folder(tiny_model, folder):
    if not folder.exists():
        new_reward_model(model(tiny_model("llama")), config.Lora(), seed=3).save(folder)
    return str(folder)


ADAPTIVE = (
    "penalty.controller=Adaptive",
    "penalty.controller.horizon=50",
    "penalty.controller.target=0.2",
    "update.minibatches=2",
    "update.epochs=2",
    "shaping.normalise=running",
)


def runs(tiny_model, tmp_path, data):
    """Of each kind a function out → (command, settings) with six steps."""
    common = {"checkpoints": EVERY_TWO}

    def fine_tuning(out, **changes):
        return sft, sft_settings(tiny_model("gpt2"), data, out, epochs=3, **common | changes)

    def rewarding(out, **changes):
        return reward, reward_settings(tiny_model("llama"), data, out, epochs=3, **common | changes)

    def improving(out, **changes):
        given = {"steps": 6, "set": ADAPTIVE, "tokens_at_once": 90, **common}
        return improve, improve_settings(tiny_model("llama"), data, out, **given | changes)

    def distilling(out, **changes):
        given = {"data": data["sft"], "on_policy": 0.5, "steps": 6, "tokens_at_once": 90, **common}
        settings = distill_settings(tiny_model("llama"), tiny_model("llama", seed=1), out, **given)
        return distill, replace(settings, **changes)

    adapter = config.Lora(rank=2)
    return {
        "sft": fine_tuning,
        "sft lora": lambda out, **c: fine_tuning(out, lora=config.Lora(rank=2, dropout=0.2), **c),
        "reward": rewarding,
        "reward lora": lambda out, **c: rewarding(out, lora=adapter, **c),
        "ppo": lambda out, **c: improving(out, ptx=data["sft"], set=(*ADAPTIVE, "ptx=0.3"), **c),
        "ppo lora": lambda out, **c: improving(out, lora=adapter, **c),
        "ppo lora network": lambda out, **c: improving(
            out, lora=adapter, critic="network", reward=(reward_folder(tiny_model, tmp_path / "rm"),), **c
        ),
        "distill": distilling,
        "distill lora": lambda out, **c: distilling(out, lora=adapter, **c),
    }


KINDS = ("sft", "sft lora", "reward", "reward lora", "ppo", "ppo lora network", "distill", "distill lora")
"""The kinds of runs that crash in the middle; "ppo lora" is killed and stopped by signals, and crashes at its end."""


@pytest.mark.parametrize("kind", long_except(("reward lora", "ppo"), KINDS))
def test_a_run_that_crashed_three_times_is_the_run_that_did_not(tiny_model, tmp_path, data, monkeypatch, kind):
    """Before the first checkpoint; in the middle of a later step; while the last checkpoint is written."""
    make = runs(tiny_model, tmp_path, data)[kind]
    command, settings = make(tmp_path / "whole")
    assert command.main(settings) == 0
    torch.rand(17)  # nothing may hang on the global generator
    rounds = 4 if kind.startswith("ppo") else 1  # optimiser steps of one step of the loop
    for where in (
        (Learner, "update", rounds + 1),  # in step 2
        (Learner, "update", 4 * rounds + 1),  # in step 5 of all, which is the fifth of this session
        (CheckpointFolder, "write", 1),  # at step 6
    ):
        command, settings = make(tmp_path / "broken", resume=where[2] != rounds + 1)
        with monkeypatch.context() as patch:
            crash_in(patch, *where)
            with pytest.raises(Crash):
                command.main(settings)
    command, settings = make(tmp_path / "broken", resume=True)
    assert command.main(settings) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize("file", long_except(["state.pt"], ["state.pt", "model.safetensors", "config.json"]))
def test_a_run_whose_newest_checkpoint_is_cut_off_is_the_run_that_did_not_crash(
    tiny_model, tmp_path, data, monkeypatch, capsys, file
):
    make = runs(tiny_model, tmp_path, data)["sft"]
    command, settings = make(tmp_path / "whole")
    command.main(settings)
    command, settings = make(tmp_path / "broken")
    with monkeypatch.context() as patch:
        crash_in(patch, Learner, "update", 5)
        with pytest.raises(Crash):
            command.main(settings)
    damaged = tmp_path / "broken" / "checkpoints" / "step-4" / file
    damaged.write_bytes(damaged.read_bytes()[:-10])
    command, settings = make(tmp_path / "broken", resume=True)
    assert command.main(settings) == 0
    assert f"step 4 is damaged ({file}" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "broken" / "checkpoints" / "damaged-step-4")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize(
    ("kind", "file"),
    long_except(
        [("sft", "sft"), ("ppo", "prompts")], [("sft", "sft"), ("reward", "pairs"), ("ppo", "prompts"), ("ppo", "sft")]
    ),
)
def test_other_rows_than_those_of_the_start_are_refused(tiny_model, tmp_path, data, monkeypatch, kind, file):
    make = runs(tiny_model, tmp_path, data)[kind]
    command, settings = make(tmp_path / "run")
    with monkeypatch.context() as patch:
        crash_in(patch, Learner, "update", 1)
        with pytest.raises(Crash):
            command.main(settings)
    rows = read_jsonl(data[file])
    write_jsonl(Path(data[file]), rows[::-1])
    command, settings = make(tmp_path / "run", resume=True)
    with pytest.raises(TutelageError, match=r"The data changed since the run in .*run began: it read \d+ rows"):
        command.main(settings)
    write_jsonl(Path(data[file]), rows)
    assert command.main(settings) == 0


@pytest.mark.parametrize("kind", long_except(["sft", "reward"], ["sft", "reward", "ppo lora"]))
def test_a_run_that_crashed_after_its_last_step_only_has_to_finish(tiny_model, tmp_path, data, monkeypatch, kind):
    make = runs(tiny_model, tmp_path, data)[kind]
    command, settings = make(tmp_path / "whole")
    command.main(settings)
    command, settings = make(tmp_path / "broken")
    with monkeypatch.context() as patch:
        crash_in(patch, Run, "finish", 1)
        with pytest.raises(Crash):
            command.main(settings)
    command, settings = make(tmp_path / "broken", resume=True)
    command.main(settings)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_a_reward_model_that_stopped_early_stays_stopped(tiny_model, tmp_path, data, monkeypatch):
    """Learning at a rate that only harms: two looks without a better loss end the run, whenever it is resumed."""
    changes = {
        "epochs": 20,
        "evaluate_every": 1,
        "patience": 2,
        "optimiser": config.Optimiser(lr=0.3),
        "checkpoints": EVERY_TWO,
    }
    whole = reward_settings(tiny_model("llama"), data, tmp_path / "whole", **changes)
    reward.main(whole)
    steps = [row["step"] for row in read_jsonl(tmp_path / "whole" / "metrics.jsonl")]
    assert len(steps) < 20
    with monkeypatch.context() as patch:
        crash_in(patch, Run, "finish", 1)
        with pytest.raises(Crash):
            reward.main(reward_settings(tiny_model("llama"), data, tmp_path / "broken", **changes))
    reward.main(reward_settings(tiny_model("llama"), data, tmp_path / "broken", resume=True, **changes))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_the_reward_model_that_is_kept_is_the_best_that_was_seen(tiny_model, tmp_path):
    """Labels without a pattern can only be learnt by heart, which makes the held-out loss rise again.

    With a look at every step and checkpoints far apart, the model is that of the look with the lowest loss.
    """
    chance = random.Random(0)

    def words():
        return " ".join(chance.choice(["sun", "rain", "sky", "star", "air"]) for _ in range(6))

    pairs = [{"prompt": f"What is {i}?", "chosen": words(), "rejected": words()} for i in range(40)]
    data = {"pairs": write_jsonl(tmp_path / "chance.jsonl", pairs)}
    settings = reward_settings(
        tiny_model("llama"),
        data,
        tmp_path / "run",
        epochs=6,
        evaluate_every=1,
        patience=0,
        held_out=0.3,
        optimiser=config.Optimiser(lr=0.1),
        checkpoints=config.Checkpoints(every=0),
    )
    reward.main(settings)
    losses = [row["held_out/loss"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl")]
    assert min(losses) < losses[-1], "the last look is not the best, or this tests nothing"
    kept = load_reward_model(model(tmp_path / "run" / "model"))
    _, aside = split_by_prompt(load_preferences(data["pairs"]).records, 0.3, 0)
    pairs, _ = encode_preferences(aside, kept.tokenizer, 64)
    margin = preference_figures(kept, pairs, 10_000)["loss"]
    assert margin == pytest.approx(min(losses), rel=0.05), "centring changes differences a little"


@pytest.mark.parametrize(
    ("place", "name", "call", "last", "calls_in_all"),
    [
        pytest.param(LocalGenerator, "generate", 4, 3, 4, id="in a rollout: at once", marks=pytest.mark.long),
        pytest.param(
            Learner, "update", 14, 4, 16, id="between two updates of step 4: at its end", marks=pytest.mark.long
        ),
        pytest.param(CheckpointFolder, "write", 2, 4, 3, id="while a checkpoint is written"),
    ],
)
def test_a_run_that_was_stopped_is_the_run_that_was_not(
    tiny_model, tmp_path, data, monkeypatch, place, name, call, last, calls_in_all
):
    make = runs(tiny_model, tmp_path, data)["ppo lora"]
    command, settings = make(tmp_path / "whole")
    command.main(settings)
    command, settings = make(tmp_path / "broken")
    original, calls = getattr(place, name), iter(range(1, 1_000_000))

    def signalling(self, *given, **named):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *given, **named)

    monkeypatch.setattr(place, name, signalling)
    with pytest.raises(Interrupted, match=f"Stopped after step {last}; everything is"):
        command.main(settings)
    assert read_jsonl(tmp_path / "broken" / "metrics.jsonl")[-1]["step"] == last
    assert next(calls) == calls_in_all + 1
    monkeypatch.undo()
    command.main(replace(settings, resume=True))
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_a_second_signal_stops_within_a_step_and_says_what_is_kept(tiny_model, tmp_path, data, monkeypatch):
    command, settings = runs(tiny_model, tmp_path, data)["ppo lora"](tmp_path / "run")
    original = Learner.update

    def signalling(self):
        figures = original(self)
        if self.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return figures

    monkeypatch.setattr(Learner, "update", signalling)
    with pytest.raises(Interrupted, match=r"within step 4\. Kept is the checkpoint .*step-2\. Continue with"):
        command.main(settings)


# Real signals to real processes -----------------------------------------------------------------------------


def start(settings, run_folder):
    """The command in a process of its own, with the settings of a file and a reward that takes its time."""
    file = run_folder.parent / f"{run_folder.name}.json"
    config.save(settings, file)
    return command(["improve", "--config", str(file)], TUTELAGE_TEST_WAIT="0.3")


def wait_for_lines(process, file, count):
    """Until the run has done some steps."""
    deadline = time.monotonic() + 300
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_kill_9_and_ctrl_c(tiny_model, tmp_path, data):
    """One run killed, resumed, stopped politely and resumed again, in three processes, equals one that ran through."""
    make = runs(tiny_model, tmp_path, data)["ppo lora"]
    command, settings = make(tmp_path / "whole", steps=9)
    command.main(settings)

    _, settings = make(tmp_path / "broken", steps=9)
    killed = start(settings, tmp_path / "broken")
    wait_for_lines(killed, tmp_path / "broken" / "metrics.jsonl", 3)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "broken" / "summary.json").exists()

    _, settings = make(tmp_path / "broken", steps=9, resume=True)
    stopped = start(settings, tmp_path / "broken")
    wait_for_lines(stopped, tmp_path / "broken" / "metrics.jsonl", 5)
    stopped.send_signal(signal.SIGINT)
    _, told = stopped.communicate(timeout=300)
    assert stopped.returncode == 130, told
    last = read_jsonl(tmp_path / "broken" / "metrics.jsonl")[-1]["step"]
    assert last < 9
    assert f"Stopped after step {last}; everything is saved. Continue with: tutelage improve --config" in told
    assert told.split("Continue with:")[1].split()[-1].endswith("broken.json"), "the file says resume already"
    assert (tmp_path / "broken" / "checkpoints" / f"step-{last}").is_dir()
    assert "Traceback" not in told

    command, settings = make(tmp_path / "broken", steps=9, resume=True)
    assert command.main(settings) == 0
    # the polite stop left a checkpoint at its own step, so only what is kept at the end is compared
    for run in ("whole", "broken"):
        for folder in (tmp_path / run / "checkpoints").iterdir():
            assert folder.name in ("step-8", "step-9")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")

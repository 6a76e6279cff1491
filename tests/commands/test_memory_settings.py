"""The budget of tokens and the correction of the sampler as settings of the commands."""

import json

import pytest
import torch
from offenders import for_each
from safetensors.torch import load_file
from tiny_commands import files, improve_settings, model, read_jsonl, reward_settings, sft_settings

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.table import find
from tutelage.models import budget
from tutelage.models.policy import Policy
from tutelage.train.run.folder import Run

improve = find("improve")
reward = find("reward")
sft = find("sft")


def column(out, name):
    return [row[name] for row in read_jsonl(out / "metrics.jsonl") if name in row]


def test_the_number_that_was_chosen_is_told_and_kept(tiny_model, tmp_path, monkeypatch, capsys):
    """By memory where none is given, and by nothing else where one is."""
    data = files(tmp_path / "data")
    monkeypatch.setattr(budget, "available_memory", lambda device: 0.08 * 2.0**30)
    chosen, given = tmp_path / "chosen", tmp_path / "given"
    assert sft.main(sft_settings(tiny_model("gpt2"), data, chosen, quiet=False)) == 0
    tokens = int(column(chosen, "tokens_at_once")[0])
    assert 256 < tokens < 8192
    assert f"up to {tokens:,} tokens" in capsys.readouterr().err
    assert json.loads((chosen / "summary.json").read_text())["tokens_at_once"] == tokens
    settings = reward_settings(tiny_model("llama"), data, given, tokens_at_once=50_000, quiet=False)
    assert reward.main(settings) == 0
    assert set(column(given, "tokens_at_once")) == {50_000}
    assert "--tokens-at-once" not in capsys.readouterr().err


def test_a_run_that_goes_on_keeps_the_number_that_memory_allowed(tiny_model, tmp_path, monkeypatch):
    """Memory runs out in the first step; what comes after a crash is, bit for bit, what came without one."""
    data, folder = files(tmp_path / "data"), tiny_model("llama")

    def settings(out, **more):
        every = config.Checkpoints(every=2, keep=2)
        given = {"steps": 4, "tokens_at_once": 120, "checkpoints": every, "set": ("update.epochs=2",)}
        return improve_settings(folder, data, out, **given | more)

    def short_of_memory(patch):
        original = Policy.scores

        def scores(policy, rows, **settings):
            if int(rows.lengths().sum()) > 70:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return original(policy, rows, **settings)

        patch.setattr(Policy, "scores", scores)

    whole, parted = tmp_path / "whole", tmp_path / "parted"
    with monkeypatch.context() as patch:
        short_of_memory(patch)
        assert improve.main(settings(whole)) == 0
    with monkeypatch.context() as patch:
        short_of_memory(patch)
        log = Run.log

        def crash(run, step, metrics):
            if step == 4:
                raise KeyboardInterrupt
            log(run, step, metrics)

        patch.setattr(Run, "log", crash)
        with pytest.raises(KeyboardInterrupt):
            improve.main(settings(parted))
    assert improve.main(settings(parted, resume=True)) == 0
    numbers = column(whole, "tokens_at_once")
    assert numbers[0] < 120
    assert numbers == [numbers[0]] * 4 == column(parted, "tokens_at_once")
    one, other = (load_file(out / "model" / "model.safetensors") for out in (whole, parted))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_truncated_importance_sampling_from_the_command_line(tiny_model, tmp_path):
    bf16 = config.Model(tiny_model("llama"), dtype="bf16", device="cpu")
    data = files(tmp_path / "data")
    told = improve_settings("replaced", data, tmp_path / "out", model=bf16, mismatch="truncated", recipe="rloo")
    assert improve.main(told) == 0
    for row in read_jsonl(tmp_path / "out" / "metrics.jsonl"):
        assert 0 < row["sampler/mismatch"] < 0.05
        assert row["sampler/truncated"] == 0.0


@for_each(
    [
        ({"mismatch": "truncated"}, "In float32 the sampler's probabilities are those of training"),
        ({"mismatch": "recompute"}, "would correct nothing"),
        ({"mismatch_cap": 3.0}, "--mismatch-cap bounds the weights of --mismatch truncated"),
        ({"mismatch_cap": 0.5}, "must be at least 1.0"),
        ({"mismatch": "truncated", "recipe": "gspo", "bf16": True}, "weights a whole response by one ratio"),
        ({"tokens_at_once": 0}, "--tokens-at-once is 0; it must be at least 1"),
    ]
)
def test_settings_out_of_range_are_refused(changes, why, tiny_model, tmp_path):
    data = files(tmp_path / "data")
    given = dict(changes)
    half = given.pop("bf16", False)
    base = model(tiny_model("llama"))
    given["model"] = config.Model(base.path, dtype="bf16" if half else "float32", device="cpu")
    with pytest.raises(TutelageError, match=why):
        improve.main(improve_settings("replaced", data, tmp_path / "out", **given))

"""Workflows whose answers come from servers."""

import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from learning_commands import online_settings, questions, rejection_settings
from offenders import for_each
from safetensors.torch import load_file
from served import serving
from tiers import long_except
from tiny_commands import files, improve_settings, model, read_jsonl
from vllm_stub import VllmStub, install_llm

import tutelage as tt
from tutelage.base import config
from tutelage.base.config.bases import EpisodeSettings
from tutelage.base.errors import TutelageError
from tutelage.commands.generators import environment_of, fixed_generator
from tutelage.engines.ranks.ranks import Ranks
from tutelage.rollout.generator import RolloutError


@pytest.fixture
def data(tmp_path):
    return files(tmp_path / "data")


@pytest.fixture
def serve(tiny_model, monkeypatch):
    """`serve(stub, ...)`: the addresses of stubs, for --rollouts."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with ExitStack() as stack:
        yield lambda *stubs: ",".join(stack.enter_context(serving(stub)).url for stub in stubs)


def settings_of(base, data, out, **more):
    """Three steps of GRPO."""
    usual = improve_settings(base, data, out, **{"recipe": "grpo", "steps": 3, "set": (), "batch_size": 4} | more)
    return replace(usual, checkpoints=config.Checkpoints(every=0))


def final(out):
    return load_file(out / "model" / "model.safetensors")


@pytest.mark.parametrize("rank", long_except([2], [0, 2]))
def test_a_run_whose_servers_are_lost_is_saved_and_goes_on_with_others(tiny_model, tmp_path, data, serve, rank):
    """The run with two servers that fail in its third step, and go on with another, is the run with one that lives."""
    base, lora = tiny_model("llama"), config.Lora(rank=rank)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    alive = serve(VllmStub(base))
    tt.improve(settings_of(base, data, whole, lora=lora, rollouts=alive))
    stubs = [VllmStub(base, answers_left=4) for _ in range(2)]  # a probe and two prompts in each step
    settings = settings_of(base, data, broken, lora=lora, rollouts=serve(*stubs))
    with pytest.raises(RolloutError, match=r"No rollout server is left.*up to step 1 is saved.*--resume"):
        tt.improve(settings)
    again = replace(settings, rollouts=serve(VllmStub(base)), resume=True)
    assert tt.improve(again).out == broken
    one, other = final(whole), final(broken)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert len(read_jsonl(broken / "metrics.jsonl")) == 3


def test_a_server_of_another_model_of_the_same_shape_keeps_its_weights(tiny_model, tmp_path, data, serve):
    base, twin = tiny_model("llama"), shutil.copytree(tiny_model("llama"), tmp_path / "twin")
    other = VllmStub(tiny_model("llama", seed=1))
    before = other.policy
    settings = settings_of(base, data, tmp_path / "run", steps=1)
    with pytest.raises(TutelageError, match=rf"serves {other.model}, not {base}"):
        tt.improve(replace(settings, rollouts=serve(other)))
    assert other.policy is before
    tt.improve(replace(settings, rollouts=serve(VllmStub(twin))))  # the same weights under another name


@pytest.mark.parametrize("rank", long_except([0], [0, 2]))
def test_rollouts_ahead_from_our_own_server(tiny_model, tmp_path, data, rank):
    """Every token is of a version that --staleness 1 allows, and has the log-probability of that version."""
    base, lora = tiny_model("llama"), config.Lora(rank=rank)
    with tt.serve(model=base, port=0, weight_updates=True) as server:
        tt.improve(settings_of(base, data, tmp_path / "run", lora=lora, rollouts=server.url, staleness=1, steps=4))
    rows = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 4
    assert all(0 <= row["staleness/mean"] <= row["staleness/max"] <= 1 for row in rows)
    fresh = [row["sampler/kl"] for row in rows if row["staleness/max"] == 0]
    assert fresh
    assert max(fresh) < 1e-6


def test_a_resumed_run_may_leave_its_servers(tiny_model, tmp_path, data, serve):
    base = tiny_model("llama")
    settings = settings_of(base, data, tmp_path / "run", rollouts=serve(VllmStub(base, answers_left=7)))
    with pytest.raises(RolloutError):
        tt.improve(settings)
    assert tt.improve(replace(settings, rollouts="", resume=True)).metrics["step"] == 3


def test_answers_of_servers_for_other_commands(tiny_model, tmp_path, data, serve):
    base, sampling = tiny_model("llama"), config.Sampling(max_new_tokens=6)
    stub = VllmStub(base)
    common = {"model": model(base), "prompts": data["prompts"], "rollouts": serve(stub), "quiet": True}
    common["sampling"] = sampling
    sampled = tt.sample(tt.SampleSettings(**common, out=tmp_path / "sample", n=2))
    assert sampled.answers == 16
    measured = tt.evaluate(tt.EvaluateSettings(**common, out=tmp_path / "evaluate", against=base))
    assert abs(measured.figures["kl"]) < 1e-3
    assert stub.label == "default", "no weights are handed over for answers of a fixed model"


@pytest.mark.parametrize("rank", long_except([2], [0, 2]))
def test_rollouts_of_vllm_in_this_process(tiny_model, tmp_path, data, monkeypatch, rank):
    """A run that trains on them, and an evaluation of a fixed model with them."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    install_llm(monkeypatch)
    base = tiny_model("llama")
    trained = tt.improve(settings_of(base, data, tmp_path / "run", lora=config.Lora(rank=rank), rollouts="vllm"))
    assert trained.metrics["step"] == 3
    assert not (tmp_path / "run" / "weights").exists()
    settings = {"model": model(base), "prompts": data["prompts"], "rollouts": "vllm", "quiet": True}
    settings |= {"sampling": config.Sampling(max_new_tokens=6), "out": tmp_path / "evaluate", "against": base}
    assert abs(tt.evaluate(tt.EvaluateSettings(**settings)).figures["kl"]) < 1e-3


def test_what_vllm_in_this_process_cannot_do_is_refused(tiny_model, tmp_path, data):
    with pytest.raises(TutelageError, match="one process, and this run has 2"):
        fixed_generator("vllm", None, config.Sampling(), Ranks(size=2))
    lora = config.Lora(rank=2, targets="q_proj,lm_head")
    settings = settings_of(tiny_model("qwen3"), data, tmp_path / "run", lora=lora, rollouts="vllm")
    with pytest.raises(TutelageError, match=r"--rollouts vllm .* lm_head \(--lora\.targets\)"):
        tt.improve(settings)
    with pytest.raises(TutelageError, match="sample loads none"):
        tt.SampleSettings(model=model("m"), prompts="p", out=tmp_path, rollouts="vllm")


def test_whole_models_are_not_handed_over_to_servers_that_tie_what_has_an_adapter(tiny_model, tmp_path, data, serve):
    base, lora = tiny_model("qwen3"), config.Lora(rank=2, targets="q_proj,lm_head")
    settings = settings_of(base, data, tmp_path / "run", lora=lora, rollouts=serve(VllmStub(base)), sync="disk")
    with pytest.raises(TutelageError, match=r"--sync disk .* lm_head \(--lora\.targets\)"):
        tt.improve(settings)


@pytest.mark.parametrize("rank", long_except([2], [0, 2]))
def test_our_own_server_is_a_rollout_server(tiny_model, tmp_path, data, rank):
    """By the API that it shares with vLLM, as a run with a stub of vLLM has it."""
    base = tiny_model("llama")
    with tt.serve(model=base, engine="plain", port=0, name="m", weight_updates=True) as server:
        settings = settings_of(base, data, tmp_path / "run", lora=config.Lora(rank=rank), rollouts=server.url)
        found = tt.improve(settings)
    assert found.metrics["step"] == 3


@pytest.mark.parametrize(("command", "rank"), long_except([("dpo", 2)], [("dpo", 2), ("rejection", 0)]))
def test_every_round_of_own_answers_comes_from_the_newest_weights(tiny_model, tmp_path, serve, command, rank):
    """The first round is that of a local run up to the streams; every look and every round has weights of its own."""
    base, prompts = tiny_model("llama"), questions(tmp_path / "prompts.jsonl")
    settings = {"dpo": online_settings, "rejection": rejection_settings}[command]
    stub, more = VllmStub(base), {"lora": config.Lora(rank=rank)}
    more["sampling"] = config.Sampling(max_new_tokens=10, stop=("e",))  # so that answers end
    found = getattr(tt, command)(settings(base, prompts, tmp_path / "run", rollouts=serve(stub), **more))
    assert found.metrics["round"] == 2
    held_out = [row for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") if "held_out/score" in row]
    assert held_out
    newest = stub.label if not rank else next(iter(stub.adapters))
    assert int(newest.rpartition("-")[2]) == 1 + len(held_out)


@for_each(
    [
        ({"sync": "disk"}, "there are none"),
        ({"sync_folder": "x"}, "there are none"),
        ({"sync": "disk", "rollouts": "vllm"}, "there are none"),
        ({"staleness": 1, "rollouts": "vllm"}, "there are none"),
        ({"sync": "lora", "rollouts": "http://a"}, "sends an adapter, but --lora.rank is 0"),
        ({"sync": "nccl", "rollouts": "http://a", "lora": config.Lora(rank=2)}, "use --sync lora"),
        ({"sync": "nccl", "rollouts": "http://a", "sync_folder": "x"}, "writes no folder"),
    ]
)
def test_settings_that_contradict_each_other(changes, told, tmp_path, data):
    with pytest.raises(TutelageError, match=told):
        settings_of("base", data, tmp_path, **changes)


def test_an_endpoint_and_servers_together_are_refused(tmp_path, data):
    with pytest.raises(TutelageError, match="give one of the two"):
        tt.SampleSettings(model=model("m"), prompts="p", out=tmp_path, endpoint="http://a/v1", rollouts="http://b")


class Shop:
    """An environment whose reward is that of its turns."""

    def reset(self, **row):
        return None


class PayingShop(Shop):
    def get_reward(self):
        return 1.0


async def play(row, episode):
    return 1.0


@for_each(
    [
        ({"tools": ("calculator",)}, False),
        ({"agent": "true"}, False),
        ({"environment": "test_generators:Shop"}, False),
        ({"environment": "test_generators:PayingShop"}, True),
        ({"environment": "test_generators:play"}, True),
    ]
)
def test_an_environment_knows_whether_it_pays(settings, pays):
    assert environment_of(EpisodeSettings(**settings)).pays is pays

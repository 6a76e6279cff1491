"""Weights on their way to servers: they arrive, or it is said why not."""

from dataclasses import replace

import pytest
import torch
import vllm_stub
from tiers import long_except
from tiny_training import policy_of

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.fleet import Fleet
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.server_generator import ServerGenerator
from tutelage.rollout.server.weight_sync import WeightSync

PROMPTS = PromptTokens(((5, 6, 7), (8,)), ("a", "b"))
FREE = config.Sampling(temperature=0.7, max_new_tokens=8)


def sync_of(policy, how, folder, **more):
    save = policy.save if how == "lora" else policy.save_whole
    return WeightSync(how, save, folder, Probe(policy, 0.7), **more)


def moved(policy):
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn_like(parameter)


@pytest.mark.parametrize("scale_out", long_except([True], [True, False]))
@pytest.mark.parametrize(("how", "rank"), [("disk", 0), ("disk", 2), ("lora", 2)])
def test_after_every_handover_the_server_samples_from_the_new_weights(
    serve, tiny_model, tmp_path, how, rank, scale_out
):
    policy = policy_of(tiny_model("llama"), rank=rank)
    servers, _ = serve({"scale_out": scale_out}, {"scale_out": scale_out})
    generator = ServerGenerator(servers, policy, sync_of(policy, how, tmp_path))
    for version in range(3):
        generator.sync(version)
        rollout = generator.generate(PROMPTS, 4, FREE, seed=version)
        ours = policy.scores(rollout, temperature=0.7).logp
        assert float((rollout.logp - ours.detach())[rollout.mask].abs().max()) < 1e-4
        assert set(rollout.version[rollout.mask].tolist()) == {version}
        assert len(list(tmp_path.iterdir())) == (how == "lora"), "what no server needs is removed"
        moved(policy)


def test_adapters_that_nobody_asks_for_are_unloaded(serve, tiny_model, tmp_path):
    policy, stub = policy_of(tiny_model("llama"), rank=2), vllm_stub.VllmStub(tiny_model("llama"))
    sync, fleet = sync_of(policy, "lora", tmp_path, keep=2), Fleet(serve(stub)[0])
    for version in range(4):
        sync.push(fleet, version)
    assert [name.rpartition("-")[2] for name in stub.adapters] == ["2", "3"]


@pytest.mark.parametrize("how", ["disk", "lora"])
def test_a_server_that_did_not_take_over_the_weights_is_refused(serve, tiny_model, tmp_path, how):
    policy = policy_of(tiny_model("llama"), rank=2)
    generator = ServerGenerator(serve({"deaf": True})[0], policy, sync_of(policy, how, tmp_path))
    generator.sync(0)
    moved(policy)
    with pytest.raises(RolloutError, match=r"It has other weights.*a handover that did not arrive"):
        generator.sync(1)


def test_weights_that_this_run_did_not_put_there_are_refused(serve, tiny_model, tmp_path):
    """A server that was restarted, or that two runs use."""
    policy, stub = policy_of(tiny_model("llama")), vllm_stub.VllmStub(tiny_model("llama"))
    generator = ServerGenerator(serve(stub)[0], policy, sync_of(policy, "disk", tmp_path))
    generator.sync(0)
    stub.label = "other-3"
    with pytest.raises(RolloutError, match="the weights 'other-3', which this run did not put there"):
        generator.generate(PROMPTS, 1, FREE, seed=0)


@pytest.mark.parametrize(
    ("how", "fault", "told"),
    [
        ("disk", {"development": False}, "by --sync disk. Start it with VLLM_SERVER_DEV_MODE=1"),
        ("lora", {"lora": False}, "by --sync lora. Start it with --enable-lora, --max-lora-rank and"),
    ],
)
def test_a_server_without_the_needed_flags_is_refused_before_anything_is_written(
    serve, tiny_model, tmp_path, how, fault, told
):
    sync = sync_of(policy_of(tiny_model("llama"), rank=2), how, tmp_path)
    with pytest.raises(TutelageError, match=told):
        sync.handover(serve(fault)[0][0])
    assert not list(tmp_path.iterdir())


def test_a_rank_above_the_servers_limit_is_refused_in_its_words(serve, tiny_model, tmp_path):
    policy = policy_of(tiny_model("llama"), rank=4)
    fleet = Fleet(serve({"max_lora_rank": 2})[0])
    with pytest.raises(RolloutError, match=r"LoRA rank 4 is greater than max_lora_rank 2.*--max-lora-rank"):
        sync_of(policy, "lora", tmp_path).push(fleet, 0)


@pytest.mark.parametrize("how", ["disk", "lora"])
def test_a_folder_that_the_server_does_not_see_is_named(serve, tiny_model, tmp_path, how, monkeypatch):
    policy = policy_of(tiny_model("llama"), rank=2)
    sync, fleet = sync_of(policy, how, tmp_path), Fleet(serve({})[0])
    elsewhere = lambda path: type(path)("/elsewhere") / path.name  # noqa: E731
    monkeypatch.setattr(vllm_stub, "Path", lambda path: elsewhere(tmp_path.__class__(path)))
    with pytest.raises(RolloutError, match=f"It has to read {tmp_path}/.*--sync-folder"):
        sync.push(fleet, 0)


def test_a_server_that_died_is_tried_again_before_it_is_given_up(serve, tiny_model, tmp_path):
    (server,), _ = serve({}, retries=3)
    dead = replace(server, connection=replace(server.connection, url="http://127.0.0.1:9"))
    sync, fleet = sync_of(policy_of(tiny_model("llama")), "disk", tmp_path), Fleet([dead])
    with pytest.raises(RolloutError, match=r"No rollout server is left.*did not answer after 4 attempts"):
        sync.push(fleet, 0)


def test_a_folder_that_cannot_be_written_is_named(serve, tiny_model, tmp_path):
    (tmp_path / "file").touch()
    sync = sync_of(policy_of(tiny_model("llama")), "disk", tmp_path / "file")
    with pytest.raises(RolloutError, match=r"cannot be written to .*Choose another --sync-folder"):
        sync.push(Fleet(serve({})[0]), 0)

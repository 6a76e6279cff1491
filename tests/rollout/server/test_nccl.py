"""Weights from GPU to GPU: the requests, their order, and what arrives; on processors, with a queue for NCCL."""

from types import SimpleNamespace

import pytest
import torch
from tiers import long_except
from tiny_training import policy_of
from transfer_stub import BEGIN, END, JOIN, RECEIVE, TransferStub, install

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server import nccl
from tutelage.rollout.server.fleet import Fleet
from tutelage.rollout.server.nccl import NcclHandover, nccl_handover, own_address
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.server_generator import ServerGenerator
from tutelage.rollout.server.weight_sync import WeightSync

PROMPTS = PromptTokens(((5, 6, 7), (8,)), ("a", "b"))
UPDATE = [BEGIN, RECEIVE, END, "/update_weight_version", "/resume"]


@pytest.fixture
def handover(monkeypatch):
    """`handover(policy)`: the handover that a policy on a GPU would get."""
    install(monkeypatch)
    cpu = torch.device("cpu")

    def made(policy):
        monkeypatch.setattr(policy, "device", SimpleNamespace(type="cuda"))
        try:
            return nccl_handover(policy)
        finally:
            monkeypatch.setattr(policy, "device", cpu)

    return made


def sync_of(policy, direct, folder, **more):
    return WeightSync("nccl", policy.save, folder, Probe(policy, 0.7), direct=direct, **more)


def commands(served):
    """The commands that a server got, in order."""
    asked = [one["path"] for one in served.asked if len(one) > 1 or one["path"] not in (JOIN, RECEIVE)]
    return [path for path in asked if path.partition("?")[0] in (JOIN, *UPDATE, "/pause")]


@pytest.mark.parametrize("family", long_except(["llama"], ["llama", "gpt2"]))
def test_after_every_handover_the_server_samples_from_the_new_weights(serve, tiny_model, tmp_path, handover, family):
    """Two servers, three versions. Each is met once, in a group of its own, and no folder is written."""
    policy = policy_of(tiny_model(family))
    stubs = [TransferStub(tiny_model(family)) for _ in range(2)]
    servers, served = serve(*stubs)
    generator = ServerGenerator(servers, policy, sync_of(policy, handover(policy), tmp_path))
    for version in range(3):
        generator.sync(version)
        rollout = generator.generate(PROMPTS, 4, config.Sampling(temperature=0.7, max_new_tokens=8), seed=1)
        ours = policy.scores(rollout, temperature=0.7).logp
        assert float((rollout.logp - ours.detach())[rollout.mask].abs().max()) < 1e-4
        assert set(rollout.version[rollout.mask].tolist()) == {version}
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    for one, stub in zip(served, stubs, strict=True):
        assert commands(one) == [JOIN] + ["/pause?mode=wait", *UPDATE] * 3
        assert (stub.joined["world_size"], stub.joined["rank_offset"]) == (3, 1)
        assert stub.joined["master_address"] == "127.0.0.1"
    assert stubs[0].joined["master_port"] != stubs[1].joined["master_port"]
    assert not list(tmp_path.iterdir())


def test_what_is_being_written_is_kept_where_nobody_waits(serve, tiny_model, tmp_path, handover):
    policy = policy_of(tiny_model("llama"))
    servers, served = serve(TransferStub(tiny_model("llama")))
    sync_of(policy, handover(policy), tmp_path, wait=False).push(Fleet(servers), 0)
    assert "/pause?mode=keep" in commands(served[0])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"configured": False}, r"not configured.*It must have been started with .*--weight-transfer-config"),
        ({"deaf": True}, "It has other weights"),
        ({"updating": True}, r"out of turn.*Restart it: its NCCL group cannot be used again"),
    ],
)
def test_a_server_that_does_not_take_the_weights_is_refused(serve, tiny_model, tmp_path, handover, fault, told):
    """It goes on with what it has in any case, and is met anew the next time."""
    policy = policy_of(tiny_model("llama"))
    direct = handover(policy)
    with torch.no_grad():
        policy.parameters()[0].add_(0.3)
    servers, served = serve(TransferStub(tiny_model("llama"), **fault))
    with pytest.raises(RolloutError, match=told):
        sync_of(policy, direct, tmp_path).push(Fleet(servers), 0)
    if "/pause?mode=wait" in commands(served[0]):
        assert commands(served[0])[-1] == "/resume"
    assert bool(direct.senders) == ("deaf" in fault)


def test_a_transfer_that_fails_on_this_side_is_told(serve, tiny_model, tmp_path):
    def broken(connection):
        return SimpleNamespace(send_weights=lambda: exec("raise RuntimeError('NCCL error: unhandled')"))

    servers, served = serve(TransferStub(tiny_model("llama")))
    policy = policy_of(tiny_model("llama"))
    with pytest.raises(RolloutError, match=r"over NCCL: NCCL error: unhandled\. Restart it"):
        sync_of(policy, NcclHandover(broken), tmp_path).push(Fleet(servers), 0)
    assert commands(served[0])[-1] == "/resume"


def test_a_server_without_the_routes_is_refused(serve, tiny_model, tmp_path):
    sync = sync_of(policy_of(tiny_model("llama")), NcclHandover(lambda connection: None), tmp_path)
    with pytest.raises(TutelageError, match=r"by --sync nccl\. Start it with VLLM_SERVER_DEV_MODE=1 and"):
        sync.handover(serve({})[0][0])


def test_what_is_missing_on_this_side_is_named(tiny_model, monkeypatch):
    policy = policy_of(tiny_model("llama"))
    with pytest.raises(TutelageError, match=r"the policy is on cpu\. Use --sync disk"):
        nccl_handover(policy)
    for rank, told in ((0, r"cannot be imported here.*pip install vllm"), (2, "use --sync lora")):
        adapted = policy_of(tiny_model("llama"), rank=rank)
        monkeypatch.setattr(adapted, "device", SimpleNamespace(type="cuda"))
        with pytest.raises(TutelageError, match=told):
            nccl_handover(adapted)


def test_the_address_is_that_of_the_way_to_the_server():
    assert own_address("http://127.0.0.1:8000") == "127.0.0.1"
    assert 0 < nccl.free_port() < 1 << 16

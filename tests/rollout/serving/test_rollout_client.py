"""The server as a source of rollouts: what our own client for vLLM asks of it, and hands over to it."""

from dataclasses import replace

import pytest
import tiny
import torch
from tiny_training import policy_of

import tutelage as tt
from tutelage.base import config
from tutelage.data.transport import Transport
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.server.api import Connection
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.rollout_servers import connect
from tutelage.rollout.server.server_generator import ServerGenerator
from tutelage.rollout.server.vllm import CompletionsApi, GenerateApi
from tutelage.rollout.server.weight_sync import WeightSync

PROMPTS = PromptTokens(((40, 41, 42), (9, 60, 61, 62), (50,)), ("a", "b", "c"))
SAMPLING = config.Sampling(max_new_tokens=10, temperature=0.8)


@pytest.fixture
def trained(tiny_model):
    """A policy that is trained; its end tokens are likely enough to be sampled."""

    def make(rank=0):
        policy = policy_of(tiny_model("llama"), rank=rank)
        policy.end_ids = (*policy.end_ids, *range(100, 140))
        return policy

    return make


@pytest.fixture
def served(tiny_model):
    with tt.serve(model=tiny_model("llama"), port=0, weight_updates=True) as server:
        yield server


def rollout_of(servers, policy, sync=None, version=0):
    generator = ServerGenerator(servers, policy, sync)
    generator.sync(version)
    return generator.generate(PROMPTS, 4, SAMPLING, seed=1)


def assert_of(rollout, policy):
    """The rollout has the log-probabilities of the policy, and ends where its end tokens are."""
    with torch.no_grad():
        logp = policy.scores(rollout, temperature=SAMPLING.temperature).logp
    torch.testing.assert_close(logp, rollout.logp, atol=1e-4, rtol=1e-4)
    last = rollout.response.gather(1, rollout.mask.sum(1, keepdim=True) - 1).squeeze(1)
    assert rollout.terminated.tolist() == [token in policy.end_ids for token in last.tolist()]


@pytest.mark.parametrize("api", [GenerateApi(), CompletionsApi()], ids=lambda api: type(api).__name__)
def test_rollouts_have_the_policys_log_probabilities(served, trained, api):
    policy = trained()
    (server,) = connect([served.url])
    assert (server.context, isinstance(server.api, GenerateApi)) == (tiny.CONTEXT, True)
    server = replace(server, api=api)
    rollout = rollout_of([server], policy)
    assert_of(rollout, policy)
    assert 0 < int(rollout.terminated.sum()) < len(rollout), "some end and some are cut"
    again = rollout_of([server], policy)
    assert torch.equal(rollout.response, again.response)
    torch.testing.assert_close(rollout.logp, again.logp, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("how", "rank"), [("disk", 0), ("lora", 4)])
def test_new_weights_arrive_and_are_named(served, trained, tmp_path, how, rank):
    policy = trained(rank)
    sync = WeightSync(how, policy.save, tmp_path, Probe(policy, SAMPLING.temperature))
    servers = connect([served.url])
    for version in range(3):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(version)))
        rollout = rollout_of(servers, policy, sync, version)
        assert_of(rollout, policy)
        assert set(rollout.version[rollout.mask].tolist()) == {version}
    if how == "lora":
        assert len(served.service.model.adapters) == 1, "earlier versions were dropped"


def test_one_request_is_the_local_rollout(served, trained):
    """With the seed of one stream, the tokens are those of this process."""
    policy = trained()
    local = LocalGenerator(policy).generate(PromptTokens(PROMPTS.tokens[:1], ("x",)), 2, SAMPLING, seed=5)
    params = {"n": 2, "temperature": 0.8, "max_tokens": 10, "seed": 5, "stop_token_ids": list(policy.end_ids)}
    body = {"token_ids": list(PROMPTS.tokens[0]), "request_id": "x", "sampling_params": params}
    found = Connection(served.url, Transport("the server")).post("/inference/v1/generate", body)
    rows = [row[mask].tolist() for row, mask in zip(local.response, local.mask, strict=True)]
    assert [choice["token_ids"] for choice in found["choices"]] == rows

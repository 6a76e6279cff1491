"""Servers as a generator: the same tokens whoever computes them, and none lost with a server."""

from dataclasses import replace

import pytest
import torch
import vllm_stub

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.transport import Unanswered
from tutelage.engines.interface import PromptTokens
from tutelage.engines.sampling import answers
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.server_generator import ServerGenerator
from tutelage.rollout.server.vllm import CompletionsApi, GenerateApi

FREE = config.Sampling(temperature=0.7, max_new_tokens=8)
PROMPTS = PromptTokens(tuple((5 + i, 6, 7)[: 1 + i % 3] for i in range(12)), tuple("abcdefghijkl"))
ENDS = tuple(range(100, 150))


@pytest.fixture
def policy(tiny_model):
    loaded = vllm_stub.load(tiny_model("llama"))
    loaded.end_ids = ENDS
    return loaded


def same(one, other):
    """The same tokens with the same log-probabilities, bit for bit."""
    assert one.texts == other.texts
    assert torch.equal(one.mask, other.mask)
    assert torch.equal(one.response[one.mask], other.response[other.mask])
    assert torch.equal(one.logp[one.mask], other.logp[other.mask])


@pytest.mark.parametrize("api", [GenerateApi(), CompletionsApi()])
def test_tokens_have_the_policys_log_probabilities_and_end_where_local_ones_do(serve, policy, api):
    servers, _ = serve({})
    generator = ServerGenerator([replace(servers[0], api=api)], policy)
    rollout = generator.generate(PROMPTS, 3, FREE, seed=1)
    ours = policy.scores(rollout, temperature=0.7).logp
    torch.testing.assert_close(rollout.logp, ours, rtol=0, atol=1e-5)
    assert rollout.ids == tuple(name for name in PROMPTS.ids for _ in range(3))
    assert rollout.texts == tuple(answers(policy, rollout))
    last = rollout.response.gather(1, rollout.mask.sum(1, keepdim=True) - 1).squeeze(1)
    assert torch.equal(torch.isin(last, torch.tensor(ENDS)), rollout.terminated)
    assert 0 < rollout.terminated.sum() < len(rollout)
    assert rollout.version is None
    assert len({tuple(row) for row in rollout.response.tolist()}) > 30, "every row has a stream of its own"
    same(rollout, generator.generate(PROMPTS, 3, FREE, seed=1))
    assert generator.generate(PROMPTS, 3, FREE, seed=2).texts != rollout.texts


def test_a_row_does_not_depend_on_the_prompts_beside_it(serve, policy):
    generator = ServerGenerator(serve({})[0], policy)
    whole = generator.generate(PROMPTS, 2, FREE, seed=1)
    few = generator.generate(PromptTokens(PROMPTS.tokens[4:6], PROMPTS.ids[4:6]), 2, FREE, seed=1)
    assert few.texts == whole.texts[8:12]


def test_greedy_responses_are_the_local_ones(serve, policy):
    greedy = config.Sampling(temperature=0.0, max_new_tokens=8)
    there = ServerGenerator(serve({})[0], policy).generate(PROMPTS, 2, greedy, seed=1)
    here = policy.generate(PROMPTS, 2, greedy, seed=1)
    assert torch.equal(there.response[there.mask], here.response[here.mask])
    assert not there.logp.any()


@pytest.mark.parametrize("obeys", [True, False])
def test_a_stop_string_cuts_where_the_local_sampler_does(serve, policy, obeys, monkeypatch):
    """Also where the server goes on beyond it."""
    free = ServerGenerator(serve({})[0], policy).generate(PROMPTS, 2, FREE, seed=1)
    text = max(free.texts, key=len)
    stop = config.Sampling(temperature=0.7, max_new_tokens=8, stop=(text[len(text) // 2],))
    if not obeys:
        monkeypatch.setattr(vllm_stub, "replace", lambda value, **changes: replace(value, **(changes | {"stop": ()})))
    stopped = ServerGenerator(serve({})[0], policy).generate(PROMPTS, 2, stop, seed=1)
    cut = [row for row, text in enumerate(free.texts) if stop.stop[0] in text]
    assert cut
    for row in range(len(free)):
        length = int(stopped.mask[row].sum())
        assert torch.equal(stopped.response[row, :length], free.response[row, :length])
        assert (row in cut) == (stop.stop[0] in policy.tokenizer.decode(stopped.response[row, :length]))
        assert stopped.texts[row] == free.texts[row].partition(stop.stop[0])[0].strip()
    assert stopped.terminated[cut].all()


def test_requests_are_shared_by_load_and_the_answers_are_the_same(serve, policy):
    alone = ServerGenerator(serve({})[0], policy).generate(PROMPTS, 3, FREE, seed=1)
    servers, served = serve({}, {}, {})
    same(ServerGenerator(servers, policy).generate(PROMPTS, 3, FREE, seed=1), alone)
    counts = [sum("token_ids" in request for request in one.asked) for one in served]
    assert sum(counts) == len(PROMPTS.tokens)
    assert min(counts) > 0


def test_the_prompts_of_a_server_that_fails_go_to_the_others(serve, policy, caplog):
    alone = ServerGenerator(serve({})[0], policy).generate(PROMPTS, 3, FREE, seed=1)
    servers, _ = serve({"answers_left": 2}, {})
    generator = ServerGenerator(servers, policy)
    same(generator.generate(PROMPTS, 3, FREE, seed=1), alone)
    assert [server.url for server in generator.fleet.live] == [servers[1].url]
    assert "Its prompts are sent to the other servers" in caplog.text


def test_when_no_server_is_left_every_reason_is_said(serve, policy):
    servers, _ = serve({"answers_left": 3}, {"answers_left": 3})
    with pytest.raises(RolloutError, match="No rollout server is left") as caught:
        ServerGenerator(servers, policy).generate(PROMPTS, 3, FREE, seed=1)
    assert all(server.url in str(caught.value) for server in servers)


def test_a_server_that_answers_again_is_back_after_the_next_handover(serve, policy, caplog):
    servers, _ = serve({}, {})
    fleet = ServerGenerator(servers, policy).fleet
    fleet.lose(servers[0], Unanswered("away"))
    assert fleet.live == [servers[1]]
    fleet.each(lambda server: None)
    assert fleet.live == servers
    assert "is available again" in caplog.text


@pytest.mark.parametrize(
    ("prompt", "told"),
    [((5,) * 90, "need 98 positions, but the server .* has 96"), ((5,), "model `other` does not exist")],
)
def test_what_a_server_refuses_is_said(serve, policy, prompt, told):
    servers, _ = serve({})
    servers = [replace(servers[0], model="other")] if len(prompt) == 1 else servers
    with pytest.raises(TutelageError, match=told):
        ServerGenerator(servers, policy).generate(PromptTokens((prompt,), ("a",)), 1, FREE, seed=1)

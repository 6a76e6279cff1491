"""Rollouts of servers in the loop: the step that they give is the step of a generator in this process.

The servers are stubs that speak vLLM's API and compute with weights that only a handover brings them.
"""

import copy
from contextlib import ExitStack
from dataclasses import replace

import pytest
from served import serving
from tiers import long_except
from tiny_training import World, assert_close, assert_identical, letters, policy_of, recipe_of
from vllm_stub import VllmStub

from tutelage.engines.interface import PromptTokens
from tutelage.engines.token_sampling import row_seed
from tutelage.models.backbone import ModelVocabulary
from tutelage.rollout.generator import RolloutError, concatenate, prompt_tokens
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.prefetch import AheadGenerator, RolloutRequest
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.rollout_servers import connect
from tutelage.rollout.server.server_generator import ServerGenerator
from tutelage.rollout.server.weight_sync import WeightSync
from tutelage.train.rl.rollouts import rollout_seed


class OneByOne(LocalGenerator):
    """The generator in this process, given one prompt and its seed at a time, as a server is: with other prompts beside
    it the last bits would differ."""

    def generate(self, prompts, n, sampling, *, seed):
        parts = [
            super(OneByOne, self).generate(
                PromptTokens((tokens,), ("",)), n, sampling, seed=row_seed(seed, name, 0) % (2**31 - n)
            )
            for tokens, name in zip(prompts.tokens, prompts.ids, strict=True)
        ]
        whole = concatenate(parts)
        return whole.__class__(**{**vars(whole), "ids": tuple(name for name in prompts.ids for _ in range(n))})


@pytest.fixture
def serve(tiny_model):
    """`serve(n, **faults)`: n servers of the tiny model as they are found, and their stubs."""
    with ExitStack() as stack:

        def found(count, **faults):
            stubs = [VllmStub(tiny_model("llama"), **faults) for _ in range(count)]
            urls = [stack.enter_context(serving(stub)).url.removesuffix("/v1") for stub in stubs]
            return connect(urls, retries=0), stubs

        yield found


def world(tiny_model, rank=0, **more):
    policy = policy_of(tiny_model("llama"), rank=rank, engine="plain")
    policy.end_ids = tuple(range(100, 180))
    recipe = recipe_of("shaping.missing_end=none", "samples=2", name=more.pop("name"))
    return World(policy, recipe, steps=3, lr=1e-2, reward=letters("e"), tokens=6, **more)


def remote(made, servers, folder, how="disk"):
    save = made.policy.save_whole if how == "disk" else made.policy.save
    weights = WeightSync(how, save, folder, Probe(made.policy, 1.0))
    return ServerGenerator(servers, made.policy, weights)


def learned(told):
    """All metrics that do not measure time, and the texts."""
    return [({k: v for k, v in s.metrics.items() if k != "tokens_per_second"}, s.texts) for s in told]


@pytest.mark.parametrize(("name", "count"), long_except([("grpo", 2)], [("ppo", 1), ("grpo", 2), ("remax", 1)]))
def test_a_step_on_rollouts_of_servers_is_the_step_on_local_ones(serve, tiny_model, tmp_path, name, count):
    here, there = (world(tiny_model, name=name) for _ in range(2))
    here.generator, there.generator = OneByOne(here.policy), remote(there, serve(count)[0], tmp_path)
    steps, found = list(here.train()), list(there.train())
    assert learned(found) == learned(steps)
    assert_identical(there.everything(), here.everything())
    for number, step in enumerate(found):
        assert set(step.sample.version[step.sample.mask].tolist()) == {number}


def test_an_adapter_gives_the_same_steps_up_to_rounding(serve, tiny_model, tmp_path):
    here, there = (world(tiny_model, rank=2, name="grpo") for _ in range(2))
    here.generator = OneByOne(here.policy)
    there.generator = remote(there, serve(2)[0], tmp_path, "lora")
    steps, found = list(here.train()), list(there.train())
    assert [step.texts for step in found] == [step.texts for step in steps]
    assert_close(there.everything(), here.everything(), 1e-5)


@pytest.mark.parametrize("fault", [{"deaf": True}, {"keeps_version": True}])
def test_rollouts_of_other_weights_stop_the_run_before_it_learns_from_them(serve, tiny_model, tmp_path, fault):
    made = world(tiny_model, name="grpo")
    servers, stubs = serve(1)
    made.generator = remote(made, servers, tmp_path)
    steps = made.train()
    next(steps)
    before = made.everything()
    for name, value in fault.items():
        setattr(stubs[0], name, value)
    with pytest.raises(RolloutError, match=r"did not arrive|did not put there"):
        next(steps)
    assert_identical(made.everything(), before)


def test_log_probabilities_of_other_weights_are_noticed(tiny_model):
    """A generator that claims the newest version and computes with an older one."""
    made = world(tiny_model, name="grpo")
    local = LocalGenerator(policy_of(tiny_model("llama")))
    local.policy.end_ids = made.policy.end_ids
    made.generator = local
    steps = made.train()
    next(steps)
    with pytest.raises(Exception, match="the policy and the sampler disagree"):
        next(steps)


def test_tokens_of_another_version_are_refused(tiny_model):
    made = world(tiny_model, name="grpo")
    made.generator.sync = lambda version: None
    steps = made.train()
    next(steps)
    with pytest.raises(RolloutError, match="version 0 of the weights in step 2, where version 1"):
        next(steps)


@pytest.mark.parametrize("how", long_except(["lora"], ["disk", "lora"]))
def test_steps_on_rollouts_ahead_learn_from_tokens_of_admitted_weights(serve, tiny_model, tmp_path, how):
    made = world(tiny_model, rank=2, name="grpo")
    made.learner.total = 4
    made.settings = replace(made.settings, staleness=1, mismatch="truncated")
    servers, _ = serve(2)
    weights = WeightSync(
        how,
        made.policy.save if how == "lora" else made.policy.save_whole,
        tmp_path,
        Probe(made.policy, 1.0),
        keep=2,
        wait=False,
    )
    inner = ServerGenerator(
        servers, ModelVocabulary(copy.deepcopy(made.policy.tokenizer), made.policy.end_ids), weights
    )

    def plan(step):
        return RolloutRequest(prompt_tokens(made.order(step)), 2, made.settings.sampling, rollout_seed(0, step))

    made.generator = AheadGenerator(inner, plan, staleness=1, total=4)
    steps = list(made.train())
    assert [step.metrics["staleness/max"] <= 1 for step in steps] == [True] * 4
    assert steps[0].metrics["staleness/max"] == 0
    assert max(step.metrics["sampler/mismatch"] for step in steps[1:]) > 1e-4
    assert steps[0].metrics["sampler/mismatch"] < 1e-4

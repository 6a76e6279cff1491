"""GRPO on rollouts of a real vLLM, by either handover: the probabilities, tokens and learning of a local run.

make test-vllm
"""

import copy
from itertools import count

import pytest
import torch
from tiny_training import World, letters, policy_of, recipe_of

from real_vllm import running
from tutelage.base import config
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.rollout_servers import connect
from tutelage.rollout.server.server_generator import ServerGenerator
from tutelage.rollout.server.weight_sync import WeightSync

pytestmark = pytest.mark.skipif(not running.PYTHON, reason="needs TUTELAGE_VLLM_PYTHON: make test-vllm")

STEPS = 5
GREEDY = config.Sampling(temperature=0.0, max_new_tokens=16)
FREE = config.Sampling(temperature=0.7, max_new_tokens=16)
PROMPTS = PromptTokens(((5, 6, 7, 40, 50), (8,), (9, 10, 11)), ("a", "b", "c"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """(the folder of a model, a vLLM that serves it)"""
    place = tmp_path_factory.mktemp("vllm")
    folder = running.model(place / "model")
    with running.running(folder, place / "log", "--max-model-len=96") as url:
        yield folder, connect([url])[0]


def world(folder, rank):
    policy = policy_of(folder, rank=rank)
    recipe = recipe_of("samples=8", "shaping.missing_end=none", name="grpo")
    reward = letters("abcdefghijklmnopqrstuvwxyz")
    return World(policy, recipe, steps=STEPS, lr=1e-2, reward=reward, tokens=16, temperature=0.7)


def farthest(policy, rollout, temperature):
    """The largest difference of a log-probability between the rollout and the policy, in nats."""
    with torch.no_grad():
        ours = policy.scores(rollout, temperature=temperature).logp
    return float((rollout.logp - ours)[rollout.mask].abs().max())


def same_tokens(one, other):
    return torch.equal(one.mask, other.mask) and torch.equal(one.response[one.mask], other.response[other.mask])


# by adapter first: a handover by disk takes the place of the model that adapters stand beside
@pytest.mark.parametrize(("how", "rank"), [("lora", 4), ("disk", 0)])
def test_five_steps_on_rollouts_of_vllm(server, tmp_path, how, rank, record_property):
    folder, found = server
    here, there = world(folder, rank), world(folder, rank)
    save = there.policy.save if how == "lora" else there.policy.save_whole
    weights = WeightSync(how, save, tmp_path, Probe(there.policy, 0.7))
    there.generator = ServerGenerator([found], there.policy, weights)
    apart, scores = [], []
    for number, step in zip(count(), there.train(), strict=False):
        assert set(step.sample.version[step.sample.mask].tolist()) == {number}
        scores.append(step.metrics["score/mean"])
    there.generator.sync(STEPS)
    for temperature in (0.7, 1.0):
        sampling = config.Sampling(temperature=temperature, max_new_tokens=16)
        drawn = there.generator.generate(PROMPTS, 4, sampling, seed=3)
        apart.append(farthest(there.policy, drawn, temperature))
        assert same_tokens(drawn, there.generator.generate(PROMPTS, 4, sampling, seed=3))
    greedy = LocalGenerator(copy.deepcopy(there.policy)).generate(PROMPTS, 1, GREEDY, seed=0)
    assert same_tokens(there.generator.generate(PROMPTS, 1, GREEDY, seed=0), greedy)
    local = [step.metrics["score/mean"] for step in here.train()]
    print(f"\n{how}: log-probabilities differ by at most {max(apart):.1e} nats")
    print(f"{how}: score by step, vLLM  {' '.join(f'{x:.3f}' for x in scores)}")
    print(f"{how}: score by step, local {' '.join(f'{x:.3f}' for x in local)}")
    assert max(apart) < 1e-4
    for found in (scores, local):
        assert found[-1] > found[0] + 0.05

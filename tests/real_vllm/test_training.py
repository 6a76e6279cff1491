"""GRPO on rollouts of a real vLLM, by each handover: the probabilities, tokens and learning of a local run.

make test-vllm
"""

import copy
import json
import os
import subprocess
import sysconfig
from itertools import count
from pathlib import Path

import pytest
from tiny_training import policy_of

from real_vllm import running
from real_vllm.runs import FREE, GREEDY, PROMPTS, STEPS, farthest, same_tokens, world
from tutelage.base import config
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.server.probe import Probe
from tutelage.rollout.server.rollout_servers import connect
from tutelage.rollout.server.server_generator import ServerGenerator
from tutelage.rollout.server.weight_sync import WeightSync

pytestmark = pytest.mark.skipif(not running.PYTHON, reason="needs TUTELAGE_VLLM_PYTHON: make test-vllm")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """(the folder of a model, a vLLM that serves it)"""
    place = tmp_path_factory.mktemp("vllm")
    folder = running.model(place / "model")
    with running.running(folder, place / "log", "--max-model-len=96") as url:
        yield folder, connect([url])[0]


@pytest.fixture(scope="module")
def served(server):
    """Sampled tokens of the server before any handover, with their log-probabilities."""
    folder, found = server
    return ServerGenerator([found], policy_of(folder)).generate(PROMPTS, 4, FREE, seed=3)


@pytest.mark.parametrize("rank", [0, 4])
def test_five_steps_on_rollouts_of_vllm_in_the_process(server, served, rank):
    """Tokens are the server's before training. After each step log-probabilities and greedy tokens are the policy's,
    the same seed gives the same tokens, and the engine sleeps while the policy learns."""
    paths = [str(ROOT), str(ROOT / "tests"), sysconfig.get_path("purelib")]
    program = [running.PYTHON, str(ROOT / "tests/real_vllm/colocation.py"), server[0], str(rank), *paths]
    ended = subprocess.run(
        program, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["tokens"] == served.response[served.mask].tolist()
    assert found["logp"] == pytest.approx(served.logp[served.mask].tolist(), abs=1e-4)
    print(f"\nin process, rank {rank}: log-probabilities differ by at most {max(found['apart']):.1e} nats")
    print(f"in process, rank {rank}: score by step {' '.join(f'{x:.3f}' for x in found['scores'])}")
    assert max(found["apart"]) < 1e-4
    for name in ("asleep", "repeated", "greedy"):
        assert found[name] == [True] * STEPS, name
    assert found["scores"][-1] > found["scores"][0] + 0.05


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

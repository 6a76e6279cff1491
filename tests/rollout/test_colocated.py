"""vLLM in this process, by a stub of it: the policy's tokens after every handover, and sleep in between."""

import copy
import os
import sys

import pytest
import torch
from tiny_training import policy_of
from vllm_stub import install_llm

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.colocated import ColocatedGenerator
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.local import LocalGenerator

FREE = config.Sampling(temperature=0.7, max_new_tokens=8)
GREEDY = config.Sampling(temperature=0.0, max_new_tokens=8)
PROMPTS = PromptTokens(((5, 6, 7), (8,)), ("a", "b"))


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """vLLM's variables are those of one test."""
    monkeypatch.setattr(os, "environ", dict(os.environ))


@pytest.mark.parametrize(("family", "rank"), [("llama", 0), ("llama", 2), ("gpt2", 0)])
def test_after_every_handover_tokens_are_the_policys(tiny_model, monkeypatch, family, rank):
    """Three versions, of a whole model or with its adapter merged."""
    install_llm(monkeypatch)
    policy = policy_of(tiny_model(family), rank=rank)
    generator = ColocatedGenerator(policy, 0.7)
    for version in range(3):
        generator.sync(version)
        rollout = generator.generate(PROMPTS, 4, FREE, seed=1)
        with torch.no_grad():
            ours = policy.scores(rollout, temperature=0.7).logp
        assert float((rollout.logp - ours)[rollout.mask].abs().max()) < 1e-4
        assert set(rollout.version[rollout.mask].tolist()) == {version}
        assert rollout.ids == ("a",) * 4 + ("b",) * 4
        greedy = LocalGenerator(copy.deepcopy(policy), version).generate(PROMPTS, 2, GREEDY, seed=0)
        assert generator.generate(PROMPTS, 2, GREEDY, seed=0).texts == greedy.texts
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter += 0.05 * torch.randn_like(parameter)


def test_it_is_awake_from_a_handover_to_the_end_of_the_next_rollout(tiny_model, monkeypatch):
    install_llm(monkeypatch)
    generator = ColocatedGenerator(policy_of(tiny_model("llama")), 0.7)
    handover, rollout = ["load", "reset", "generate"], ["generate", "sleep"]
    generator.sync(0)
    generator.generate(PROMPTS, 2, FREE, seed=1)
    generator.sync(1)
    generator.generate(PROMPTS, 2, FREE, seed=1)
    generator.generate(PROMPTS, 2, FREE, seed=2)
    expected = [*handover, *rollout, "wake", *handover, *rollout, "wake", *rollout]
    assert generator.engine.calls == expected


def test_random_numbers_and_threads_of_the_process_stay_its_own(tiny_model, monkeypatch):
    install_llm(monkeypatch)
    policy = policy_of(tiny_model("llama"))
    before, threads = torch.get_rng_state(), torch.set_num_threads
    ColocatedGenerator(policy, 0.7)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.set_num_threads is threads


@pytest.mark.parametrize(("fault", "told"), [("deaf", "It has other weights"), ("broken", "out of memory")])
def test_a_failed_handover_is_a_failure_of_the_rollout(tiny_model, monkeypatch, fault, told):
    install_llm(monkeypatch, **{fault: True})
    generator = ColocatedGenerator(policy_of(tiny_model("llama")), 0.7)
    with pytest.raises(RolloutError, match=f"vLLM .*in this process.*{told}"):
        generator.sync(0)


def test_a_completion_ends_at_a_stop_string_as_a_local_one(tiny_model, monkeypatch):
    install_llm(monkeypatch)
    policy = policy_of(tiny_model("llama"))
    generator = ColocatedGenerator(policy, 0.7)
    generator.sync(0)
    greedy = config.Sampling(temperature=0.0, max_new_tokens=20)
    text = LocalGenerator(policy).generate(PROMPTS, 1, greedy, seed=0).texts[0]
    stop = config.Sampling(temperature=0.0, max_new_tokens=20, stop=(text[len(text) // 2],))
    local, own = (g.generate(PROMPTS, 1, stop, seed=0) for g in (LocalGenerator(policy), generator))
    assert own.texts == local.texts
    assert torch.equal(own.terminated, local.terminated)
    assert torch.equal(own.mask, local.mask)


def test_what_it_cannot_do_is_refused(tiny_model, monkeypatch):
    policy = policy_of(tiny_model("llama"))
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(TutelageError, match="pip install vllm"):
        ColocatedGenerator(policy, 0.7)
    monkeypatch.setattr(install_llm(monkeypatch), "__init__", lambda *_, **__: exec("raise ValueError('no memory')"))
    with pytest.raises(TutelageError, match="vLLM cannot start in this process: no memory"):
        ColocatedGenerator(policy, 0.7)
    install_llm(monkeypatch)
    with pytest.raises(TutelageError, match="vLLM has room for"):
        ColocatedGenerator(policy, 0.7).generate(PromptTokens(((5,) * 95,), ("a",)), 1, FREE, seed=0)

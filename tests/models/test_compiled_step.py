"""The compiled step against the one that is not, and what is said where it cannot be.

A processor in float32 has a compiled step of its own (see `test_native_step`), which makes way here.
"""

import pytest
import tiny
import torch
from compilers import needs_compiler

from tutelage import config
from tutelage.errors import TutelageError
from tutelage.models import compiled_step, decoders
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.models.sampling import PromptTokens, sample

PROMPTS = PromptTokens(((40, 41, 42), (50,), (9, 60, 61, 62, 63)), ("a", "b", "c"))


def policy_of(folder, dtype="float32", lora=None):
    policy = Policy(load_backbone(config.Model(folder, device="cpu", dtype=dtype), lora or config.Lora()))
    policy.end_ids = (*policy.end_ids, *range(100, 140))
    tiny.roughen(policy.model)
    return policy


@pytest.fixture(autouse=True)
def not_native(monkeypatch):
    monkeypatch.setattr(decoders, "NativeDecoder", decoders.CompiledDecoder)


@pytest.fixture
def plain(monkeypatch):
    """The functions as they are written, which costs no compiler's time."""
    monkeypatch.setattr(compiled_step, "_compiled", lambda: (compiled_step._before, compiled_step._after))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("lora", [config.Lora(), config.Lora(rank=4)], ids=["whole", "adapter"])
def test_what_is_compiled_is_the_step(tiny_model, family, lora, plain):
    policy = policy_of(tiny_model(family), lora=lora)
    expected = sample(policy, PROMPTS, 3, config.Sampling(max_new_tokens=12, compile=False), seed=4)
    found = sample(policy, PROMPTS, 3, config.Sampling(max_new_tokens=12, compile=True), seed=4)
    assert torch.equal(found.response, expected.response)
    torch.testing.assert_close(found.logp, expected.logp, rtol=1e-5, atol=1e-5)


def test_in_bf16_it_stays_near_the_trainer(tiny_model, plain):
    folder = tiny_model("llama")
    policy, exact = policy_of(folder, "bf16"), policy_of(folder)
    rollout = sample(policy, PROMPTS, 4, config.Sampling(max_new_tokens=12, compile=True), seed=3)
    mismatch = (rollout.logp - policy.scores(rollout).logp).abs()[rollout.mask]
    error = (policy.scores(rollout).logp - exact.scores(rollout).logp).abs()[rollout.mask]
    assert 0 < mismatch.mean() < 2 * error.mean()


@needs_compiler
def test_compiled_it_says_the_same(tiny_model):
    policy = policy_of(tiny_model("llama"))
    expected = sample(policy, PROMPTS, 3, config.Sampling(max_new_tokens=12, compile=False), seed=4)
    found = sample(policy, PROMPTS, 3, config.Sampling(max_new_tokens=12, compile=True), seed=4)
    assert torch.equal(found.response, expected.response)
    torch.testing.assert_close(found.logp, expected.logp, rtol=1e-5, atol=1e-5)


def test_another_model_is_refused(tiny_model):
    with pytest.raises(TutelageError, match="GPT2LMHeadModel is not one"):
        sample(policy_of(tiny_model("gpt2")), PROMPTS, 1, config.Sampling(compile=True), seed=0)


def test_without_a_compiler_it_is_said_what_is_missing(tiny_model, monkeypatch):
    from torch._inductor import config as inductor

    torch.compiler.reset()
    compiled_step._compiled.cache_clear()
    nowhere = inductor.patch({"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True})
    with nowhere, pytest.raises(TutelageError, match="needs a C\\+\\+ compiler"):
        sample(policy_of(tiny_model("llama")), PROMPTS, 1, config.Sampling(compile=True), seed=0)
    torch.compiler.reset()

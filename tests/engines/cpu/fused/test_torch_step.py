"""The fused decoding step, which calls no modules, against the model's own step; which models have one."""

import pytest
import tiny
import torch

from tutelage.base import config
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import trunk
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

FUSED = {"llama", "qwen3"}
PROMPTS = PromptTokens(((40, 41, 42), (50,), (9, 60, 61, 62, 63), (40, 41, 42)), ("a", "b", "c", "d"))


def has_fused_step(model):
    return Capabilities(model).has_fused_step()


def policy_of(folder, lora=None):
    policy = Policy(load_backbone(config.Model(folder, device="cpu"), lora or config.Lora()))
    policy.end_ids = (*policy.end_ids, *range(100, 140))
    tiny.roughen(policy.model)
    return policy


@pytest.mark.parametrize("family", tiny.EVERY)
def test_only_models_of_fused_layers_have_a_fused_step(tiny_model, family):
    assert has_fused_step(policy_of(tiny_model(family)).model) == (family in FUSED)


@pytest.mark.parametrize("family", sorted(FUSED))
@pytest.mark.parametrize("lora", [config.Lora(), config.Lora(rank=4)], ids=["whole", "adapter"])
def test_the_fused_step_samples_the_tokens_of_the_model(tiny_model, family, lora, monkeypatch):
    monkeypatch.setattr(
        Capabilities, "has_compiled_step", lambda capabilities: False
    )  # the compiled step would take its place
    policy = policy_of(tiny_model(family), lora)
    settings = config.Sampling(max_new_tokens=12)
    own_forward, calls = trunk(policy.model).forward, []
    fused = policy.generate(PROMPTS, 3, settings, seed=4)
    monkeypatch.setattr(
        trunk(policy.model), "forward", lambda *given, **more: (calls.append(1), own_forward(*given, **more))[1]
    )
    assert torch.equal(policy.generate(PROMPTS, 3, settings, seed=4).response, fused.response)
    assert len(calls) == 1, "the model itself reads the prompts and nothing else"
    assert len(set(fused.mask.sum(1).tolist())) > 2, "rows end at different times"
    monkeypatch.setattr(Capabilities, "has_fused_step", lambda capabilities: False)
    own = policy.generate(PROMPTS, 3, settings, seed=4)
    assert torch.equal(fused.response, own.response)
    assert len(calls) > 2
    torch.testing.assert_close(fused.logp, own.logp, rtol=1e-5, atol=1e-5)
    assert (fused.logp - policy.scores(fused).logp).abs().max() < 1e-5


@pytest.mark.parametrize("changed", ["residual", "embedding", "attention"])
def test_a_model_with_another_order_of_layers_keeps_its_own_step(tiny_model, changed):
    model = policy_of(tiny_model("llama")).model
    stack, layer = trunk(model), trunk(model).layers[0]
    embed, whole, forward = stack.embed_tokens, stack.forward, layer.forward
    attend = layer.self_attn.forward
    if changed == "residual":
        layer.forward = lambda *given, **more: 1.001 * forward(*given, **more)
    elif changed == "embedding":
        stack.forward = lambda input_ids, **more: whole(inputs_embeds=1.001 * embed(input_ids), **more)
    else:
        layer.self_attn.forward = lambda *given, **more: (1.001 * attend(*given, **more)[0], None)
    assert not has_fused_step(model)


def test_a_model_with_hooks_has_no_fused_step(tiny_model):
    model = policy_of(tiny_model("llama")).model
    capabilities = Capabilities(model)
    assert capabilities.has_fused_step()
    hook = trunk(model).layers[0].mlp.register_forward_hook(lambda module, given, out: None)
    assert not capabilities.has_fused_step()
    hook.remove()
    assert capabilities.has_fused_step()

"""Which layers a new adapter has, and that the others are named."""

import architectures
import pytest
import torch
from transformers import AutoModelForCausalLM

from tutelage.base import config
from tutelage.models.adapters import add_lora

EXPERTS = ("gpt_oss", "mixtral", "jamba")


def adapted(kind, **settings):
    with torch.random.fork_rng():
        model = AutoModelForCausalLM.from_config(architectures.configuration(kind))
    return add_lora(model, config.Lora(rank=2, **settings), task="CAUSAL_LM", seed=0)


def layers_with_adapter(model):
    return {name.split(".lora_")[0].rpartition(".")[2] for name, _ in model.named_parameters() if "lora_" in name}


@pytest.mark.parametrize("kind", ["llama", "gpt2", "opt", "mamba", "llama4_text", "deepseek_v4", *EXPERTS])
def test_every_matrix_has_an_adapter_or_is_named(caplog, kind):
    """Beside embeddings and head. The share of the weights that stay is that of the named matrices."""
    model = adapted(kind)
    whole = model.get_base_model()
    apart = {id(part.weight) for part in whole.modules() if isinstance(part, torch.nn.Embedding)}
    apart.add(id(whole.get_output_embeddings().weight))
    left = {
        name.rpartition(".")[2] if "experts" in name else name.split(".")[-2]: weight.numel()
        for name, weight in whole.named_parameters()
        if weight.dim() > 1 and id(weight) not in apart and not weight.requires_grad and ".base_layer." not in name
    }
    assert bool(left) == bool(caplog.messages)
    assert all(type(whole).__name__ in said for said in caplog.messages)
    largest = max(left, key=left.get, default="")
    assert not left or largest in caplog.text


def test_experts_that_stay_are_named(caplog):
    adapted("gpt_oss")
    assert "experts.gate_up_proj" in caplog.text
    caplog.clear()
    adapted("gpt_oss", targets="q_proj,v_proj")
    assert not caplog.messages, "the user has chosen"


@pytest.mark.parametrize(("kind", "layer"), [("mamba", "dt_proj"), ("mamba", "out_proj"), ("llama4_text", "router")])
def test_layers_whose_weight_is_read_past_an_adapter_have_none(kind, layer):
    model = adapted(kind)
    assert any(name.endswith(layer) for name, _ in model.named_modules())
    assert layer not in layers_with_adapter(model)


@pytest.mark.parametrize("kind", ["mamba", "falcon_mamba", "jamba", "bamba", "llama4_text", "phimoe"])
def test_every_adapter_has_a_gradient(kind):
    """An adapter beside a weight that the layer reads itself would be trained in vain."""
    model = adapted(kind)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    tokens = torch.arange(2, 40)[None]
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    assert [
        name for name, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())
    ] == []

"""Which layers a new adapter has, and that the others are named."""

from types import SimpleNamespace

import architectures
import pytest
import torch
from offenders import for_each
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.models.adapters import add_lora, read_past

EXPERTS = ("gpt_oss", "mixtral", "jamba")


def adapted(kind, **settings):
    with torch.random.fork_rng():
        model = AutoModelForCausalLM.from_config(architectures.configuration(kind))
    return add_lora(model, config.Lora(rank=2, **settings), task="CAUSAL_LM", seed=0)


def layers_with_adapter(model):
    return {name.split(".lora_")[0].rpartition(".")[2] for name, _ in model.named_parameters() if "lora_" in name}


@for_each(["llama", "gpt2", "opt", "mamba", "llama4_text", "deepseek_v4", *EXPERTS])
def test_every_matrix_has_an_adapter_or_is_named(kind, caplog):
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


PAST = [("mamba", "dt_proj"), ("mamba", "out_proj"), ("llama4_text", "router"), ("longcat_flash", "classifier")]


@for_each(PAST)
def test_layers_whose_weight_is_read_past_an_adapter_have_none(kind, layer):
    model = adapted(kind)
    assert any(name.endswith(layer) for name, _ in model.named_modules())
    assert layer not in layers_with_adapter(model)


@for_each(["mamba", "falcon_mamba", "jamba", "bamba", "llama4_text", "phimoe", "longcat_flash"])
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


def test_an_adapter_whose_layer_is_not_called_is_refused_by_name():
    """The router of LongCat multiplies by the weight of its layer itself."""
    with pytest.raises(TutelageError, match=r"router\.classifier"):
        adapted("longcat_flash", targets="classifier,o_proj")
    assert layers_with_adapter(adapted("longcat_flash", targets="o_proj")) == {"o_proj"}


def test_weights_read_past_their_layers_are_found_in_any_model():
    """One that is called, one that is not used at all, and one that is read past."""

    class Inner(PreTrainedModel):
        def __init__(self):
            super().__init__(PreTrainedConfig(vocab_size=50))
            self.embed = torch.nn.Embedding(50, 8)
            self.used, self.idle, self.past = (torch.nn.Linear(8, 8) for _ in range(3))

        def forward(self, input_ids, use_cache):
            return SimpleNamespace(logits=self.used(self.embed(input_ids)) @ self.past.weight.T)

    model = Inner().requires_grad_(False)
    assert read_past(model) == ["past"]
    assert not any(weight.requires_grad for weight in model.parameters())

"""What the CPU engine can do with a model: supported models and refused models."""

import pytest
import tiny
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPTNeoConfig,
    GptOssConfig,
    MambaConfig,
    MistralConfig,
    PhiConfig,
)

from tutelage.base import config
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.models.backbone import adapter_dropout, load_backbone

ROTARY = tiny.ROTARY | {"num_key_value_heads": 2, "vocab_size": 300}


def supports(model, length):
    return Capabilities(model).attends(length)


def model_of(folder, rank=None):
    lora = None if rank is None else config.Lora(rank=rank)
    return load_backbone(config.Model(folder, device="cpu"), lora).model


def fresh(settings, seed=0):
    settings.pad_token_id = settings.eos_token_id = settings.bos_token_id = 0
    settings.initializer_range = 0.25
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(settings, dtype=torch.float32).eval()


@pytest.mark.parametrize(
    ("family", "reach"),
    [("opt", 10**6), ("gpt2", 10**6), ("llama", 10**6), ("qwen3", 10**6), ("gemma3", 8), ("gemma2", 0)],
)
@pytest.mark.parametrize("rank", [None, 2])
def test_each_family_is_supported_as_far_as_its_attention_is_plain(tiny_model, family, reach, rank):
    """Some layers of Gemma 3 have a window of 8 tokens; all layers of Gemma 2 cap their scores."""
    model = model_of(tiny_model(family), rank)
    assert supports(model, 1) == (reach >= 1)
    assert supports(model, reach)
    assert not supports(model, reach + 1) or reach == 10**6


def test_a_trial_within_a_step_is_not_moved_by_dropout_and_takes_no_random_number(tiny_model):
    lora = config.Lora(rank=2, dropout=0.5)
    model = load_backbone(config.Model(tiny_model("llama"), device="cpu"), lora).model
    adapter_dropout(model, True)
    before = torch.random.get_rng_state()
    assert supports(model, 8)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert any(part.training for part in model.modules())


def test_a_trial_within_a_bf16_step_judges_the_model_and_not_the_rounding(tiny_model):
    model = model_of(tiny_model("llama"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert supports(model, 8)


@pytest.mark.parametrize(
    "settings",
    [
        BloomConfig(vocab_size=300, hidden_size=16, n_layer=2, n_head=4),  # ALiBi
        GPTNeoConfig(
            vocab_size=300, hidden_size=16, num_layers=2, num_heads=4, attention_types=[[["global"], 2]]
        ),  # an attention of its own
        MambaConfig(vocab_size=300, hidden_size=16, num_hidden_layers=2, state_size=4),  # none at all
        GptOssConfig(**ROTARY, num_local_experts=2, num_experts_per_tok=1),  # sinks
    ],
    ids=lambda settings: settings.model_type,
)
def test_what_is_more_than_plain_attention_is_refused(settings):
    model = fresh(settings)
    if settings.model_type == "gpt_oss":
        for layer in model.model.layers:
            layer.self_attn.sinks.data.fill_(1.0)
    assert not supports(model, 1)


def test_a_window_counts_only_for_longer_sequences():
    model = fresh(MistralConfig(**ROTARY, sliding_window=5))
    assert supports(model, 5)
    assert not supports(model, 6)
    assert supports(fresh(PhiConfig(vocab_size=300, **tiny.WIDE, intermediate_size=32)), 10**6)


def test_a_layer_that_mixes_tokens_outside_the_interface_is_detected(tiny_model):
    model = model_of(tiny_model("llama"))
    assert supports(model, 1)
    other = model_of(tiny_model("llama"))
    other.model.layers[0].mlp.register_forward_hook(lambda module, inputs, out: out + 0.1 * out.roll(1, 1))
    assert not supports(other, 1)


def test_a_model_is_refused_while_it_runs_its_layers_twice(tiny_model):
    model = model_of(tiny_model("llama"))
    for layer in model.model.layers:
        layer.gradient_checkpointing = True  # what transformers sets
    assert not supports(model, 1)
    for layer in model.model.layers:
        layer.gradient_checkpointing = False
    assert supports(model, 1)

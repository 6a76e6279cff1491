"""Models in numbers from a configuration alone: counted weights of every family, and published counts."""

import json

import architectures
import pytest
import tiny
import torch
from offenders import for_each
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MixtralConfig, OPTConfig, Qwen3Config

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.models.backbone import load_backbone
from tutelage.models.fresh import new_llama
from tutelage.models.heads import new_reward_model
from tutelage.models.outline import outline, outline_of, outline_of_shape


@for_each(tiny.EVERY)
def test_the_outline_of_a_configuration_is_that_of_the_model(family, tmp_path):
    path = tiny.save(family, tmp_path / family)
    model = AutoModelForCausalLM.from_pretrained(path)
    found = outline(path)
    assert found == outline_of(model)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    layers = (
        model.model.decoder.layers
        if family == "opt"
        else model.base_model.get_submodule("h" if family == "gpt2" else "layers")
    )
    assert found.largest_layer == sum(p.numel() for p in layers[0].parameters())
    assert found.layers == len(layers)


@for_each(["mamba", "rwkv", "gemma3n_text", "gemma4_text", "longcat_flash"])
def test_sizes_that_a_configuration_lacks_or_states_by_layer(kind):
    """No attention heads, sizes that differ by layer, layers of other numbers than the configuration's."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(architectures.configuration(kind))
    found = outline_of(model)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.feed_forward > 0
    assert (found.attention == 0) == (kind in ("mamba", "rwkv"))
    assert found.largest_layer < found.parameters


@for_each(tiny.EVERY)
def test_an_adapter_has_the_weights_that_peft_makes(family, tiny_model):
    path = tiny_model(family)
    with_adapter = load_backbone(config.Model(path), config.Lora(rank=3)).model
    trained = sum(p.numel() for p in with_adapter.parameters() if p.requires_grad)
    assert 3 * outline(path).adapter == trained
    assert outline_of(with_adapter) == outline(path)


@for_each(tiny.EVERY)
def test_a_scalar_model_is_its_base_without_an_output_head(family, tiny_model):
    path = tiny_model(family)
    scalar, base = (outline_of(new_reward_model(config.Model(path), config.Lora(), seed=0).model), outline(path))
    assert scalar.head == 0
    assert (scalar.matrices, scalar.layers) == (base.matrices, base.layers)


SEPARATE = {"tie_word_embeddings": False}
LLAMA_3_8B = LlamaConfig(
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    **SEPARATE,
)
LLAMA_3_70B = LlamaConfig(
    vocab_size=128_256,
    hidden_size=8192,
    intermediate_size=28_672,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    **SEPARATE,
)
QWEN_3_600M = Qwen3Config(
    vocab_size=151_936,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=True,
)
PUBLISHED = {
    "meta-llama/Llama-3.1-8B": (LLAMA_3_8B, 8_030_261_248),
    "meta-llama/Llama-3.1-70B": (LLAMA_3_70B, 70_553_706_496),
    "Qwen/Qwen3-0.6B": (QWEN_3_600M, 596_049_920),
    "openai-community/gpt2": (GPT2Config(), 124_439_808),
    "facebook/opt-125m": (OPTConfig(), 125_239_296),
    "mistralai/Mixtral-8x7B-v0.1": (MixtralConfig(), 46_702_792_704),
}
"""Weights that the hub counts in the published files."""


@for_each(PUBLISHED)
def test_published_models_have_their_published_size(name, tmp_path):
    settings, count = PUBLISHED[name]
    settings.save_pretrained(tmp_path)
    assert outline(str(tmp_path)).parameters == count


def test_of_experts_a_token_passes_through_some(tmp_path):
    """Mixtral has 12.9 G active weights (arXiv 2401.04088)."""
    MixtralConfig().save_pretrained(tmp_path)
    found = outline(str(tmp_path))
    embeddings = found.head
    assert found.matrices + found.head + embeddings == pytest.approx(12.9e9, rel=0.01)
    assert found.feed_forward == 2 * 14_336


def test_a_shape_has_the_weights_of_its_model():
    shape = config.Shape(vocabulary=400, hidden=32, layers=3, heads=4)
    speech = tiny.tokenizer()
    model = new_llama(speech, shape, seed=0)
    found = outline_of_shape(config.Shape(**{**vars(shape), "vocabulary": len(speech)}))
    assert found == outline_of(model)


def test_an_adapter_folder_is_outlined_by_its_base(tmp_path, tiny_model):
    base = tiny_model("llama")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    assert outline(str(tmp_path)) == outline(base)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(TutelageError, match=r"has no configuration of a causal language model.*config\.json"):
        outline(str(tmp_path))

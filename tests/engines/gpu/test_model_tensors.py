"""Every layer is compared with the model's own; a model that computes anything else is refused."""

import pytest
import tiny
import torch
import transformers

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.gpu.gpu_engine import GpuEngine
from tutelage.engines.gpu.model_tensors import agreeing_form
from tutelage.engines.network import Backbone, UnsupportedModel
from tutelage.engines.trials import verified_head
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "granite")


def trial(tiny_model, family, dtype="float32", change=None):
    """The form of a model for inference, with uneven weights, in a dtype."""
    backbone = load_backbone(config.Model(tiny_model(family), device="cpu", engine="plain", dtype=dtype))
    tiny.roughen(backbone.model)
    if change:
        change(backbone.model.base_model)
    return agreeing_form(backbone, GpuEngine(backbone)._rotary)


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_models_stored_in_either_dtype_agree(tiny_model, family, dtype):
    form = trial(tiny_model, family, dtype)
    assert form.offset == (family == "gemma")
    assert form.dtype == (torch.float32 if dtype == "float32" else torch.bfloat16)


def narrower(stack):
    stack.layers[1].self_attn.scaling *= 1.2


def another_activation(stack):
    stack.layers[0].mlp.act_fn = torch.nn.GELU()


def another_epsilon(stack):
    stack.norm.variance_epsilon = 0.1


@pytest.mark.parametrize("change", [narrower, another_activation, another_epsilon])
def test_a_layer_that_computes_something_else_is_refused(tiny_model, change):
    with pytest.raises(UnsupportedModel):
        trial(tiny_model, "llama", change=change)


SHAPE = {
    "vocab_size": 320,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
    "pad_token_id": 0,
}
LATER = {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 32}
OTHERS = {
    "frequencies that depend on the length": (
        transformers.LlamaConfig, {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}
    ),
    "joint matrices": (transformers.Phi3Config, {}),
    "a part of each head is rotated": (
        transformers.GlmConfig, {"head_dim": 8, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    ),
    "queries with a factor at later positions": (
        transformers.Ministral3Config, {"head_dim": 8, "rope_parameters": LATER}
    ),
}  # fmt: skip


def backbone_of(settings, engine):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(settings).eval()
    return Backbone(model, tiny.tokenizer(), torch.device("cpu"), torch.float32, engine)


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_of_another_form_is_refused_by_name_and_computed_by_the_reference_engine(name):
    kind, more = OTHERS[name]
    settings = kind(**SHAPE | more)
    rows = collate(
        [EncodedRow((40, 41, 42), (7, 8, 9)), EncodedRow((50,), tuple(range(4, 60)))], 1, torch.device("cpu")
    )
    engine = GpuEngine(backbone_of(settings, "auto"), verified_head(backbone_of(settings, "auto").model))
    states = engine.states(rows)
    assert engine._reach == 0
    torch.testing.assert_close(states, Policy(backbone_of(settings, "plain")).states(rows), rtol=1e-4, atol=1e-5)
    with pytest.raises(TutelageError, match=type(engine.model).__name__):
        Policy(backbone_of(settings, "gpu")).scores(rows)

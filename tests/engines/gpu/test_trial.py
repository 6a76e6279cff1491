"""Every layer is compared with the model's own; a model that computes anything else is refused."""

import pytest
import tiny
import torch

from tutelage.base import config
from tutelage.engines.gpu.gpu_engine import GpuEngine
from tutelage.engines.gpu.transformer import UnsupportedModel
from tutelage.engines.gpu.trial import agreeing_form
from tutelage.models.backbone import load_backbone

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

"""Fused layers against the original layers, and which layers have a fused form."""

import copy

import pytest
import tiny
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.cpu.forward_pass import attention_by, differentiable_twice
from tutelage.engines.cpu.fused import fuse
from tutelage.engines.cpu.fused.attention import FusedAttention, _Rotation
from tutelage.engines.cpu.fused.gate import _ProjectedSwiGlu, _SwiGlu
from tutelage.engines.cpu.fused.layer import FusedLayer
from tutelage.engines.cpu.fused.norm import _RmsNorm
from tutelage.engines.cpu.packed_attention import packed_attention
from tutelage.engines.network import CACHE_NAMES, cache_name
from tutelage.engines.packing import pack

ROWS = [EncodedRow((11, 12, 13, 14), (15, 16, 17)), EncodedRow((11, 12, 13, 14), (18, 19)), EncodedRow((21,), (22, 23))]
FUSED = {
    "llama": {"Embedding", "LlamaRMSNorm", "LlamaMLP", "LlamaAttention", "LlamaDecoderLayer"},
    "qwen3": {"Embedding", "Qwen3RMSNorm", "Qwen3MLP", "Qwen3Attention", "Qwen3DecoderLayer"},
    "gemma2": set(),  # embeddings are scaled, weights count from one, gates are GELUs, scores are capped
    "gemma3": {"Gemma3Attention"},
    "gpt2": {"Embedding"},
    "opt": {"Embedding"},
}


def of_family(tiny_model, family):
    model = AutoModelForCausalLM.from_pretrained(tiny_model(family), dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def both(tiny_model, family):
    own = of_family(tiny_model, family)
    fused = copy.deepcopy(own)
    fuse(fused)
    return own, fused


def changed(model):
    return {type(part).__name__ for part in model.modules() if form(part).startswith("Fused")}


def form(module):
    return type(module).__mro__[1].__name__


def states(model, packed=None):
    """Hidden states of a packed sequence, or of one row."""
    if packed is None:
        return model.base_model(input_ids=torch.tensor([[11, 12, 13, 14, 15]])).last_hidden_state
    with attention_by(model, packed_attention(packed.layout)):
        line = model.base_model(input_ids=packed.tokens[None], position_ids=packed.positions[None], use_cache=False)
    return line.last_hidden_state


def gradients(model, out):
    weights = torch.arange(out.numel()).view(out.shape).mul(0.37).sin()
    return torch.autograd.grad((out * weights).sum(), list(model.base_model.parameters()))


@pytest.mark.parametrize("family", tiny.EVERY)
def test_only_layers_of_the_supported_form_are_fused(tiny_model, family):
    _, fused = both(tiny_model, family)
    assert changed(fused) == FUSED[family]


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_states_and_gradients_equal_those_of_the_original_layers(tiny_model, family, is_packed):
    own, fused = both(tiny_model, family)
    packed = pack(collate(ROWS, 1, torch.device("cpu")), with_last=False) if is_packed else None
    expected, found = states(own, packed), states(fused, packed)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    scale = max(float(g.abs().max()) for g in gradients(own, states(own, packed)))
    for a, b in zip(gradients(fused, found), gradients(own, expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * scale)


def test_the_gradients_equal_finite_differences():
    """In double precision, against finite differences."""
    torch.manual_seed(0)
    x, y = (torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = torch.randn(4, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(2, 3, 2, dtype=torch.float64).repeat(1, 1, 2)
    assert torch.autograd.gradcheck(lambda x, w: _RmsNorm.apply(x, w, 1e-6)[0], (x, weight))
    assert torch.autograd.gradcheck(_SwiGlu.apply, (x, y))
    down, bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 4), (5,)))
    assert torch.autograd.gradcheck(_ProjectedSwiGlu.apply, (x, y, down, bias))
    assert torch.autograd.gradcheck(lambda x, y: _ProjectedSwiGlu.apply(x, y, down.detach(), None), (x, y))
    assert torch.autograd.gradcheck(lambda x: _Rotation.apply(x, angle.cos(), angle.sin()), (x,))


def test_a_fused_layer_keeps_less_for_the_backward_pass(tiny_model):
    own, fused = both(tiny_model, "llama")
    packed = pack(collate(ROWS, 1, torch.device("cpu")), with_last=False)

    def kept(model):
        total = {}
        states(model, packed)  # the first time, kernels are tried, which keeps something too
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: total.setdefault(x.untyped_storage().data_ptr(), x) is not None and x, lambda x: x
        ):
            out = states(model, packed)
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        del out
        return sum(x.untyped_storage().nbytes() for at, x in total.items() if at not in weights)

    assert kept(fused) < 0.7 * kept(own)


def test_second_derivatives_equal_those_of_the_original_layers(tiny_model):
    own, fused = both(tiny_model, "qwen3")

    def curvature(model):
        with differentiable_twice():
            out = states(model)
            weight = model.base_model.layers[0].mlp.gate_proj.weight
            (slope,) = torch.autograd.grad((out**3).sum(), weight, create_graph=True)
            return torch.autograd.grad((slope**2).sum(), weight)[0]

    torch.testing.assert_close(curvature(fused), curvature(own))


def test_a_layer_whose_window_would_be_lost_is_left_alone(tiny_model):
    folder = tiny_model("qwen3", use_sliding_window=True, sliding_window=4, max_window_layers=1)
    windowed = AutoModelForCausalLM.from_pretrained(folder)
    fuse(windowed)
    first, *others = [form(layer.self_attn) for layer in windowed.base_model.layers]
    assert first == "FusedAttention"
    assert others
    assert "FusedAttention" not in others


def test_a_norm_of_another_formula_is_left_alone():
    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.ones(8)), 1e-6

        def forward(self, x):
            return self.weight**2 * x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()

    model = nn.Sequential(Squared())
    fuse(model)
    assert type(model[0]) is Squared
    assert (model[0].weight == 1).all(), "the trial left its weights behind"


class OwnLayer(nn.Module):
    """An attention module or a layer whose own forward pass keeps its arguments. Its attention is one that is fused."""

    def __init__(self):
        super().__init__()
        self.self_attn = nn.Identity()
        self.self_attn.is_fused = self.is_fused = lambda: True

    def forward(self, hidden_states, **more):
        self.arguments = more
        return (hidden_states, None) if isinstance(self, FusedAttention) else hidden_states


@pytest.mark.parametrize("name", CACHE_NAMES)
@pytest.mark.parametrize("mixin", [FusedAttention, FusedLayer])
def test_a_cache_of_keys_is_read_under_either_of_its_names(mixin, name):
    """transformers renamed the argument. The fused forms keep no cache, so the layer's own forward pass has to run."""
    module, cache = type("Fused", (mixin, OwnLayer), {})(), object()
    module(torch.ones(1, 1, 2), position_embeddings=(torch.ones(1), torch.ones(1)), **{name: cache})
    assert {key: module.arguments.get(key) for key in CACHE_NAMES if key in module.arguments} == {name: cache}


def test_the_name_of_the_cache_is_that_of_the_forward_pass():
    new, old = nn.Module(), nn.Module()
    new.forward = lambda input_ids, cache=None, **more: None
    old.forward = lambda input_ids, past_key_values=None, **more: None
    assert (cache_name(new), cache_name(old)) == ("cache", "past_key_values")

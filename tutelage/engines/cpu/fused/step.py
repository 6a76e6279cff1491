"""A decoding step of a model that is nothing but lean layers, without the modules around them.

    x ← x + W_o attention(rotated(W_qkv norm(x)))          x ← x + W_down (silu(g) · u),  (g, u) = W_gate,up norm(x)

Most of a small model's step goes to calling modules and to small operations. Here queries and keys are turned as one
tensor, whatever reads one tensor is one product, and products add to the residual stream by themselves. Whether a model
is made like that is not taken from a list: it is tried, as for its layers (see `make_lean`).
"""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from tutelage.engines.cpu.attention_interface import Attend, attention_by, of_one_token, without_dropout
from tutelage.engines.cpu.decoding_weights import Blocks, Layer, Panels
from tutelage.engines.cpu.fused.attention import rotated
from tutelage.engines.cpu.fused.layer import LeanLayer
from tutelage.engines.cpu.fused.norm import LeanNorm, epsilon_of
from tutelage.engines.cpu.fused.trial import TOLERANCE, is_listened_to
from tutelage.engines.network import inner, trunk

TRUNK = {"embed_tokens", "layers", "norm", "rotary_emb"}

_tried: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def has_lean_step(model: nn.Module) -> bool:
    """Whether `LeanStep` is what a model in float32 does. It is tried, so ask before its layers are laid out."""
    whole, stack = inner(model), trunk(model)
    if whole not in _tried:
        _tried[whole] = _is_made_so(stack) and _does_the_same(model)
    return _tried[whole] and not any(map(is_listened_to, stack.layers.modules()))


class LeanStep:
    """Tokens Int[n] at positions Int[n] → their last hidden states Float[n, d].

    With the layers of the model as they are laid out now, and the products of siblings that there are.
    """

    def __init__(self, model: nn.Module, joint: Mapping[nn.Module, Layer]) -> None:
        stack = trunk(model)
        self.embed, self.angles, self.norm = stack.embed_tokens, stack.rotary_emb, _Norm(stack.norm)
        self.layers = [_Layer(layer, joint) for layer in stack.layers]

    def __call__(self, tokens: Tensor, where: Tensor, attend: Attend) -> Tensor:
        x = self.embed(tokens)
        cos, sin = self.angles(x, where[:, None])
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)


class _Layer:
    """One layer. Its linear modules are kept: their weights are looked up when they are needed."""

    def __init__(self, layer: Any, joint: Mapping[nn.Module, Layer]) -> None:
        self.attention, gate = layer.self_attn, layer.mlp
        self.before_attention = _Norm(layer.input_layernorm)
        self.before_gate = _Norm(layer.post_attention_layernorm)
        self.norms = [_Norm(norm) for norm in self.attention.norms_of_heads()]
        sources = (self.attention.q_proj, self.attention.k_proj, self.attention.v_proj)
        self.heads_of = joint.get(self.attention) or _together(*sources)
        self.gate_and_up = joint.get(gate) or _together(gate.gate_proj, gate.up_proj)
        self.mixed, self.down = _adding(self.attention.o_proj), _adding(gate.down_proj)
        self.width = int(self.attention.head_dim)
        self.keys = sources[1].out_features // self.width
        self.queries = sources[0].out_features // self.width

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        heads = self.heads_of(self.before_attention(x)).view(len(x), -1, self.width)
        turning, value = heads.split((self.queries + self.keys, self.keys), 1)
        if self.norms:
            parts = turning.split((self.queries, self.keys), 1)
            turning = torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)], 1)
        query, key = rotated(turning, cos, sin).split((self.queries, self.keys), 1)
        out = attend(self.attention, query, key, value, self.attention.scaling)
        x = self.mixed(x, out.flatten(1))
        gate, up = self.gate_and_up(self.before_gate(x)).chunk(2, -1)
        return self.down(x, silu(gate).mul_(up))


class _Norm:
    """RMSNorm with its constants made before, in four operations for seven:  w √d · x / hypot(‖x‖, √(ε d))."""

    def __init__(self, norm: Any) -> None:
        size = norm.weight.shape[0]
        self.weight = norm.weight.detach() * size**0.5
        self.least = self.weight.new_tensor(epsilon_of(norm) * size).sqrt()

    def __call__(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self.least)
        return (x / length).mul_(self.weight)


def _together(*layers: Layer) -> Layer:
    return lambda x: torch.cat([layer(x) for layer in layers], -1)


def _adding(layer: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """(x, y) ↦ x + layer(y)"""
    fast = vars(layer).get("forward")
    return fast.onto if isinstance(fast, Blocks | Panels) else lambda x, y: x + layer(y)


# The trial ------------------------------------------------------------------------------------------------------------


def _is_made_so(stack: nn.Module) -> bool:
    """Whether modules of the right kinds and names are there, and no others."""
    if {name for name, _ in stack.named_children()} != TRUNK or not isinstance(stack.norm, LeanNorm):
        return False
    return all(isinstance(layer, LeanLayer) for layer in stack.get_submodule("layers").children())


@torch.no_grad()
def _does_the_same(model: nn.Module) -> bool:
    """Whether three lines of one token come out as from the model itself, with some attention."""
    stack = trunk(model)
    device = next(model.parameters()).device
    tokens = torch.tensor([3, 5, 7], device=device) % int(inner(model).config.get_text_config().vocab_size)
    where = torch.tensor([4, 0, 2], device=device)

    def attend(layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        repeats = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(repeats, 1) for x in (key, value))
        shares = (query * key).mul(scaling or 1.0).sigmoid()
        return shares * value + (1 - shares) * query

    try:
        with without_dropout(model):
            found = LeanStep(model, {})(tokens, where, attend)
            with attention_by(model, of_one_token(attend)):
                own = stack(input_ids=tokens[:, None], position_ids=where[:, None], use_cache=False)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        return False
    expected = own.last_hidden_state[:, 0]
    return bool((found - expected).abs().max() <= TOLERANCE * expected.abs().max())

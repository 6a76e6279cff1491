"""A decoding step of a model of fused layers, without calling their modules.

    x ← x + W_o attention(rotated(W_qkv norm(x)))          x ← x + W_down (silu(g) · u),  (g, u) = W_gate,up norm(x)

In small models, the overhead of modules and small operations dominates a step. Here queries and keys are rotated as one
tensor, matrices with a common input are one product, and products add to the residual stream directly. Support for a
model is determined by trial, as for its layers (see `Capabilities`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu

from tutelage.engines.cpu.decoding_weights import Layer, MklLinear, OneDnnLinear
from tutelage.engines.cpu.forward_pass import Attend
from tutelage.engines.cpu.fused.attention import rotated
from tutelage.engines.cpu.fused.layer import FusedLayer
from tutelage.engines.cpu.fused.norm import FusedNorm
from tutelage.engines.network import TRUNK_PARTS, epsilon_of, trunk


class FusedStep:
    """A decoding step on the current weights of a model: one token for each of n lines.

    `joint` maps a module to the joint product of its sibling matrices, if they are laid out as one.
    """

    def __init__(self, model: nn.Module, joint: Mapping[nn.Module, Layer]) -> None:
        stack = trunk(model)
        self.embed, self.angles, self.norm = stack.embed_tokens, stack.rotary_emb, _Norm(stack.norm)
        self.layers = [_Layer(layer, joint) for layer in stack.layers]

    def __call__(self, tokens: Int[Tensor, " n"], positions: Int[Tensor, " n"], attend: Attend) -> Float[Tensor, "n d"]:
        """The last hidden states of tokens at positions."""
        x = self.embed(tokens)
        cos, sin = self.angles(x, positions[:, None])
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)


class _Layer:
    """One layer of the step. It holds the linear modules and reads their weights when called."""

    def __init__(self, layer: Any, joint: Mapping[nn.Module, Layer]) -> None:
        self.attention, gate = layer.self_attn, layer.mlp
        self.before_attention = _Norm(layer.input_layernorm)
        self.before_gate = _Norm(layer.post_attention_layernorm)
        self.norms = [_Norm(norm) for norm in self.attention.norms_of_heads()]
        sources = (self.attention.q_proj, self.attention.k_proj, self.attention.v_proj)
        self.project_heads = joint.get(self.attention) or _concatenated(*sources)
        self.gate_and_up = joint.get(gate) or _concatenated(gate.gate_proj, gate.up_proj)
        self.add_output = _residual(self.attention.o_proj)
        self.add_down = _residual(gate.down_proj)
        self.width = int(self.attention.head_dim)
        self.keys = sources[1].out_features // self.width
        self.queries = sources[0].out_features // self.width

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        heads = self.project_heads(self.before_attention(x)).view(len(x), -1, self.width)
        rotating, value = heads.split((self.queries + self.keys, self.keys), 1)
        if self.norms:
            parts = rotating.split((self.queries, self.keys), 1)
            rotating = torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)], 1)
        query, key = rotated(rotating, cos, sin).split((self.queries, self.keys), 1)
        out = attend(self.attention, query, key, value, self.attention.scaling)
        x = self.add_output(x, out.flatten(1))
        gate, up = self.gate_and_up(self.before_gate(x)).chunk(2, -1)
        return self.add_down(x, silu(gate).mul_(up))


class _Norm:
    """RMSNorm with precomputed constants, in four operations instead of seven: w √d · x / hypot(‖x‖, √(ε d))."""

    def __init__(self, norm: Any) -> None:
        size = norm.weight.shape[0]
        self.weight = norm.weight.detach() * size**0.5
        self.least = self.weight.new_tensor(epsilon_of(norm) * size).sqrt()

    def __call__(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self.least)
        return (x / length).mul_(self.weight)


def _concatenated(*layers: Layer) -> Layer:
    """x ↦ the concatenated outputs of all layers"""
    return lambda x: torch.cat([layer(x) for layer in layers], -1)


def _residual(layer: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """(x, y) ↦ x + layer(y)"""
    laid_out = vars(layer).get("forward")
    return laid_out.plus if isinstance(laid_out, OneDnnLinear | MklLinear) else lambda x, y: x + layer(y)


def consists_of_fused_layers(stack: nn.Module) -> bool:
    """Whether a trunk has exactly `TRUNK_PARTS`, with fused layers and a fused norm."""
    if {name for name, _ in stack.named_children()} != TRUNK_PARTS or not isinstance(stack.norm, FusedNorm):
        return False
    return all(isinstance(layer, FusedLayer) for layer in stack.get_submodule("layers").children())

"""A transformer on plain tensors: what the compiled functions of the GPU engine compute.

    h = norm(x)              q, k, v = rotated(W_q h), rotated(W_k h), W_v h          (first step)
    x ← x + W_o a            x ← x + W_down (act(W_gate h) · W_up h),  h = norm(x)    (second step, a = attention)

The residual stream x, norms and rotations are float32; operands of products are in the dtype of the arithmetic.
Adapters stay beside their matrices. Modules are only read for their tensors: a module, with or without PEFT, is never
compiled, since each combination of adapter, gradient and mode would be another graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding, gelu, linear, relu, silu
from torch.utils.checkpoint import checkpoint

from tutelage.engines.network import LinearTensors

Attention = Callable[
    [int, Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]], Float[Tensor, "N H w"]
]
"""(index of the layer, query, key, value) ↦ attended values."""
Heads = tuple[Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]]
"""Rotated queries, rotated keys, and values."""
Rotary = Callable[[Int[Tensor, " N"]], tuple[Float[Tensor, "N w"], Float[Tensor, "N w"]]]
"""Cosines and sines of positions."""


class LayerTensors(NamedTuple):
    """The tensors of one layer."""

    attention_norm: Float[Tensor, " d"]
    heads: tuple[LinearTensors, ...]
    """Queries, keys and values: three matrices, or one with their rows."""
    query_norm: Float[Tensor, " w"] | None
    key_norm: Float[Tensor, " w"] | None
    output: LinearTensors
    gate_norm: Float[Tensor, " d"]
    gates: tuple[LinearTensors, ...]
    """Gate and up: two matrices, or one with their rows."""
    down: LinearTensors


class Network(NamedTuple):
    """The tensors of a transformer without its head."""

    embedding: Float[Tensor, "V d"]
    layers: tuple[LayerTensors, ...]
    norm: Float[Tensor, " d"]


@dataclass(frozen=True)
class NetworkForm:
    """The constants of a transformer, equal for all layers."""

    dtype: torch.dtype
    """Dtype of the operands of products."""
    width: int
    """Features of an attention head."""
    heads: int
    kv_heads: int
    epsilon: float
    offset: float
    """Added to the weights of norms: 1 in Gemma."""
    activation: str
    scaling: float
    """Factor of attention scores."""
    embedding_scale: float = 1.0
    padding: int | None = None
    """A token whose embedding is not trained."""
    residual_scale: float = 1.0

    def norm(self, x: Float[Tensor, "*N d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*N d"]:
        """RMSNorm in float32."""
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * (weight.float() + self.offset)


def attention_inputs(
    form: NetworkForm,
    layer: LayerTensors,
    x: Float[Tensor, "N d"],
    cos: Float[Tensor, "N w"],
    sin: Float[Tensor, "N w"],
) -> Heads:
    """The first step."""
    h = form.norm(x, layer.attention_norm).to(form.dtype)
    sizes = (form.heads * form.width, *(form.kv_heads * form.width,) * 2)
    query, key, value = (x.unflatten(-1, (-1, form.width)) for x in _products(layer.heads, h, sizes))
    if layer.query_norm is not None and layer.key_norm is not None:
        query, key = form.norm(query, layer.query_norm), form.norm(key, layer.key_norm)
    return _rotated(query, cos, sin).to(form.dtype), _rotated(key, cos, sin).to(form.dtype), value


def layer_output(
    form: NetworkForm, layer: LayerTensors, x: Float[Tensor, "N d"], attended: Float[Tensor, "N H w"]
) -> Float[Tensor, "N d"]:
    """The second step: the residual stream after the layer."""
    x = x + form.residual_scale * _product(layer.output, attended.flatten(-2)).float()
    h = form.norm(x, layer.gate_norm).to(form.dtype)
    width = len(layer.gates[-1].weight) // (3 - len(layer.gates))
    gate, up = _products(layer.gates, h, (width, width))
    gated = (_activated(form.activation, gate.float()) * up.float()).to(form.dtype)
    return x + form.residual_scale * _product(layer.down, gated).float()


def _products(layers: Sequence[LinearTensors], x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """The products of several matrices, or of one with all their rows. Tensors of `sizes` features"""
    if len(layers) == len(sizes):
        return [_product(layer, x) for layer in layers]
    return _product(layers[0], x).split(sizes, -1)


def _product(layer: LinearTensors, x: Float[Tensor, "N in"]) -> Float[Tensor, "N out"]:
    """y in the dtype of x."""
    bias = None if layer.bias is None else layer.bias.to(x.dtype)
    y = linear(x, layer.weight.to(x.dtype), bias)
    if layer.lora_a is None or layer.lora_b is None:
        return y
    return y + layer.scale * linear(linear(x, layer.lora_a.to(x.dtype)), layer.lora_b.to(x.dtype))


def _activated(name: str, x: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    if name in ("silu", "swish"):
        return silu(x)
    return relu(x) if name == "relu" else gelu(x, approximate="none" if name == "gelu" else "tanh")


def _rotated(x: Float[Tensor, "N H w"], cos: Float[Tensor, "N w"], sin: Float[Tensor, "N w"]) -> Float[Tensor, "N H w"]:
    """Rotary positions (Su et al. 2021, arXiv 2104.09864) on halves of each head."""
    x = x.float()
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]


@dataclass(frozen=True)
class LayerSteps:
    """The two steps of a layer, eager or compiled."""

    inputs: Callable[..., Heads] = attention_inputs
    output: Callable[..., Float[Tensor, "N d"]] = layer_output


EAGER = LayerSteps()


def forward(
    form: NetworkForm,
    network: Network,
    tokens: Int[Tensor, " N"],
    cos: Float[Tensor, "N w"],
    sin: Float[Tensor, "N w"],
    attention: Attention,
    steps: LayerSteps = EAGER,
    *,
    checkpointing: bool = False,
) -> Float[Tensor, "N d"]:
    """Last hidden states of N tokens in float32. `checkpointing`: the backward pass recomputes each layer."""

    def run(number: int, layer: LayerTensors, x: Tensor) -> Tensor:
        return steps.output(form, layer, x, attention(number, *steps.inputs(form, layer, x, cos, sin)))

    x = embedded(form, network, tokens)
    if torch.is_grad_enabled() and not x.requires_grad:
        x.requires_grad_()  # the first layer has the graph of the others
    for number, layer in enumerate(network.layers):
        x = checkpoint(run, number, layer, x, use_reentrant=False) if checkpointing else run(number, layer, x)
    return form.norm(x, network.norm)


def embedded(form: NetworkForm, network: Network, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N d"]:
    """The residual stream before the first layer."""
    return embedding(tokens, network.embedding, form.padding).float() * form.embedding_scale

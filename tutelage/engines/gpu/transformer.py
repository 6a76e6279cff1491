"""A transformer on plain tensors: what the compiled functions of the GPU engine compute.

    h = norm(x)              q, k, v = rotated(W_q h), rotated(W_k h), W_v h          (first step)
    x ← x + W_o a            x ← x + W_down (act(W_gate h) · W_up h),  h = norm(x)    (second step, a = attention)

The residual stream x, norms and rotations are float32; operands of products are in the dtype of the arithmetic.
Adapters stay beside their matrices. Modules are only read for their tensors: a module, with or without PEFT, is never
compiled, since each combination of adapter, gradient and mode would be another graph.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, linear, relu, silu
from torch.utils.checkpoint import checkpoint

from tutelage.engines.network import active_adapters, drops, inner, trunk

Attention = Callable[
    [int, Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]], Float[Tensor, "N H w"]
]
"""(index of the layer, query, key, value) ↦ attended values."""
Heads = tuple[Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]]
"""Rotated queries, rotated keys, and values."""


class LinearTensors(NamedTuple):
    """The tensors of y = W x + b + s B A x."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None = None
    lora_a: Float[Tensor, "r in"] | None = None
    lora_b: Float[Tensor, "out r"] | None = None
    scale: float = 0.0

    def map(self, change: Callable[[Float[Tensor, "..."]], Float[Tensor, "..."]]) -> "LinearTensors":
        """A copy with `change` applied to each tensor."""
        bias, a, b = (None if x is None else change(x) for x in (self.bias, self.lora_a, self.lora_b))
        return LinearTensors(change(self.weight), bias, a, b, self.scale)

    def __call__(self, x: Float[Tensor, "N in"]) -> Float[Tensor, "N out"]:
        """y in the dtype of x."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        y = linear(x, self.weight.to(x.dtype), bias)
        if self.lora_a is None or self.lora_b is None:
            return y
        return y + self.scale * linear(linear(x, self.lora_a.to(x.dtype)), self.lora_b.to(x.dtype))


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
    x = x + form.residual_scale * layer.output(attended.flatten(-2)).float()
    h = form.norm(x, layer.gate_norm).to(form.dtype)
    width = len(layer.gates[-1].weight) // (3 - len(layer.gates))
    gate, up = _products(layer.gates, h, (width, width))
    gated = (_activated(form.activation, gate.float()) * up.float()).to(form.dtype)
    return x + form.residual_scale * layer.down(gated).float()


def _products(layers: Sequence[LinearTensors], x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """The products of several matrices, or of one with all their rows. Tensors of `sizes` features"""
    return [layer(x) for layer in layers] if len(layers) == len(sizes) else layers[0](x).split(sizes, -1)


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


# Reading a model ------------------------------------------------------------------------------------------------------

TRUNK_PARTS = {"embed_tokens", "layers", "norm", "rotary_emb"}
LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj"}
HEAD_NORMS = {"q_norm", "k_norm"}
GATE_PARTS = {"gate_proj", "up_proj", "down_proj"}
ACTIVATIONS = {"silu", "swish", "relu", "gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast"}


class UnsupportedModel(Exception):
    """A model, or a state of it, that is not of the form of this file. The message says in what."""


def form_of(model: nn.Module, dtype: torch.dtype, *, offset: float = 0.0) -> NetworkForm:
    """The constants of a model. Raises UnsupportedModel where its modules do not have the form."""
    stack, settings = _stack(model), inner(model).config.get_text_config()
    first = stack.layers[0]
    _check_parts(first, LAYER_PARTS)
    attention = first.self_attn
    activation = str(getattr(settings, "hidden_activation", None) or settings.hidden_act)
    if activation not in ACTIVATIONS:
        raise UnsupportedModel(f"its activation is {activation}")
    embed_scale = getattr(stack.embed_tokens, "scalar_embed_scale", None)
    return NetworkForm(
        dtype=dtype,
        width=int(attention.head_dim),
        heads=len(_matrix(attention.q_proj)) // int(attention.head_dim),
        kv_heads=len(_matrix(attention.k_proj)) // int(attention.head_dim),
        epsilon=_epsilon(first.input_layernorm),
        offset=offset,
        activation=activation,
        scaling=float(attention.scaling),
        padding=stack.embed_tokens.padding_idx,
        embedding_scale=float(embed_scale or getattr(settings, "embedding_multiplier", None) or 1.0),
        residual_scale=float(getattr(settings, "residual_multiplier", None) or 1.0),
    )


def network_of(model: nn.Module) -> Network:
    """The tensors of a model with its active adapters. Raises UnsupportedModel if its modules lack the form."""
    stack = _stack(model)
    return Network(_weight(stack.embed_tokens), tuple(map(_layer, stack.layers)), _weight(stack.norm))


def _stack(model: nn.Module) -> Any:
    """The trunk, if it consists of the modules of the form."""
    stack = trunk(model)
    own = {name for name, _ in stack.named_children()}
    if own != TRUNK_PARTS:
        raise UnsupportedModel(f"its trunk consists of {', '.join(sorted(own))}")
    kind = getattr(stack.rotary_emb, "rope_type", "default")
    if kind in ("dynamic", "longrope"):
        raise UnsupportedModel(f"its rotary frequencies depend on the length of a row (rope type {kind})")
    return stack


def _layer(layer: Any) -> LayerTensors:
    _check_parts(layer, LAYER_PARTS)
    attention, gate = layer.self_attn, layer.mlp
    norms = HEAD_NORMS & {name for name, _ in attention.named_children()}
    _check_parts(attention, ATTENTION_PARTS | norms)
    _check_parts(gate, GATE_PARTS)
    return LayerTensors(
        attention_norm=_weight(layer.input_layernorm),
        heads=(_linear(attention.q_proj), _linear(attention.k_proj), _linear(attention.v_proj)),
        query_norm=_weight(attention.q_norm) if norms else None,
        key_norm=_weight(attention.k_norm) if norms else None,
        output=_linear(attention.o_proj),
        gate_norm=_weight(layer.post_attention_layernorm),
        gates=(_linear(gate.gate_proj), _linear(gate.up_proj)),
        down=_linear(gate.down_proj),
    )


def _check_parts(module: nn.Module, names: set[str]) -> None:
    """Raise UnsupportedModel unless the submodules with parameters are exactly `names`."""
    own = {name for name, part in module.named_children() if name in names or any(True for _ in part.parameters())}
    if own != names:
        raise UnsupportedModel(f"its {type(module).__name__} consists of {', '.join(sorted(own)) or 'nothing'}")


def _weight(module: Any) -> Tensor:
    """The only parameter of an embedding or a norm."""
    parameters = dict(module.named_parameters())
    if set(parameters) != {"weight"} or module._forward_hooks or module._forward_pre_hooks:
        raise UnsupportedModel(f"its {type(module).__name__} has more than a weight")
    return parameters["weight"]


def _matrix(module: nn.Module) -> Tensor:
    return _linear(module).weight


def _linear(module: nn.Module) -> LinearTensors:
    """The tensors of a linear layer with at most one active LoRA adapter."""
    hooks = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    if type(module) is nn.Linear and not hooks:
        return LinearTensors(module.weight, module.bias)
    if not isinstance(module, LoraLinear) or hooks or module.merged:
        raise UnsupportedModel(f"it has a {type(module).__name__} for a linear layer")
    base = _linear(module.get_base_layer())
    names = active_adapters(module)
    if not names:
        return base
    name = names[0]
    a, b = (cast(nn.Linear, parts[name]) for parts in (module.lora_A, module.lora_B))
    if drops(module.lora_dropout[name]):
        raise UnsupportedModel("its adapter has dropout")
    if len(names) > 1 or name in module.lora_variant or module.lora_bias[name]:
        raise UnsupportedModel("its adapter is more than W + s B A")
    return LinearTensors(base.weight, base.bias, a.weight, b.weight, float(module.scaling[name]))


def _epsilon(norm: Any) -> float:
    for name in ("variance_epsilon", "eps"):
        if isinstance(getattr(norm, name, None), float):
            return float(getattr(norm, name))
    raise UnsupportedModel(f"its {type(norm).__name__} has no epsilon")


def linears(layer: LayerTensors) -> Iterator[LinearTensors]:
    """All matrices of a layer."""
    yield from (*layer.heads, layer.output, *layer.gates, layer.down)


def tensors(network: Network) -> Iterator[Float[Tensor, "..."]]:
    """All tensors of a network, in a fixed order."""
    yield from (network.embedding, network.norm)
    for layer in network.layers:
        yield from (x for linear in linears(layer) for x in linear if isinstance(x, Tensor))
        norms = (layer.attention_norm, layer.query_norm, layer.key_norm, layer.gate_norm)
        yield from (x for x in norms if x is not None)


def detached(network: Network) -> Network:
    """The network with its parameters as tensors without gradients."""
    detach = Tensor.detach

    def layer(x: LayerTensors) -> LayerTensors:
        query_norm, key_norm = (None if norm is None else norm.detach() for norm in (x.query_norm, x.key_norm))
        return LayerTensors(
            attention_norm=x.attention_norm.detach(),
            heads=tuple(linear.map(detach) for linear in x.heads),
            query_norm=query_norm,
            key_norm=key_norm,
            output=x.output.map(detach),
            gate_norm=x.gate_norm.detach(),
            gates=tuple(linear.map(detach) for linear in x.gates),
            down=x.down.map(detach),
        )

    return Network(network.embedding.detach(), tuple(map(layer, network.layers)), network.norm.detach())

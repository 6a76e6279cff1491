"""The tensors of a model and the constants of its computation, if its layers compute what `transformer` computes.

Whether they do is tried: each layer is compared on the model's own states before it, so that rounding does not add up
over layers: in bf16 a model rounds its residual stream, which this engine does not.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from tutelage.engines.gpu.span_attention import Spans
from tutelage.engines.gpu.transformer import (
    LayerTensors,
    Network,
    NetworkForm,
    Rotary,
    attention_inputs,
    embedded,
    layer_output,
)
from tutelage.engines.network import (
    TRUNK_PARTS,
    Backbone,
    LinearTensors,
    UnsupportedModel,
    context_of,
    epsilon_of,
    inner,
    trunk,
)
from tutelage.engines.trials import tokens_of

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.03}
"""Tolerance of a layer, relative to the norm of its states."""
TOKENS = 16
LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj"}
HEAD_NORMS = {"q_norm", "k_norm"}
GATE_PARTS = {"gate_proj", "up_proj", "down_proj"}
ACTIVATIONS = {"silu", "swish", "relu", "gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast"}


@torch.no_grad()
def agreeing_form(backbone: Backbone, rotary: Rotary) -> NetworkForm:
    """The form with which every layer of the model agrees, in the dtype of the model's weights.

    Raises UnsupportedModel if there is none.
    """
    model, device = backbone.model, backbone.device
    tokens = tokens_of(model, torch.arange(1, TOKENS + 1) * 7)
    kind = next(model.parameters()).dtype
    dtype = torch.float32 if kind == torch.float32 else backbone.dtype
    network = network_of(model)
    forms = [form_of(model, dtype, offset=offset) for offset in (0.0, 1.0)]
    passes = []
    for start in {0, max(0, (context_of(model) or 0) - TOKENS)}:  # factors of queries may depend on positions
        positions = start + torch.arange(TOKENS, device=device)
        with torch.autocast(device.type, dtype=backbone.dtype, enabled=dtype != torch.float32):
            output = trunk(model)(
                input_ids=tokens[None], position_ids=positions[None], use_cache=False, output_hidden_states=True
            )
        passes.append((positions, [x[0].float() for x in output.hidden_states]))
    errors = []
    for form in forms:
        errors.append(max(max(_errors(form, network, tokens, *each, rotary)) for each in passes))
        if errors[-1] <= TOLERANCE[dtype]:
            return replace(form, dtype=backbone.dtype)
    raise UnsupportedModel(f"a layer differs by {min(errors):.2g} of its states")


def _errors(
    form: NetworkForm,
    network: Network,
    tokens: Int[Tensor, " N"],
    positions: Int[Tensor, " N"],
    states: list[Float[Tensor, "N d"]],
    rotary: Rotary,
) -> Iterator[float]:
    """The error of the embedding and of each layer, the last one with the norm after it."""
    zeros = torch.zeros_like(tokens)
    spans = Spans.padded(zeros, zeros)
    cos, sin = rotary(spans.pad(positions))
    if cos.shape[-1] != form.width:
        raise UnsupportedModel("it rotates a part of each head")
    attend = spans.attention(form.scaling, form.width)
    yield _error(embedded(form, network, tokens), states[0])
    for number, layer in enumerate(network.layers):
        x = pad(states[number], (0, 0, 0, len(cos) - len(tokens)))
        x = layer_output(form, layer, x, attend(number, *attention_inputs(form, layer, x, cos, sin)))[: len(tokens)]
        is_last = number + 1 == len(network.layers)
        yield _error(form.norm(x, network.norm) if is_last else x, states[number + 1])


def _error(x: Tensor, expected: Tensor) -> float:
    return float((x - expected).norm() / expected.norm())


def form_of(model: nn.Module, dtype: torch.dtype, *, offset: float = 0.0) -> NetworkForm:
    """The constants of a model. Raises UnsupportedModel where its modules do not have the form."""
    stack, settings = _stack(model), inner(model).config.get_text_config()
    first = stack.layers[0]
    _check_parts(first, LAYER_PARTS)
    attention = first.self_attn
    activation = str(getattr(settings, "hidden_activation", None) or settings.hidden_act)
    if activation not in ACTIVATIONS:
        raise UnsupportedModel(f"its activation is {activation}")
    epsilon = epsilon_of(first.input_layernorm)
    if not isinstance(epsilon, float):
        raise UnsupportedModel(f"its {type(first.input_layernorm).__name__} has no epsilon")
    embed_scale = getattr(stack.embed_tokens, "scalar_embed_scale", None)
    return NetworkForm(
        dtype=dtype,
        width=int(attention.head_dim),
        heads=len(LinearTensors.of(attention.q_proj).weight) // int(attention.head_dim),
        kv_heads=len(LinearTensors.of(attention.k_proj).weight) // int(attention.head_dim),
        epsilon=epsilon,
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
    attention, gate, linear = layer.self_attn, layer.mlp, LinearTensors.of
    norms = HEAD_NORMS & {name for name, _ in attention.named_children()}
    _check_parts(attention, ATTENTION_PARTS | norms)
    _check_parts(gate, GATE_PARTS)
    return LayerTensors(
        attention_norm=_weight(layer.input_layernorm),
        heads=(linear(attention.q_proj), linear(attention.k_proj), linear(attention.v_proj)),
        query_norm=_weight(attention.q_norm) if norms else None,
        key_norm=_weight(attention.k_norm) if norms else None,
        output=linear(attention.o_proj),
        gate_norm=_weight(layer.post_attention_layernorm),
        gates=(linear(gate.gate_proj), linear(gate.up_proj)),
        down=linear(gate.down_proj),
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


def detached(tree: Any) -> Any:
    """A network, or a part of it, with parameters as tensors without gradients."""
    own = [x.detach() if isinstance(x, Tensor) else detached(x) if isinstance(x, tuple) else x for x in tree]
    return tree._make(own) if hasattr(tree, "_make") else tuple(own)

"""Trial of a model: whether its layers compute what `transformer` computes on their tensors.

Each layer is compared on the model's own states before it, so that rounding does not add up over layers: in bf16 a
model rounds its residual stream, which this engine does not.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from tutelage.engines.gpu.decoding_copy import Rotary
from tutelage.engines.gpu.span_attention import Spans
from tutelage.engines.gpu.transformer import (
    Network,
    NetworkForm,
    UnsupportedModel,
    attention_inputs,
    embedded,
    form_of,
    layer_output,
    network_of,
)
from tutelage.engines.network import Backbone, context_of, inner, trunk

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.03}
"""Tolerance of a layer, relative to the norm of its states."""
TOKENS = 16


@torch.no_grad()
def agreeing_form(backbone: Backbone, rotary: Rotary) -> NetworkForm:
    """The form with which every layer of the model agrees, in the dtype of the model's weights.

    Raises UnsupportedModel if there is none.
    """
    model, device = backbone.model, backbone.device
    tokens = (torch.arange(1, TOKENS + 1, device=device) * 7) % int(inner(model).config.get_text_config().vocab_size)
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
    for offset, form in zip((0.0, 1.0), forms, strict=True):
        errors.append(max(max(_errors(form, network, tokens, *each, rotary)) for each in passes))
        if errors[-1] <= TOLERANCE[dtype]:
            return form_of(model, backbone.dtype, offset=offset)
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

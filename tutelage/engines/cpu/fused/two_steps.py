"""The two steps of a transformer layer around its attention, each an autograd function with its own gradient.

    n = norm(x)                q, k, v = rotated(W_q n), rotated(W_k n), W_v n
    h = x + W_o a, n = norm(h)         g, u = W_g n, W_u n        y = h + W_d (silu(g) · u)

Each matrix may have a bias and an adapter (see `linear`). A step keeps what is expensive to recompute: x in the first,
a, h, g and u in the second. Sums of products are accumulated by the products themselves. Where the activations are kept
from another forward pass, only r is computed, for the backward pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from tutelage.engines.cpu.fused.attention import rotate
from tutelage.engines.cpu.fused.gate import gate_gradients, swiglu
from tutelage.engines.cpu.fused.layer_cache import LayerActivations
from tutelage.engines.cpu.fused.linear import TENSORS, Linear, by_layer, linears
from tutelage.engines.cpu.fused.norm import rms_norm, rms_norm_gradients, scaled


class AttentionInputs(torch.autograd.Function):
    """The first step: x [N, d] → q [N, H, w], k [N, K, w], v [N, K, w].

    `activations` are those of the layer where they are kept. `epsilons` belong to the norm and to the norms of heads,
    `scales` and `tensors` to the three products (see `linear.Linear`); the weights of the norms of heads come last.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        activations: LayerActivations | None,
        width: int,
        epsilons: tuple[float, ...],
        cos: Tensor,
        sin: Tensor,
        norm: Tensor,
        scales: tuple[float, ...],
        *tensors: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = TENSORS * len(scales)
        products, of_heads = linears(scales, tensors[:count]), tensors[count:]
        ctx.scales, ctx.has_norms = scales, bool(of_heads)
        if activations is not None:
            ctx.save_for_backward(x, rms_norm(x, norm, epsilons[0])[1], cos, sin, norm, *tensors)
            return activations.query, activations.key, activations.value
        n, r = rms_norm(x, norm, epsilons[0])
        query, key, value = (product(n).view(len(n), -1, width) for product in products)
        kept: list[Tensor] = []
        if of_heads:
            raw = (query, key)
            (query, query_r), (key, key_r) = map(rms_norm, raw, of_heads, epsilons[1:])
            kept = [*raw, query_r, key_r]
        ctx.save_for_backward(x, r, cos, sin, norm, *tensors, *kept)
        return rotate(query, cos, sin, 1.0), rotate(key, cos, sin, 1.0), value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_query: Tensor, to_key: Tensor, to_value: Tensor) -> tuple[Tensor | None, ...]:
        x, r, cos, sin, norm, *rest = ctx.saved_tensors
        count = TENSORS * len(ctx.scales)
        products, rest = linears(ctx.scales, rest[:count]), rest[count:]
        to_heads = [rotate(grad, cos, sin, -1.0) for grad in (to_query, to_key)]
        to_norms: list[Tensor] = []
        if ctx.has_norms:
            of_heads, raw, scales = rest[:2], rest[2:4], rest[4:]
            back = [
                rms_norm_gradients(grad, y, w, s)
                for grad, y, w, s in zip(to_heads, raw, of_heads, scales, strict=True)
            ]
            to_heads, to_norms = ([grads[i] for grads in back] for i in (0, 1))
        n = scaled(x, r, norm)
        grads = [grad.flatten(1) for grad in (*to_heads, to_value)]
        wanted = by_layer(ctx.needs_input_grad[8 : 8 + count])
        to_tensors, to_n = [], None
        for product, grad, own in zip(products, grads, wanted, strict=True):
            to_tensors += product.gradients(grad, n, own)
            to_n = product.add_to_input(grad, to_n)
        assert to_n is not None
        to_x, to_norm = rms_norm_gradients(to_n, x, norm, r)
        return to_x, None, None, None, None, None, to_norm, None, *to_tensors, *to_norms


class LayerOutputs(torch.autograd.Function):
    """The second step: x [N, d], a [N, H · w] → y [N, d], or of the tokens at `index` alone.

    `activations` are those of the layer where they are kept, `scales` and `tensors` belong to o, gate, up and down.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        a: Tensor,
        index: Tensor | None,
        activations: LayerActivations | None,
        epsilon: float,
        norm: Tensor,
        scales: tuple[float, ...],
        *tensors: Any,
    ) -> Tensor:
        ctx.count, ctx.scales = len(x), scales
        if index is not None:
            x, a = x.index_select(0, index), a.index_select(0, index)
        if activations is None:
            h, gate, up, y, r = layer_outputs(x, a, epsilon, norm, linears(scales, tensors))
        else:
            known = (activations.h, activations.gate, activations.up, activations.y)
            h, gate, up, y = known if index is None else (part.index_select(0, index) for part in known)
            r = rms_norm(h, norm, epsilon)[1]
        ctx.save_for_backward(a, index, h, r, gate, up, norm, *tensors)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, index, h, r, gate, up, norm, *tensors = ctx.saved_tensors
        mix, to_gate, to_up, down = linears(ctx.scales, tensors)
        wanted = by_layer(ctx.needs_input_grad[7:])
        p, grad_gate, grad_up = gate_gradients(gate, up, down.add_to_input(grad))
        to_down = down.gradients(grad, p, wanted[3])
        n = scaled(h, r, norm)
        to_gate_and_up = [
            *to_gate.gradients(grad_gate, n, wanted[1]),
            *to_up.gradients(grad_up, n, wanted[2]),
        ]
        to_n = to_up.add_to_input(grad_up, to_gate.add_to_input(grad_gate))
        to_x, to_norm = rms_norm_gradients(to_n, h, norm, r, more=grad)
        to_mix = mix.gradients(to_x, a, wanted[0])
        to_a = mix.add_to_input(to_x)
        if index is not None:
            to_x, to_a = (
                part.new_zeros(ctx.count, part.shape[1]).index_copy_(0, index, part) for part in (to_x, to_a)
            )
        return to_x, to_a, None, None, None, to_norm, None, *to_mix, *to_gate_and_up, *to_down


def layer_outputs(
    x: Float[Tensor, "N d"],
    a: Float[Tensor, "N Hw"],
    epsilon: float,
    norm: Float[Tensor, " d"],
    products: Sequence[Linear],
) -> tuple[Float[Tensor, "N _"], ...]:
    """h [N, d], g [N, m], u [N, m], y [N, d] and r [N, 1] of the second step, without a gradient."""
    mix, to_gate, to_up, down = products
    h = mix(a).add_(x)
    n, r = rms_norm(h, norm, epsilon)
    gate, up = to_gate(n), to_up(n)
    return h, gate, up, down(swiglu(gate, up)).add_(h), r

"""The two steps of a transformer layer around its attention, each an autograd function with its own gradient.

    n = norm(x)                q, k, v = rotated(W_q n), rotated(W_k n), W_v n
    h = x + W_o a, n = norm(h)         g, u = W_g n, W_u n        y = h + W_d (silu(g) · u)

A step keeps what is expensive to recompute: x in the first, a, h, g and u in the second. Sums of products are
accumulated by the products themselves. Where the activations are kept from another forward pass, only r is computed,
for the backward pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, silu

from tutelage.engines.cpu.fused.attention import rotate
from tutelage.engines.cpu.fused.gate import projected_swiglu_gradients
from tutelage.engines.cpu.fused.layer_cache import LayerActivations
from tutelage.engines.cpu.fused.norm import reciprocal_rms, rms_norm, rms_norm_gradients, scaled
from tutelage.engines.cpu.gradients import add_product


class AttentionInputs(torch.autograd.Function):
    """The first step: x [N, d] → q [N, H, w], k [N, K, w], v [N, K, w].

    `activations` are those of the layer where they are kept. `epsilons` belong to the norm and to the norms of heads,
    `weights` are W and b of the three products, then the weights of the norms of heads.
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
        *weights: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        products, of_heads = weights[:6], weights[6:]
        ctx.has_norms = bool(of_heads)
        if activations is not None:
            ctx.save_for_backward(x, reciprocal_rms(x, epsilons[0]), cos, sin, norm, *weights)
            return activations.query, activations.key, activations.value
        n, r = rms_norm(x, norm, epsilons[0])
        query, key, value = (
            linear(n, w, b).view(len(n), -1, width)
            for w, b in zip(products[::2], products[1::2], strict=True)
        )
        kept: list[Tensor] = []
        if of_heads:
            raw = (query, key)
            (query, query_r), (key, key_r) = map(rms_norm, raw, of_heads, epsilons[1:])
            kept = [*raw, query_r, key_r]
        ctx.save_for_backward(x, r, cos, sin, norm, *weights, *kept)
        return rotate(query, cos, sin, 1.0), rotate(key, cos, sin, 1.0), value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_query: Tensor, to_key: Tensor, to_value: Tensor) -> tuple[Tensor | None, ...]:
        x, r, cos, sin, norm, *rest = ctx.saved_tensors
        products, rest = rest[:6], rest[6:]
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
        wanted = _pairs(ctx.needs_input_grad[7:13])
        grads = [grad.flatten(1) for grad in (*to_heads, to_value)]
        queries, keys, values = matrices = products[::2]
        to_products = [
            x
            for grad, weight, own in zip(grads, matrices, wanted, strict=True)
            for x in _to_matrix(grad, n, weight, own)
        ]
        to_n = (grads[0] @ queries).addmm_(grads[1], keys).addmm_(grads[2], values)
        to_x, to_norm = rms_norm_gradients(to_n, x, norm, r)
        return to_x, None, None, None, None, None, to_norm, *to_products, *to_norms


class LayerOutputs(torch.autograd.Function):
    """The second step: x [N, d], a [N, H · w] → y [N, d], or of the tokens at `index` alone.

    `activations` are those of the layer where they are kept, `weights` W and b of o, gate, up and down.
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
        *weights: Any,
    ) -> Tensor:
        ctx.count = len(x)
        if index is not None:
            x, a = x.index_select(0, index), a.index_select(0, index)
        if activations is None:
            h, r, gate, up, y = layer_outputs(x, a, epsilon, norm, weights)
        else:
            known = (activations.h, activations.gate, activations.up, activations.y)
            h, gate, up, y = known if index is None else (part.index_select(0, index) for part in known)
            r = reciprocal_rms(h, epsilon)
        ctx.save_for_backward(a, index, h, r, gate, up, norm, *weights[::2])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, index, h, r, gate, up, norm, mix, to_gate, to_up, down = ctx.saved_tensors
        wanted = _pairs(ctx.needs_input_grad[6:])
        grad_gate, grad_up, *to_down = projected_swiglu_gradients(grad, gate, up, down, wanted[3])
        n = scaled(h, r, norm)
        to_gate_and_up = [
            *_to_matrix(grad_gate, n, to_gate, wanted[1]),
            *_to_matrix(grad_up, n, to_up, wanted[2]),
        ]
        to_n = (grad_gate @ to_gate).addmm_(grad_up, to_up)
        to_x, to_norm = rms_norm_gradients(to_n, h, norm, r, more=grad)
        to_mix = _to_matrix(to_x, a, mix, wanted[0])
        to_a = to_x @ mix
        if index is not None:
            to_x, to_a = (
                part.new_zeros(ctx.count, part.shape[1]).index_copy_(0, index, part) for part in (to_x, to_a)
            )
        return to_x, to_a, None, None, None, to_norm, *to_mix, *to_gate_and_up, *to_down


def layer_outputs(
    x: Float[Tensor, "N d"],
    a: Float[Tensor, "N Hw"],
    epsilon: float,
    norm: Float[Tensor, " d"],
    weights: Sequence[Float[Tensor, "..."] | None],
) -> tuple[Float[Tensor, "N _"], ...]:
    """h [N, d], r [N, 1], g [N, m], u [N, m] and y [N, d] of the second step, without a gradient."""
    (mix, mix_bias), (to_gate, gate_bias), (to_up, up_bias), (down, down_bias) = _pairs(weights)
    h = linear(a, mix, mix_bias).add_(x)
    n, r = rms_norm(h, norm, epsilon)
    gate, up = linear(n, to_gate, gate_bias), linear(n, to_up, up_bias)
    return h, r, gate, up, linear(silu(gate).mul_(up), down, down_bias).add_(h)


def _pairs(weights: Sequence[Any]) -> list[tuple[Any, Any]]:
    """(W, b), (W, b), … from W, b, W, b, …"""
    return list(zip(weights[::2], weights[1::2], strict=True))


def _to_matrix(grad: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> list[Tensor | None]:
    """The gradients of W and b of y = x Wᵀ + b from the gradient of y; None where one is not `wanted`.

    The gradient of W is None, too, where it was added in place (see `tutelage.engines.cpu.gradients`).
    """
    return [add_product(weight, grad.T, x) if wanted[0] else None, grad.sum(0) if wanted[1] else None]

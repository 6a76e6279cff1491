"""The two steps of a transformer layer around its attention, each an autograd function with its own gradient.

    n = norm(x)                q, k, v = rotated(W_q n), rotated(W_k n), W_v n
    h = x + W_o a, n = norm(h)         g, u = W_g n, W_u n        y = h + W_d (silu(g) · u)

Each matrix may have a bias and an adapter (see `linears`). Each step saves what is expensive to recompute: x in the
first, a, h, g and u in the second. Products accumulate into their destination. With cached activations from another
forward pass, only the norms and the inner products t of the adapters are computed, for the backward pass.

Both steps share one implementation for both precisions (see `arithmetic`). With products in bfloat16, a step saves its
activations, including x and h, in bfloat16. Weights are rounded again in the backward pass instead of keeping rounded
copies of all of them. The forward pass is bit-identical to a decoding step (see `native.matrix_products`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from tutelage.engines.cpu.forward_pass import LayerActivations
from tutelage.engines.cpu.fused.arithmetic import Arithmetic
from tutelage.engines.cpu.fused.linears import TENSORS, AdaptedLinear, by_layer, linears

_NONE = (None,)


class AttentionInputs(torch.autograd.Function):
    """The first step: x [N, d] → q [N, H, w], k [N, K, w], v [N, K, w], the results of products.

    `activations` are the cached ones of the layer, if any. `epsilons` belong to the norm and to the norms of heads,
    `scales` and `tensors` to the three products (see `AdaptedLinear`); the weights of the norms of heads come last.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        arithmetic: Arithmetic,
        activations: LayerActivations | None,
        width: int,
        epsilons: tuple[float, ...],
        cos: Tensor,
        sin: Tensor,
        norm: Tensor,
        scales: tuple[float, ...],
        *tensors: Any,
    ) -> tuple[Tensor, ...]:
        layers, norms = _parts(scales, tensors)
        ctx.arithmetic, ctx.scales, ctx.epsilon = arithmetic, scales, epsilons[0]
        ctx.counts = [len(layer.weight) // width for layer in layers]
        product = arithmetic.linears(layers)
        n, r = arithmetic.norm(x, norm, ctx.epsilon)
        saved = (arithmetic.operand(x), r, cos, sin, norm)
        if activations is not None:
            ctx.save_for_backward(*saved, product.inside(n), *tensors)
            return activations.query, activations.key, activations.value
        y, t = product(n)
        heads, kept = arithmetic.heads(y, ctx.counts, (cos, sin), norms, epsilons[1:])
        ctx.save_for_backward(*saved, t, *tensors, *kept)
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *to_heads: Tensor) -> tuple[Tensor | None, ...]:
        arithmetic: Arithmetic = ctx.arithmetic
        x, r, cos, sin, norm, t, *rest = ctx.saved_tensors
        layers, more = _parts(ctx.scales, rest)
        norms, kept = more[:2], more[2:]
        x, product = arithmetic.restored(x), arithmetic.linears(layers)
        grads, to_norms = arithmetic.head_gradients(to_heads, ctx.counts, (cos, sin), norms, kept)
        n = arithmetic.normed_again(x, r, norm, ctx.epsilon)
        to_n, to_t = product.to_input(grads)
        needs_grad = by_layer(ctx.needs_input_grad[9 : 9 + TENSORS * len(layers)])
        to_tensors = product.to_tensors(grads, n, t, to_t, needs_grad)
        to_x, _, to_norm = arithmetic.norm_gradients(to_n, x, norm, r)
        return to_x, *_NONE * 6, to_norm, None, *to_tensors, *to_norms


class LayerOutputs(torch.autograd.Function):
    """The second step: x [N, d], a [N, H · w] → y [N, d], or of the tokens at `index` alone.

    `activations` are the cached ones of the layer, if any; `scales` and `tensors` belong to o, gate, up and down.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        a: Tensor,
        arithmetic: Arithmetic,
        index: Tensor | None,
        activations: LayerActivations | None,
        epsilon: float,
        norm: Tensor,
        scales: tuple[float, ...],
        *tensors: Any,
    ) -> Tensor:
        ctx.arithmetic, ctx.count, ctx.epsilon, ctx.scales = arithmetic, len(x), epsilon, scales
        if index is not None:
            x, a = x.index_select(0, index), a.index_select(0, index)
        layers = linears(scales, tensors)
        if activations is None:
            h, _, _, y, r, pairs, inside = layer_outputs(arithmetic, x, a, epsilon, norm, layers)
        else:
            known = (activations.h, activations.gate, activations.up, activations.y)
            h, gate, up, y = known if index is None else (part.index_select(0, index) for part in known)
            pairs = arithmetic.joined(gate, up)
            n, r = arithmetic.norm(h, norm, epsilon)
            mix, gate_and_up, down = _products(arithmetic, layers)
            of_down = down.inside(arithmetic.swiglu(pairs)) if down.has_inside else None
            inside = [mix.inside(a), gate_and_up.inside(n), of_down]
        ctx.save_for_backward(a, index, arithmetic.operand(h), r, norm, *inside, *tensors, *pairs)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        arithmetic: Arithmetic = ctx.arithmetic
        a, index, h, r, norm, of_mix, of_pairs, of_down, *rest = ctx.saved_tensors
        layers, pairs = _parts(ctx.scales, rest)
        h, y_grad = arithmetic.restored(h), (arithmetic.operand(grad),)
        mix, gate_and_up, down = _products(arithmetic, layers)
        needs_grad = by_layer(ctx.needs_input_grad[8:])
        to_p, to_t = down.to_input(y_grad)
        p, to_pairs = arithmetic.swiglu_gradients(tuple(pairs), to_p)
        to_down = down.to_tensors(y_grad, p, of_down, to_t, needs_grad[3:])
        n = arithmetic.normed_again(h, r, norm, ctx.epsilon)
        to_n, to_t = gate_and_up.to_input(to_pairs)
        to_gate_and_up = gate_and_up.to_tensors(to_pairs, n, of_pairs, to_t, needs_grad[1:3])
        to_x, operand, to_norm = arithmetic.norm_gradients(to_n, h, norm, r, grad)
        to_a, to_t = mix.to_input((operand,))
        to_mix = mix.to_tensors((operand,), a, of_mix, to_t, needs_grad[:1])
        if index is not None:
            to_x, to_a = (part.new_zeros(ctx.count, part.shape[1]).index_copy_(0, index, part) for part in (to_x, to_a))
        return to_x, to_a, *_NONE * 4, to_norm, None, *to_mix, *to_gate_and_up, *to_down


def layer_outputs(
    arithmetic: Arithmetic,
    x: Float[Tensor, "N d"],
    a: Float[Tensor, "N Hw"],
    epsilon: float,
    norm: Float[Tensor, " d"],
    layers: Sequence[AdaptedLinear],
) -> tuple[Any, ...]:
    """h, g, u, y and r of the second step, without a gradient; then g and u as one output (see `arithmetic`), and t of
    the adapters of o, of gate and up, and of down."""
    mix, gate_and_up, down = _products(arithmetic, layers)
    (mixed,), of_mix = mix(a)
    h, n, r = arithmetic.added_norm(x, mixed, norm, epsilon)
    pairs, of_pairs = gate_and_up(n)
    (projected,), of_down = down(arithmetic.swiglu(pairs))
    y = arithmetic.add(h, projected)
    return h, *arithmetic.apart(pairs), y, r, pairs, [of_mix, of_pairs, of_down]


def _parts(scales: Sequence[float], tensors: Sequence[Any]) -> tuple[list[AdaptedLinear], Sequence[Any]]:
    """The layers built from the leading tensors, and the remaining tensors."""
    count = TENSORS * len(scales)
    return linears(scales, tensors[:count]), tensors[count:]


def _products(arithmetic: Arithmetic, layers: Sequence[AdaptedLinear]) -> list[Any]:
    """The products of o, of gate and up, and of down."""
    return [arithmetic.linears(layers[part]) for part in (slice(0, 1), slice(1, 3), slice(3, 4))]

"""The two steps of a transformer layer (see `two_steps`) with products in bfloat16.

    [q | k | v] = W_qkv n        [g | u] = W_gu n        n = norm(x)

Weights, residual streams, norms, angles and gradients of weights are float32. Operands of products are rounded to
bfloat16, and so are their results; sums are accumulated in float32: that is what `torch.autocast` computes with the
modules of transformers. Matrices that read the same tensor are one product, and so are their gradients. Adapters are
columns of it (see `mixed_linear`). A step keeps its activations in bfloat16, x and h too: the backward pass takes the
norms of the rounded ones. Weights are rounded again in the backward pass, since all of a model's would be kept at once.
The forward pass computes what a decoding step computes, bit for bit (see `native.half_products`). Where the activations
are kept from there (see `layer_cache`), only the norms are computed, and what the adapters find (t).
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import BFloat16, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

from tutelage.engines.cpu.fused.attention import rotate
from tutelage.engines.cpu.fused.layer_cache import LayerActivations
from tutelage.engines.cpu.fused.linear import TENSORS, Linear, by_layer, linears
from tutelage.engines.cpu.fused.mixed_linear import HALF, MixedLinears
from tutelage.engines.cpu.fused.norm import rms_norm_gradients
from tutelage.engines.cpu.native import half_products, mixed


class MixedAttentionInputs(torch.autograd.Function):
    """The first step: x [N, d] → q [N, H, w], k [N, K, w], v [N, K, w] in bfloat16.

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
    ) -> tuple[Tensor, ...]:
        count = TENSORS * len(scales)
        products, of_heads = linears(scales, tensors[:count]), tensors[count:]
        ctx.scales, ctx.heads = scales, [len(product.weight) // width for product in products]
        ctx.epsilon = epsilons[0]
        joint = MixedLinears(products)
        n, r = mixed.norm(x, norm, epsilons[0])
        if activations is not None:
            ctx.save_for_backward(x.to(HALF), r, cos, sin, norm, joint.inside(n), *tensors)
            return activations.query, activations.key, activations.value
        heads, t = joint(n)
        heads = heads.view(len(x), -1, width)
        kept: list[Tensor] = []
        if of_heads:
            kept = list(_normed_and_rotated(heads, ctx.heads, cos, sin, of_heads, epsilons[1:]))
        else:
            mixed.rotate_in_place(heads, sum(ctx.heads[:2]), cos, sin, 1.0)
        ctx.save_for_backward(x.to(HALF), r, cos, sin, norm, t, *tensors, *kept)
        return heads.split(ctx.heads, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *to_heads: Tensor) -> tuple[Tensor | None, ...]:
        half, r, cos, sin, norm, t, *rest = ctx.saved_tensors
        x = half.float()
        count = TENSORS * len(ctx.scales)
        joint, rest = MixedLinears(linears(ctx.scales, rest[:count])), rest[count:]
        grad, to_norms = torch.cat(to_heads, 1), []
        if rest:
            to_norms = _raw_gradients(grad, ctx.heads, cos, sin, rest)
        else:
            mixed.rotate_in_place(grad, sum(ctx.heads[:2]), cos, sin, -1.0)
        grad = grad.flatten(1)
        n, _ = mixed.norm(x, norm, ctx.epsilon)
        to_n, to_t = joint.to_input(grad)
        to_tensors = joint.to_tensors(grad, n, t, to_t, by_layer(ctx.needs_input_grad[8 : 8 + count]))
        to_x, _, to_norm = mixed.norm_gradients(to_n, x, norm, r)
        return to_x, None, None, None, None, None, to_norm, None, *to_tensors, *to_norms


class MixedLayerOutputs(torch.autograd.Function):
    """The second step: x [N, d] in float32, a [N, H · w] in bfloat16 → y [N, d], or of the tokens at `index` alone.

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
        ctx.count, ctx.epsilon, ctx.scales = len(x), epsilon, scales
        if index is not None:
            x, a = x.index_select(0, index), a.index_select(0, index)
        products = linears(scales, tensors)
        if activations is None:
            h, _, _, y, r, pairs, *inside = mixed_layer_outputs(x, a, epsilon, norm, products)
        else:
            known = (activations.h, activations.gate, activations.up, activations.y)
            h, gate, up, y = known if index is None else (part.index_select(0, index) for part in known)
            pairs = torch.cat((gate, up), 1)
            n, r = mixed.norm(h, norm, epsilon)
            mix, gate_and_up, down = _joined(products)
            of_down = None if down.lora_a is None else down.inside(mixed.swiglu(pairs))
            inside = [mix.inside(a), gate_and_up.inside(n), of_down]
        ctx.save_for_backward(a, index, h.to(HALF), r, pairs, norm, *inside, *tensors)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, index, half_h, r, pairs, norm, of_mix, of_pairs, of_down, *tensors = ctx.saved_tensors
        h = half_h.float()
        mix, gate_and_up, down = _joined(linears(ctx.scales, tensors))
        wanted = by_layer(ctx.needs_input_grad[7:])
        half = grad.to(HALF)
        to_p, to_down_t = down.to_input(half)
        p, to_pairs = mixed.swiglu_gradients(pairs, to_p)
        to_down = down.to_tensors(half, p, of_down, to_down_t, wanted[3:])
        n, _ = mixed.norm(h, norm, ctx.epsilon)
        to_n, to_pairs_t = gate_and_up.to_input(to_pairs)
        to_gate_and_up = gate_and_up.to_tensors(to_pairs, n, of_pairs, to_pairs_t, wanted[1:3])
        to_x, to_x_half, to_norm = mixed.norm_gradients(to_n, h, norm, r, grad)
        to_a, to_mix_t = mix.to_input(to_x_half)
        to_mix = mix.to_tensors(to_x_half, a, of_mix, to_mix_t, wanted[:1])
        if index is not None:
            to_x, to_a = (
                part.new_zeros(ctx.count, part.shape[1]).index_copy_(0, index, part) for part in (to_x, to_a)
            )
        return to_x, to_a, None, None, None, to_norm, None, *to_mix, *to_gate_and_up, *to_down


def mixed_layer_outputs(
    x: Float32[Tensor, "N d"],
    a: BFloat16[Tensor, "N Hw"],
    epsilon: float,
    norm: Float32[Tensor, " d"],
    products: Sequence[Linear],
) -> tuple[Any, ...]:
    """h, g, u, y and r of the second step, without a gradient; then [g | u], of which g and u are halves, and what the
    adapters of o, of gate and up, and of down find (t)."""
    mix, gate_and_up, down = _joined(products)
    mixed_states, of_mix = mix(a)
    h, n, r = mixed.added_norm(x, mixed_states, norm, epsilon)
    pairs, of_pairs = gate_and_up(n)
    projected, of_down = down(mixed.swiglu(pairs))
    return h, *pairs.chunk(2, -1), mixed.add(h, projected), r, pairs, of_mix, of_pairs, of_down


def _joined(layers: Sequence[Linear]) -> list[MixedLinears]:
    """The products of o, of gate and up, and of down."""
    return [MixedLinears(layers[part]) for part in (slice(0, 1), slice(1, 3), slice(3, 4))]


def can_be_mixed(hidden: int, inner: int, width: int) -> bool:
    """Whether the kernels serve layers of these sizes: whole vectors, and heads of two halves of whole vectors."""
    return width % 2 == 0 and mixed.supports(hidden, inner, width // 2) and half_products.supports(hidden)


def _normed_and_rotated(
    heads: BFloat16[Tensor, "N all w"],
    counts: Sequence[int],
    cos: Float32[Tensor, "N 1 w"],
    sin: Float32[Tensor, "N 1 w"],
    weights: Sequence[Tensor],
    epsilons: Sequence[float],
) -> tuple[Tensor, ...]:
    """Replace queries and keys by their rotated norms. Returns them as they were, and the r of both norms."""
    raw = [part.clone() for part in heads.split(counts, 1)[:2]]
    starts = (0, counts[0])
    return *raw, *(
        mixed.norm_and_rotate_in_place(heads, start, count, cos, sin, weight, epsilon)
        for start, count, weight, epsilon in zip(starts, counts, weights, epsilons, strict=False)
    )


def _raw_gradients(
    grad: BFloat16[Tensor, "N all w"],
    counts: Sequence[int],
    cos: Float32[Tensor, "N 1 w"],
    sin: Float32[Tensor, "N 1 w"],
    kept: Sequence[Tensor],
) -> list[Tensor]:
    """Replace the gradients of rotated norms of queries and keys by those of their inputs. Returns those of the weights
    of both norms. `kept` are the weights, the inputs and the r of both norms."""
    to_norms = []
    for part, weight, x, r in zip(grad.split(counts, 1), kept[:2], kept[2:4], kept[4:], strict=False):
        back = rotate(part.float(), cos, sin, -1.0)
        to_x, to_weight = rms_norm_gradients(back, x.float(), weight, r)
        part.copy_(to_x)
        to_norms.append(to_weight)
    return to_norms

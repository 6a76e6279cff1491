"""The two steps of a transformer layer (see `two_steps`) with products in bfloat16.

    [q | k | v] = W_qkv n        [g | u] = W_gu n        n = norm(x)

Weights, residual streams, norms, angles and gradients of weights are float32. Operands of products are rounded to
bfloat16, and so are their results; sums are accumulated in float32: that is what `torch.autocast` computes with the
modules of transformers. Matrices that read the same tensor are one product, and so are their gradients. A step keeps x
and h in float32, the other activations and the rounded weights in bfloat16.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import BFloat16, Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from tutelage.engines.cpu.fused.attention import rotate
from tutelage.engines.cpu.fused.norm import rms_norm, rms_norm_gradients
from tutelage.engines.cpu.gradients import add_term
from tutelage.engines.cpu.native import mixed

HALF = torch.bfloat16


class MixedAttentionInputs(torch.autograd.Function):
    """The first step: x [N, d] → q [N, H, w], k [N, K, w], v [N, K, w] in bfloat16.

    `epsilons` belong to the norm and to the norms of heads, `weights` are W and b of the three products, then the
    weights of the norms of heads.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        width: int,
        epsilons: tuple[float, ...],
        cos: Tensor,
        sin: Tensor,
        norm: Tensor,
        *weights: Any,
    ) -> tuple[Tensor, ...]:
        products, of_heads = weights[:6], weights[6:]
        ctx.heads = [len(matrix) // width for matrix in products[::2]]
        joint = rounded(products[::2])
        n, r = mixed.norm(x, norm, epsilons[0])
        heads = linear(n, joint, rounded_bias(products)).view(len(x), -1, width)
        kept: list[Tensor] = []
        if of_heads:
            kept = list(_normed_and_rotated(heads, ctx.heads, cos, sin, of_heads, epsilons[1:]))
        else:
            mixed.rotate_in_place(heads, sum(ctx.heads[:2]), cos, sin, 1.0)
        ctx.epsilon = epsilons[0]
        ctx.save_for_backward(x, r, cos, sin, norm, joint, *products[::2], *of_heads, *kept)
        return heads.split(ctx.heads, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *to_heads: Tensor) -> tuple[Tensor | None, ...]:
        x, r, cos, sin, norm, joint, *rest = ctx.saved_tensors
        matrices, rest = rest[:3], rest[3:]
        grad, to_norms = torch.cat(to_heads, 1), []
        if rest:
            to_norms = _raw_gradients(grad, ctx.heads, cos, sin, rest)
        else:
            mixed.rotate_in_place(grad, sum(ctx.heads[:2]), cos, sin, -1.0)
        grad = grad.flatten(1)
        n, _ = mixed.norm(x, norm, ctx.epsilon)
        to_products = _to_matrices(grad, n, matrices, ctx.needs_input_grad[6:12])
        to_x, _, to_norm = mixed.norm_gradients(grad @ joint, x, norm, r)
        return to_x, None, None, None, None, to_norm, *to_products, *to_norms


class MixedLayerOutputs(torch.autograd.Function):
    """The second step: x [N, d] in float32, a [N, H · w] in bfloat16 → y [N, d], or of the tokens at `index` alone.

    `weights` are W and b of o, gate, up and down.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, a: Tensor, index: Tensor | None, epsilon: float, norm: Tensor, *weights: Any
    ) -> Tensor:
        ctx.count, ctx.epsilon = len(x), epsilon
        if index is not None:
            x, a = x.index_select(0, index), a.index_select(0, index)
        mix, gate_and_up, down = (
            rounded(weights[part]) for part in (slice(0, 1), slice(2, 6, 2), slice(6, 7))
        )
        mixed_states = linear(a, mix, rounded_bias(weights[:2]))
        h, n, r = mixed.added_norm(x, mixed_states, norm, epsilon)
        pairs = linear(n, gate_and_up, rounded_bias(weights[2:6]))
        y = mixed.add(h, linear(mixed.swiglu(pairs), down, rounded_bias(weights[6:])))
        ctx.save_for_backward(a, index, h, r, pairs, norm, mix, gate_and_up, down, *weights[::2])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, index, h, r, pairs, norm, mix, gate_and_up, down, *matrices = ctx.saved_tensors
        wanted = ctx.needs_input_grad[5:]
        half = grad.to(HALF)
        p, to_pairs = mixed.swiglu_gradients(pairs, half @ down)
        to_down = _to_matrices(half, p, matrices[3:], wanted[6:])
        n, _ = mixed.norm(h, norm, ctx.epsilon)
        to_gate_and_up = _to_matrices(to_pairs, n, matrices[1:3], wanted[2:6])
        to_x, to_x_half, to_norm = mixed.norm_gradients(to_pairs @ gate_and_up, h, norm, r, grad)
        to_mix = _to_matrices(to_x_half, a, matrices[:1], wanted[:2])
        to_a = to_x_half @ mix
        if index is not None:
            to_x, to_a = (
                part.new_zeros(ctx.count, part.shape[1]).index_copy_(0, index, part) for part in (to_x, to_a)
            )
        return to_x, to_a, None, None, to_norm, *to_mix, *to_gate_and_up, *to_down


def can_be_mixed(hidden: int, inner: int, width: int) -> bool:
    """Whether the kernels serve layers of these sizes: whole vectors, and heads of two halves of whole vectors."""
    return width % 2 == 0 and mixed.supports(hidden, inner, width // 2)


def rounded(matrices: Sequence[Float[Tensor, "_ d"]]) -> BFloat16[Tensor, "out d"]:
    """Matrices over the same features in bfloat16, one below the other."""
    whole = matrices[0].new_empty(sum(map(len, matrices)), matrices[0].shape[1], dtype=HALF)
    for part, matrix in zip(whole.split([len(matrix) for matrix in matrices]), matrices, strict=True):
        part.copy_(matrix)
    return whole


def rounded_bias(weights: Sequence[Any]) -> BFloat16[Tensor, " out"] | None:
    """The biases of W, b, W, b, … in bfloat16, with zeros for a matrix without one; None where none has one."""
    pairs = list(zip(weights[::2], weights[1::2], strict=True))
    if all(bias is None for _, bias in pairs):
        return None
    return torch.cat([weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in pairs]).to(
        HALF
    )


def _to_matrices(
    grad: Tensor, x: Tensor, matrices: Sequence[Tensor], wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of W and b of each y = x Wᵀ + b from those of all y side by side; None where one is not `wanted`,
    or was added in place."""
    sizes = [len(matrix) for matrix in matrices]
    terms = (grad.T @ x).split(sizes) if any(wanted[::2]) else [None] * len(sizes)
    found: list[Tensor | None] = []
    for matrix, term, part, own, of_bias in zip(
        matrices, terms, grad.split(sizes, 1), wanted[::2], wanted[1::2], strict=True
    ):
        found.append(add_term(matrix, term) if own else None)
        found.append(part.sum(0, dtype=torch.float32) if of_bias else None)
    return found


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
    scales = []
    for part, x, weight, epsilon in zip(heads.split(counts, 1), raw, weights, epsilons, strict=False):
        normed, r = rms_norm(x.float(), weight, epsilon)
        part.copy_(rotate(normed, cos, sin, 1.0))
        scales.append(r)
    return *raw, *scales


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

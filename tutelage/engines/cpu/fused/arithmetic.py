"""The operations of a layer between its matrix products, in both supported precisions.

    EXACT    all in the type of the tensors
    MIXED    products in bfloat16, everything between them in float32, as `torch.autocast` computes the modules of
             transformers: operands and results of products are rounded, sums are accumulated in float32

The output y of linear layers is a tuple of tensors (see `linears`): q, k and v, or g and u; in MIXED, one tensor with
all of them side by side. Operations may overwrite the results of products and their gradients.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.engines.cpu.fused.attention import rotate
from tutelage.engines.cpu.fused.gate import gate_gradients, swiglu
from tutelage.engines.cpu.fused.linears import HALF, ExactLinears, MixedLinears
from tutelage.engines.cpu.fused.norm import rms_norm, rms_norm_gradients, scaled
from tutelage.engines.cpu.native import elementwise, matrix_products
from tutelage.engines.cpu.native.elementwise import Weight

States = Float[Tensor, "N d"]
Scale = Float[Tensor, "N *one"]
"""r of RMSNorm."""
Output = tuple[Float[Tensor, "N _"], ...]
"""The output of linear layers."""
Heads = tuple[Float[Tensor, "N _ w"], ...]
"""Queries, keys and values."""
Angles = tuple[Float[Tensor, "N 1 w"], Float[Tensor, "N 1 w"]]
"""Cosines and sines of the rotation of each token."""
Kept = Sequence[Float[Tensor, "..."]]
"""Tensors saved by the norms of heads: the inputs and r of both."""


class Arithmetic:
    """Operations in the dtype of the tensors (EXACT)."""

    linears: Callable[[Sequence[Any]], Any] = ExactLinears
    norm = staticmethod(rms_norm)
    """(x, weight, epsilon) ↦ n = norm(x), and r"""

    @staticmethod
    def operand(x: States) -> States:
        """x as an operand of products and as saved for the backward pass."""
        return x

    @staticmethod
    def restored(x: States) -> States:
        """x in the backward pass, from the result of `operand`."""
        return x

    @staticmethod
    def normed_again(x: States, r: Scale, weight: Weight, epsilon: float) -> States:
        """n recomputed in the backward pass."""
        return scaled(x, r, weight)

    @staticmethod
    def added_norm(x: States, more: States, weight: Weight, epsilon: float) -> tuple[States, States, Scale]:
        """h = x + `more`, n = norm(h) and r."""
        h = more.add_(x)
        return h, *rms_norm(h, weight, epsilon)

    @staticmethod
    def norm_gradients(
        grad: States, x: States, weight: Weight, r: Scale, more: States | None = None
    ) -> tuple[States, States, Weight]:
        """The gradient of x plus `more`, also as an operand of products, and the gradient of the weight."""
        to_x, to_weight = rms_norm_gradients(grad, x, weight, r, more)
        return to_x, to_x, to_weight

    @staticmethod
    def add(x: States, more: States) -> States:
        """x + `more`"""
        return more.add_(x)

    @staticmethod
    def heads(
        y: Output, counts: Sequence[int], angles: Angles, norms: Kept, epsilons: Sequence[float]
    ) -> tuple[Heads, Kept]:
        """Rotated queries and keys, normalised if the model has norms of heads, and values; and the saved tensors."""
        query, key, value = (part.unflatten(1, (count, -1)) for part, count in zip(y, counts, strict=True))
        kept: list[Tensor] = []
        if norms:
            raw = (query, key)
            (query, query_r), (key, key_r) = map(rms_norm, raw, norms, epsilons)
            kept = [*raw, query_r, key_r]
        return (rotate(query, *angles, 1.0), rotate(key, *angles, 1.0), value), kept

    @staticmethod
    def head_gradients(
        to_heads: Heads, counts: Sequence[int], angles: Angles, norms: Kept, kept: Kept
    ) -> tuple[Output, Kept]:
        """The gradients of y and of the weights of the norms of heads."""
        back = [rotate(grad, *angles, -1.0) for grad in to_heads[:2]]
        to_norms: list[Tensor] = []
        if norms:
            found = map(rms_norm_gradients, back, kept[:2], norms, kept[2:])
            back, to_norms = map(list, zip(*found, strict=True))
        return tuple(grad.flatten(1) for grad in (*back, to_heads[2])), to_norms

    @staticmethod
    def joined(gate: States, up: States) -> Output:
        """g and u as one output y of both layers."""
        return gate, up

    @staticmethod
    def apart(y: Output) -> Output:
        """g and u, the inverse of `joined`."""
        return y

    @staticmethod
    def swiglu(y: Output) -> States:
        """silu(g) · u"""
        return swiglu(*y)

    @staticmethod
    def swiglu_gradients(y: Output, grad: States) -> tuple[States, Output]:
        """p = silu(g) · u, and the gradients of g and u from that of p."""
        gate, up = y
        product, *to_y = gate_gradients(gate, up, grad)
        return product, tuple(to_y)


class MixedArithmetic(Arithmetic):
    """Operations of MIXED: residual streams, norms, angles and gradients of weights are float32; operands and results
    of products are bfloat16. The backward pass uses the rounded norms of x and h."""

    linears = MixedLinears
    norm = staticmethod(elementwise.mixed_norm)
    added_norm = staticmethod(elementwise.mixed_added_norm)
    norm_gradients = staticmethod(elementwise.mixed_norm_gradients)
    add = staticmethod(elementwise.mixed_add)

    @staticmethod
    def operand(x: States) -> States:
        return x.to(HALF)

    @staticmethod
    def restored(x: States) -> States:
        return x.float()

    @staticmethod
    def normed_again(x: States, r: Scale, weight: Weight, epsilon: float) -> States:
        return elementwise.mixed_norm(x, weight, epsilon)[0]

    @staticmethod
    def heads(
        y: Output, counts: Sequence[int], angles: Angles, norms: Kept, epsilons: Sequence[float]
    ) -> tuple[Heads, Kept]:
        heads, kept = y[0].unflatten(1, (sum(counts), -1)), []
        if norms:
            kept = [part.clone() for part in heads.split(counts, 1)[:2]]
            parts = zip((0, counts[0]), counts, norms, epsilons, strict=False)
            for start, count, weight, epsilon in parts:
                span = (heads, start, count)
                kept.append(elementwise.norm_and_rotate_in_place(*span, *angles, weight, epsilon))
        else:
            elementwise.rotate_in_place(heads, sum(counts[:2]), *angles, 1.0)
        return heads.split(counts, 1), kept

    @staticmethod
    def head_gradients(
        to_heads: Heads, counts: Sequence[int], angles: Angles, norms: Kept, kept: Kept
    ) -> tuple[Output, Kept]:
        grad, to_norms = torch.cat(to_heads, 1), []
        if norms:
            parts = zip(grad.split(counts, 1), kept[:2], norms, kept[2:], strict=False)
            for part, x, weight, r in parts:
                back = rotate(part.float(), *angles, -1.0)
                to_x, to_weight = rms_norm_gradients(back, x.float(), weight, r)
                part.copy_(to_x)
                to_norms.append(to_weight)
        else:
            elementwise.rotate_in_place(grad, sum(counts[:2]), *angles, -1.0)
        return (grad.flatten(1),), to_norms

    @staticmethod
    def joined(gate: States, up: States) -> Output:
        return (torch.cat((gate, up), 1),)

    @staticmethod
    def apart(y: Output) -> Output:
        return y[0].chunk(2, -1)

    @staticmethod
    def swiglu(y: Output) -> States:
        return elementwise.mixed_swiglu(y[0])

    @staticmethod
    def swiglu_gradients(y: Output, grad: States) -> tuple[States, Output]:
        product, to_y = elementwise.mixed_swiglu_gradients(y[0], grad)
        return product, (to_y,)


EXACT, MIXED = Arithmetic(), MixedArithmetic()


def can_be_mixed(hidden: int, inner: int, width: int) -> bool:
    """Whether the kernels support layers of these sizes in MIXED: features in whole vectors, and each half of a head
    too."""
    sizes = (hidden, inner, width // 2)
    return width % 2 == 0 and elementwise.mixed_supports(*sizes) and matrix_products.supports(hidden)

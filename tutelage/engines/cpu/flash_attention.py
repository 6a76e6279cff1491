"""Attention of trees in the kernels that torch has for plain attention on a processor.

For a query in a branch, with lse the logarithm of the sum of the exponentials of its scores,

    out₁, lse₁ = attention to the stem          out₂, lse₂ = causal attention within the branch
    lse = log(exp lse₁ + exp lse₂)              out = exp(lse₁ − lse) out₁ + exp(lse₂ − lse) out₂

is attention to both. The gradient of either part is that of a plain attention in which the merged `out` and `lse` stand
for its own: with p = exp(s − lse), the gradient of a score is p (∂p − ∂out · out), whichever key it belongs to (Liu,
Zaharia and Abbeel 2023, arXiv 2310.01889, use the same for attention over a ring of devices).
"""

import torch
from torch import Tensor

from tutelage.engines.packing import Bundle, Shape

fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Fused:
    """That of one shape, part by part.

    Causal attention of the queries of a whole tree to the keys of its stem is both causal attention within the stem and
    unhindered attention of the branches to it: the mask begins at the first key, and ends with the last.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def forward(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The merged out and lse. [N, H, w], [N, K, w], [N, K, w] → [N, H, w], [N, H]"""
        count, heads, width = query.shape
        out = query.new_zeros(count + 1, heads, width)  # padding is written into one row more
        exact = torch.float64 if query.dtype == torch.float64 else torch.float32
        lse = query.new_zeros(count + 1, heads, dtype=exact)
        for tree in self.shape.trees:
            q, (k, v) = query[tree.start : tree.stop], (x[tree.start : tree.fork] for x in (key, value))
            part, part_lse = fused(by_heads(q), by_heads(k), by_heads(v), 0.0, True, scale=scale)
            out[tree.start : tree.stop] = part[0].transpose(0, 1)
            lse[tree.start : tree.stop] = part_lse[0].T
        for bundle in self.shape.bundles:
            q, k, v = (picked(x, bundle) for x in (query, key, value))
            part, part_lse = fused(by_heads(q), by_heads(k), by_heads(v), 0.0, True, scale=scale)
            part, part_lse = part.transpose(1, 2), part_lse.transpose(1, 2)
            if bundle.branches:
                both = torch.logaddexp(picked(lse, bundle), part_lse)
                share = (part_lse - both).exp().to(part.dtype)[..., None]
                part, part_lse = picked(out, bundle).lerp(part, share), both
            _put(out, bundle, part)
            _put(lse, bundle, part_lse)
        return out[:-1], lse[:-1]

    def backward(
        self,
        tensors: tuple[Tensor, Tensor, Tensor],
        out: Tensor,
        lse: Tensor,
        grad: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of query, key and value from that of `out`."""
        query, key, value = tensors
        to_query, to_key, to_value = (x.new_empty(len(x) + 1, *x.shape[1:]) for x in (query, key, value))
        for tree in self.shape.trees:
            tokens, stem = slice(tree.start, tree.stop), slice(tree.start, tree.fork)
            parts = _fused_backward(
                *(by_heads(x) for x in (grad[tokens], query[tokens], key[stem], value[stem], out[tokens])),
                lse[tokens].T[None],
                0.0,
                True,
                scale=scale,
            )
            for whole, span, part in zip(
                (to_query, to_key, to_value), (tokens, stem, stem), parts, strict=True
            ):
                whole[span] = part[0].transpose(0, 1)
        for bundle in self.shape.bundles:
            ends = picked(lse, bundle)
            if bundle.start is None:
                # beyond the end of a sequence the shares exp(s − lse) are 0, and so are all gradients
                ends = ends.masked_fill((bundle.token == len(query))[..., None], torch.inf)
            parts = _fused_backward(
                *(by_heads(picked(x, bundle)) for x in (grad, query, key, value, out)),
                ends.transpose(1, 2),
                0.0,
                True,
                scale=scale,
            )
            for whole, part in zip((to_query, to_key, to_value), parts, strict=True):
                part = part.transpose(1, 2)
                if bundle.branches and whole is to_query:
                    part = part + picked(whole, bundle)
                _put(whole, bundle, part)
        return to_query[:-1], to_key[:-1], to_value[:-1]


def by_heads(x: Tensor) -> Tensor:
    """[T, H, w] → [1, H, T, w], or [b, L, H, w] → [b, H, L, w]"""
    return x.transpose(0, 1)[None] if x.dim() == 3 else x.transpose(1, 2)


def picked(x: Tensor, bundle: Bundle) -> Tensor:
    """The entries of a bundle's tokens, anything beyond the end of a sequence. [N, …] → [b, L, …]"""
    if bundle.start is not None:
        return x.narrow(0, bundle.start, bundle.token.numel()).unflatten(0, bundle.token.shape)
    return x.index_select(0, bundle.token.clamp(max=len(x) - 1).flatten()).unflatten(0, bundle.token.shape)


def _put(x: Tensor, bundle: Bundle, part: Tensor) -> None:
    """The inverse: [b, L, …] into [N + 1, …], of which the last row is for padding."""
    if bundle.start is not None:
        picked(x, bundle).copy_(part)
    else:
        x.index_copy_(0, bundle.token.flatten(), part.flatten(0, 1))

"""Attention of packed sequences with torch's flash attention for processors.

For a query of a suffix, where lse is the log-sum-exp of its scores,

    out₁, lse₁ = attention to the shared prefix      out₂, lse₂ = causal attention within the suffix
    lse = log(exp lse₁ + exp lse₂)                   out = exp(lse₁ − lse) out₁ + exp(lse₂ − lse) out₂

is attention to both. The gradient of each part is that of a plain attention with the merged `out` and `lse` in the
place of its own: with p = exp(s − lse), the gradient of a score is p (∂p − ∂out · out), whichever key the score belongs
to (Liu, Zaharia and Abbeel 2023, arXiv 2310.01889, use the same for attention over a ring of devices).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.engines.packing import Bucket, Layout

flash_attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_attention_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class FlashKernels:
    """The implementation of `tutelage.engines.cpu.packed_attention.Kernels` by flash attention, for one layout.

    Causal attention of the queries of a whole prefix tree to the keys of its prefix is two things at once: causal
    attention within the prefix, and full attention of the suffixes to it. The causal mask begins at the first key and
    ends with the last.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def forward(
        self,
        query: Float[Tensor, "N H w"],
        key: Float[Tensor, "N K w"],
        value: Float[Tensor, "N K w"],
        scale: float,
    ) -> tuple[Float[Tensor, "N H w"], Float[Tensor, "N H"]]:
        """See `Kernels.forward`."""
        count, heads, width = query.shape
        out = query.new_zeros(count + 1, heads, width)  # the last row receives padding
        exact = torch.float64 if query.dtype == torch.float64 else torch.float32
        lse = query.new_zeros(count + 1, heads, dtype=exact)
        for tree in self.layout.trees:
            q, (k, v) = query[tree.start : tree.stop], (x[tree.start : tree.fork] for x in (key, value))
            part, part_lse = flash_attention(by_heads(q), by_heads(k), by_heads(v), 0.0, True, scale=scale)
            out[tree.start : tree.stop] = part[0].transpose(0, 1)
            lse[tree.start : tree.stop] = part_lse[0].T
        for bucket in self.layout.buckets:
            q, k, v = (gathered(x, bucket) for x in (query, key, value))
            part, part_lse = flash_attention(by_heads(q), by_heads(k), by_heads(v), 0.0, True, scale=scale)
            part, part_lse = part.transpose(1, 2), part_lse.transpose(1, 2)
            if bucket.are_suffixes:
                both = torch.logaddexp(gathered(lse, bucket), part_lse)
                share = (part_lse - both).exp().to(part.dtype)[..., None]
                part, part_lse = gathered(out, bucket).lerp(part, share), both
            _scatter(out, bucket, part)
            _scatter(lse, bucket, part_lse)
        return out[:-1], lse[:-1]

    def backward(
        self,
        tensors: tuple[Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]],
        out: Float[Tensor, "N H w"],
        lse: Float[Tensor, "N H"],
        grad: Float[Tensor, "N H w"],
        scale: float,
    ) -> tuple[Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]]:
        """See `Kernels.backward`."""
        query, key, value = tensors
        to_query, to_key, to_value = (x.new_empty(len(x) + 1, *x.shape[1:]) for x in (query, key, value))
        for tree in self.layout.trees:
            tokens, prefix = slice(tree.start, tree.stop), slice(tree.start, tree.fork)
            parts = _flash_attention_backward(
                *(
                    by_heads(x)
                    for x in (grad[tokens], query[tokens], key[prefix], value[prefix], out[tokens])
                ),
                lse[tokens].T[None],
                0.0,
                True,
                scale=scale,
            )
            for whole, span, part in zip(
                (to_query, to_key, to_value), (tokens, prefix, prefix), parts, strict=True
            ):
                whole[span] = part[0].transpose(0, 1)
        for bucket in self.layout.buckets:
            bucket_lse = gathered(lse, bucket)
            if bucket.start is None:
                # beyond the end of a sequence the probabilities exp(s − lse) are 0, and so are all gradients
                padding = (bucket.token == len(query))[..., None]
                bucket_lse = bucket_lse.masked_fill(padding, torch.inf)
            parts = _flash_attention_backward(
                *(by_heads(gathered(x, bucket)) for x in (grad, query, key, value, out)),
                bucket_lse.transpose(1, 2),
                0.0,
                True,
                scale=scale,
            )
            for whole, part in zip((to_query, to_key, to_value), parts, strict=True):
                part = part.transpose(1, 2)
                if bucket.are_suffixes and whole is to_query:
                    part = part + gathered(whole, bucket)
                _scatter(whole, bucket, part)
        return to_query[:-1], to_key[:-1], to_value[:-1]


def by_heads(x: Float[Tensor, "*b T H w"]) -> Float[Tensor, "B H T w"]:
    """[T, H, w] → [1, H, T, w], or [b, L, H, w] → [b, H, L, w]"""
    return x.transpose(0, 1)[None] if x.dim() == 3 else x.transpose(1, 2)


def gathered(x: Float[Tensor, "N ..."], bucket: Bucket) -> Float[Tensor, "b L ..."]:
    """The entries of a bucket's tokens. Beyond the end of a sequence they are undefined."""
    if bucket.start is not None:
        return x.narrow(0, bucket.start, bucket.token.numel()).unflatten(0, bucket.token.shape)
    return x.index_select(0, bucket.token.clamp(max=len(x) - 1).flatten()).unflatten(0, bucket.token.shape)


def _scatter(x: Tensor, bucket: Bucket, part: Tensor) -> None:
    """The inverse of `gathered`: [b, L, …] into [N + 1, …], of which the last row receives padding."""
    if bucket.start is not None:
        gathered(x, bucket).copy_(part)
    else:
        x.index_copy_(0, bucket.token.flatten(), part.flatten(0, 1))

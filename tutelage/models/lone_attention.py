"""Causal attention of short sequences that share nothing, in plain products.

    P = softmax(scale · Q Kᵀ, causal)                 O = P V
    ∂V = Pᵀ ∂O        ∂S = P ∘ (∂P − rowsum(P ∘ ∂P)), ∂P = ∂O Vᵀ        ∂Q = scale · ∂S K        ∂K = scale · ∂Sᵀ Q

On a processor this takes two thirds of the time of torch's fused kernels, up to some 300 tokens. The shares P are kept
for the backward pass: T² numbers for each head, a tenth of what a layer keeps where sequences have 128 tokens.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tutelage.models.packing import Shape

LONGEST = 256


def is_lone_and_short(shape: Shape) -> bool:
    """Whether the line holds nothing but lone sequences of up to `LONGEST` tokens."""
    lengths = [bundle.token.shape[1] for bundle in shape.bundles]
    return not shape.trees and 0 < max(lengths, default=0) <= LONGEST


class LoneLine:
    """A line of N tokens for which `is_lone_and_short` holds."""

    def __init__(self, shape: Shape) -> None:
        self.by_heads = cache(partial(_Heads, shape))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """[N, H, w], [N, K, w], [N, K, w'] → [N, H, w']. H / K heads in a row have the same keys."""
        out: Tensor = _Attention.apply(query, key, value, self, scale)
        return out


class _Heads:
    """Where the H heads of the tokens of a line stand among the bundles, and the other way round."""

    def __init__(self, shape: Shape, heads: int) -> None:
        tokens = [bundle.token for bundle in shape.bundles]
        count = len(shape.sequence) * heads
        head = torch.arange(heads, device=shape.sequence.device)[:, None]
        places = [(token[:, None] * heads + head).flatten(0, 1) for token in tokens]  # Int[b · H, L]
        self.heads, self.lengths = heads, [token.shape[1] for token in tokens]
        self.beyond = [(place >= count)[..., None] for place in places]
        self.there = [place.flatten().clamp(max=count - 1) for place in places]
        every = torch.cat([place.flatten() for place in places])
        self.back = every.new_empty(count + heads).index_copy_(0, every, torch.arange(len(every)))[:count]

    def split(self, x: Tensor) -> list[Tensor]:
        """[N, H, w] → [b · H, L, w] of each bundle, anything beyond the end of a sequence."""
        flat = x.flatten(0, 1)
        return [
            flat.index_select(0, there).view(-1, length, x.shape[-1])
            for there, length in zip(self.there, self.lengths, strict=True)
        ]

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """The inverse of `split`, for parts of any shape [..., w]."""
        flat = [part.flatten(0, -2) for part in parts]
        whole = flat[0] if len(flat) == 1 else torch.cat(flat)
        return whole.index_select(0, self.back).view(-1, self.heads, whole.shape[-1])


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, line: LoneLine, scale: float) -> Tensor:
        asking, asked = line.by_heads(query.shape[1]), line.by_heads(key.shape[1])
        outs: list[Tensor] = []
        kept: list[Tensor] = []
        for q, k, v in zip(asking.split(query), asked.split(key), asked.split(value), strict=True):
            q = q.view(len(k), -1, q.shape[-1])
            length = k.shape[1]
            hidden = q.new_full((length, length), -torch.inf).triu_(1).repeat(q.shape[1] // length, 1)
            shares = torch.baddbmm(hidden, q, k.mT, alpha=scale).softmax(-1)
            outs.append(shares @ v)
            kept += q, k, v, shares
        ctx.save_for_backward(*kept)
        ctx.asking, ctx.asked, ctx.scale = asking, asked, scale
        return asking.joined(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors
        to_query, to_key, to_value = [], [], []
        for i, (g, beyond) in enumerate(zip(ctx.asking.split(grad), ctx.asking.beyond, strict=True)):
            q, k, v, shares = kept[4 * i : 4 * i + 4]
            g = g.masked_fill_(beyond, 0.0).view(len(v), -1, v.shape[-1])
            along = torch.ops.aten._softmax_backward_data(g @ v.mT, shares, -1, g.dtype)
            to_query.append(scaled_product(along, k, ctx.scale))
            to_key.append(scaled_product(along.mT, q, ctx.scale))
            to_value.append(shares.mT @ g)
        return ctx.asking.joined(to_query), ctx.asked.joined(to_key), ctx.asked.joined(to_value), None, None


def scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """scale · A B, by matrices. The scale costs no pass of its own."""
    return torch.baddbmm(a.new_empty(1), a, b, beta=0.0, alpha=scale)

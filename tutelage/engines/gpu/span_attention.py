"""Attention over a packed sequence of rows that share prompts.

    token q sees token k:   k ≤ q   and   (sequence[k] = sequence[q]   or   sequence[k] = prefix[q])

with the numbers of sequences and prefixes from `engines.packing.Layout`, which ascend along the sequence. On a GPU the
relation is the mask of FlexAttention (Dong et al. 2024, arXiv 2412.05496), whose blocks are found from the numbers at
the ends of each block; the mask itself, quadratic in the tokens, never exists. FlexAttention has no backward pass on a
CPU, so there the same relation is a dense mask.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention

from tutelage.engines.gpu.transformer import Attention
from tutelage.engines.packing import visible_tokens

BLOCK = 128
"""Tokens of a block of the mask. Packed sequences are padded to a multiple of it."""
NARROWEST = 16
"""Fewest features of a head for FlexAttention."""


@dataclass(frozen=True)
class Spans:
    """The numbers of the sequence and of the prefix of each of N tokens, N a multiple of `BLOCK`."""

    sequence: Int[Tensor, " N"]
    prefix: Int[Tensor, " N"]
    is_one: bool = False
    """Whether the tokens are one sequence, which needs no mask but the causal one: padding after it is not seen."""

    @classmethod
    def padded(cls, sequence: Int[Tensor, " n"], prefix: Int[Tensor, " n"], *, is_one: bool = False) -> "Spans":
        """Spans of n tokens and of padding, which is one more sequence."""
        last = sequence.amax() + 1
        extra = -len(sequence) % BLOCK
        places = torch.arange(len(sequence) + extra, device=sequence.device)
        within = places < len(sequence)
        sequence, prefix = (pad(x, (0, extra)).where(within, last) for x in (sequence, prefix))
        return cls(sequence, prefix, is_one)

    def pad(self, x: Shaped[Tensor, " n"]) -> Shaped[Tensor, " N"]:
        """The numbers of n tokens, with zeros for the padding."""
        return pad(x, (0, len(self.sequence) - len(x)))

    def attention(self, scaling: float, width: int) -> Attention:
        """The attention of each layer, in heads of w = `width` features.

        (index, query [N, H, w], key [N, K, w], value [N, K, w]) ↦ [N, H, w]
        """
        if self.is_one:
            return lambda _, *tensors: _over_heads(scaled_dot_product_attention, tensors, scaling, is_causal=True)
        if self.sequence.device.type != "cuda" or width < NARROWEST:
            visible = visible_tokens(self.sequence, self.prefix)
            return lambda _, *tensors: _over_heads(scaled_dot_product_attention, tensors, scaling, attn_mask=visible)
        blocks = block_mask(self)
        return lambda _, *tensors: _over_heads(_compiled_flex(), tensors, scaling, block_mask=blocks)


def block_mask(spans: Spans) -> BlockMask:
    """The relation for FlexAttention, from the numbers at the ends of each block.

    A block of keys is full for a block of queries if both lie in one sequence and the keys come before, or if the keys
    are the prefix of all queries. It is partial if the numbers of its keys and those of the sequences or prefixes of
    the queries overlap, which may include blocks without a visible pair: they cost time but change nothing.
    """
    sequence, prefix = spans.sequence, spans.prefix
    first, last = sequence[::BLOCK], sequence[BLOCK - 1 :: BLOCK]
    first_prefix, last_prefix = prefix[::BLOCK], prefix[BLOCK - 1 :: BLOCK]
    number = torch.arange(len(first), device=sequence.device)
    before, until = number[None] < number[:, None], number[None] <= number[:, None]
    overlaps = (first[None] <= last[:, None]) & (last[None] >= first[:, None])
    overlaps |= (first[None] <= last_prefix[:, None]) & (last[None] >= first_prefix[:, None])
    one = first == last  # the block of keys lies in one sequence
    same = (first[:, None] == first[None]) & one[:, None]
    shared = (first_prefix == last_prefix)[:, None] & (first_prefix[:, None] == first[None])
    full = before & one[None] & (same | shared)
    partial = until & overlaps & ~full

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        own = sequence[key]
        return (key <= query) & ((own == sequence[query]) | (own == prefix[query]))

    length = len(sequence)
    return BlockMask.from_kv_blocks(
        *_listed(partial), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(length, length)
    )


def _listed(blocks: Bool[Tensor, "n n"]) -> tuple[Int[Tensor, "1 1 n"], Int[Tensor, "1 1 n n"]]:
    """The number of marked blocks in each row, and their columns first."""
    counts = blocks.sum(-1, dtype=torch.int32)
    columns = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)
    return counts[None, None], columns[None, None]


@cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention, dynamic=True)


def _over_heads(
    attend: Callable[..., Float[Tensor, "1 H N w"]], tensors: tuple[Tensor, ...], scaling: float, **mask: Any
) -> Float[Tensor, "N H w"]:
    query, key, value = (x.transpose(0, 1)[None] for x in tensors)
    grouped = query.shape[1] != key.shape[1]
    out: Tensor = attend(query, key, value, scale=scaling, enable_gqa=grouped, **mask)
    return out[0].transpose(0, 1)

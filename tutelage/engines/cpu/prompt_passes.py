"""Passes over the prompts of a rollout. In each, the tokens that several prompts begin with (a system prompt) are read
once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from tutelage.core.rows import EncodedRow, RowList, collate, common_tokens
from tutelage.engines.packing import PackedRows, pack


@dataclass(frozen=True)
class PromptPass:
    """One pass: the prompts `first` to `end` of a batch, which have M tokens, as a packed sequence of N tokens."""

    first: int
    end: int
    lengths: tuple[int, ...]
    packed: PackedRows
    token: Int[Tensor, " M"] | None
    """The packed token of each token, prompt by prompt; None where these are 0, 1, …, N − 1."""

    def apart(self, x: Shaped[Tensor, "..."], dim: int = 0) -> tuple[Shaped[Tensor, "..."], ...]:
        """What belongs to each prompt, of one entry for each packed token along `dim`."""
        return (x if self.token is None else x.index_select(dim, self.token)).split(self.lengths, dim)


def prompt_passes(
    prompts: Sequence[Sequence[int]], budget: int, device: torch.device
) -> Iterator[PromptPass]:
    """Passes of consecutive prompts, of up to `budget` packed tokens each or of one longer prompt."""
    rows = [EncodedRow(tuple(prompt), ()) for prompt in prompts]
    common = common_tokens(RowList(rows))
    first, tokens = 0, common
    for index, row in enumerate(rows):
        own = len(row) - common
        if index > first and tokens + own > budget:
            yield _pass(rows, first, index, device)
            first, tokens = index, common
        tokens += own
    yield _pass(rows, first, len(rows), device)


def _pass(rows: Sequence[EncodedRow], first: int, end: int, device: torch.device) -> PromptPass:
    own = rows[first:end]
    packed = pack(collate(own, 0, device), with_last=True, common=True)
    lengths, common = tuple(len(row) for row in own), packed.layout.common
    last = packed.last if common is None else common.place[packed.last]
    ends = [place + 1 for place in last.tolist()]
    places = torch.cat([torch.arange(end - n, end) for end, n in zip(ends, lengths, strict=True)])
    token = places if common is None else common.token[places]
    is_plain = torch.equal(token, torch.arange(len(packed.tokens)))
    return PromptPass(first, end, lengths, packed, None if is_plain else token)

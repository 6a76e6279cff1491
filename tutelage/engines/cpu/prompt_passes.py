"""Passes over the prompts of a rollout. Each reads common prefixes of its prompts (such as a system prompt) once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

from tutelage.core.rows import EncodedRow, RowList, collate, common_tokens
from tutelage.engines.packing import PackedRows, pack


@dataclass(frozen=True)
class PromptPass:
    """One pass: the prompts `first` to `end` of a batch as a packed sequence of N tokens."""

    first: int
    end: int
    packed: PackedRows
    spans: tuple[tuple[int, int], ...]
    """Start and length of each prompt in the sequences of the layout."""

    def apart(self, x: Shaped[Tensor, "..."], dim: int = 0) -> Iterator[Shaped[Tensor, "..."]]:
        """Split `x`, with one entry per packed token along `dim`, by prompt."""
        common = self.packed.layout.common
        spread = x if common is None else x.index_select(dim, common.token)
        return (spread.narrow(dim, *span) for span in self.spans)


def prompt_passes(prompts: Sequence[Sequence[int]], budget: int, device: torch.device) -> Iterator[PromptPass]:
    """Passes over consecutive prompts, each of up to `budget` packed tokens or one longer prompt."""
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
    common = packed.layout.common
    last = packed.last if common is None else common.place[packed.last]
    spans = tuple((place + 1 - len(row), len(row)) for row, place in zip(own, last.tolist(), strict=True))
    return PromptPass(first, end, packed, spans)

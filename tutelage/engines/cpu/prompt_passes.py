"""Passes over the prompts of a rollout. In each, the tokens that several prompts begin with (a system prompt) are read
once.

    system prompt · question A · question B · … · a prompt without it · …

This is a packed sequence (`tutelage.engines.packing`) in which the common tokens are a prefix and what follows them in
each prompt is a suffix.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from tutelage.engines.cpu.native.bindings import LANES
from tutelage.engines.packing import Layout, layout_of

BLOCK = LANES
"""Common tokens are shared in blocks of so many: sums over keys then have the order that they have in a prompt that is
read alone."""

_Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class PromptPass:
    """One pass: the prompts `first` to `end` of a batch, which have M tokens, as a packed sequence of N tokens."""

    first: int
    end: int
    lengths: tuple[int, ...]
    tokens: Int[Tensor, " N"]
    positions: Int[Tensor, " N"]
    layout: Layout
    last: Int[Tensor, " P"]  # the index of the last token of each prompt
    cell: Int[Tensor, " M"] | None
    """The index of each token, prompt by prompt; None where it is 0, 1, …, N − 1."""

    def apart(self, x: Shaped[Tensor, "..."], dim: int = 0) -> tuple[Shaped[Tensor, "..."], ...]:
        """What belongs to each prompt, of one entry for each packed token along `dim`."""
        return (x if self.cell is None else x.index_select(dim, self.cell)).split(self.lengths, dim)


def prompt_passes(prompts: _Prompts, budget: int, device: torch.device) -> Iterator[PromptPass]:
    """Passes of consecutive prompts, of up to `budget` packed tokens each or of one longer prompt."""
    common = common_tokens(prompts)
    first, tokens, read = 0, 0, set[tuple[int, ...]]()
    for index, prompt in enumerate(prompts):
        shared = tuple(prompt[: common[index]])
        own = len(prompt) - (len(shared) if shared in read else 0)
        if tokens and tokens + own > budget:
            yield _pass(prompts, common, first, index, device)
            first, tokens, own, read = index, 0, len(prompt), set()
        tokens += own
        read.add(shared)
    yield _pass(prompts, common, first, len(prompts), device)


def common_tokens(prompts: _Prompts) -> list[int]:
    """The number of first tokens that each prompt shares with all others that begin with the same block: whole blocks,
    and never the last token."""
    alike: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        if len(prompt) > BLOCK:
            alike[tuple(prompt[:BLOCK])].append(index)
    common = [0] * len(prompts)
    for members in alike.values():
        own = [prompts[index] for index in members]
        if len(own) > 1:
            equal = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*own, strict=False)))
            for index in members:
                common[index] = min(equal, min(map(len, own)) - 1) // BLOCK * BLOCK
    return common


def _pass(prompts: _Prompts, common: Sequence[int], first: int, end: int, device: torch.device) -> PromptPass:
    families: defaultdict[tuple[int, ...] | int, list[int]] = defaultdict(list)  # by common tokens, or alone
    for index in range(first, end):
        shared = common[index]
        families[tuple(prompts[index][:shared]) if shared else index].append(index)
    family: list[tuple[int, int, int]] = []  # see `layout_of`
    tokens, positions, cells = list[int](), list[int](), dict[int, list[int]]()
    for number, members in enumerate(families.values()):
        shared = common[members[0]]
        prefix = range(len(tokens), len(tokens) + shared)
        tokens += prompts[members[0]][:shared]
        positions += range(shared)
        for index in members:
            own = prompts[index][shared:]
            cells[index] = [*prefix, *range(len(tokens), len(tokens) + len(own))]
            tokens += own
            positions += range(shared, shared + len(own))
            family.append((number, shared or len(own), len(own) if shared else 0))
    cell = [place for index in range(first, end) for place in cells[index]]
    return PromptPass(
        first,
        end,
        tuple(len(prompt) for prompt in prompts[first:end]),
        torch.tensor(tokens, device=device),
        torch.tensor(positions, device=device),
        layout_of(*zip(*family, strict=True), device=device),
        torch.tensor([cells[index][-1] for index in range(first, end)], device=device),
        None if cell == list(range(len(tokens))) else torch.tensor(cell, device=device),
    )

"""Packing of rows into one sequence of tokens that contains every distinct prompt once and no padding.

    prompt A · completion 1 of A · completion 2 of A · prompt B · completion of B · …

A prompt with its completions is a prefix tree: a shared prefix and suffixes that continue it. Linear layers, norms and
MLPs act on single tokens; positions and attention (`tutelage.engines.cpu.packed_attention`) follow the layout computed
here.

Common prefixes of prompts, such as a system prompt, may be packed once too. The packed sequence then has N tokens, but
the sequences over which attention runs have M, since a token may be in several of them (see `CommonTokens`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from tutelage.core.batch import Rows
from tutelage.core.rows import (
    COMMON,
    EncodedRow,
    RowList,
    aligned_prompts,
    before_each_response_token,
    collate,
    common_tokens,
    positions,
)

SHORT = 512
"""Length below which lone sequences are batched with others of similar length for attention."""
SIMILAR = 0.75
"""Shortest sequence of such a batch, relative to the longest."""


@dataclass(frozen=True)
class PrefixTree:
    """A shared prefix at [start, fork) of the packed sequence, and its suffixes at [fork, stop)."""

    start: int
    fork: int
    stop: int


@dataclass(frozen=True)
class Bucket:
    """Sequences of similar length batched in one attention call: lone sequences, or suffixes without their prefixes."""

    token: Int[Tensor, "b L"]  # the index of each token in the packed sequence; N after the end of a sequence
    are_suffixes: bool
    start: int | None = None  # the first token, if the sequences are consecutive and of equal length


@dataclass(frozen=True)
class CommonTokens:
    """Tokens packed once among N tokens that belong to several of the sequences of M tokens. They come first in each
    sequence, and attend in the first of these sequences."""

    token: Int[Tensor, " M"]  # packed token at each position of the sequences
    place: Int[Tensor, " N"]  # first position of each packed token, ascending

    def spread(self, x: Shaped[Tensor, "N ..."]) -> Shaped[Tensor, "M ..."]:
        """Copy the entry of each packed token to all of its positions."""
        return x.index_select(0, self.token)

    def gathered(self, x: Shaped[Tensor, "M ..."]) -> Shaped[Tensor, "N ..."]:
        """The entry of each packed token at its first position."""
        return x.index_select(0, self.place)

    def summed(self, x: Shaped[Tensor, "M ..."]) -> Shaped[Tensor, "N ..."]:
        """The sum over the positions of each packed token."""
        return self.gathered(x).index_add_(0, self.token[self.again], x.index_select(0, self.again))

    @cached_property
    def again(self) -> Int[Tensor, " C"]:
        """The C = M − N positions of tokens that also have an earlier one."""
        first = torch.zeros_like(self.token, dtype=torch.bool).index_fill_(0, self.place, True)
        return (~first).nonzero().squeeze(1)


@dataclass(frozen=True)
class Layout:
    """Division of a packed sequence into sequences with M tokens in total. Long lone sequences are prefix trees without
    suffixes."""

    trees: tuple[PrefixTree, ...]
    buckets: tuple[Bucket, ...]
    sequence: Int[Tensor, " M"]  # the number of the prefix, the suffix or the lone sequence of each token
    prefix: Int[Tensor, " M"]  # the number of the prefix that a suffix continues; a token's own sequence elsewhere
    common: CommonTokens | None = None  # None if the sequences are the packed sequence
    count: int = 0  # number S of sequences

    def spread(self, x: Shaped[Tensor, "N ..."]) -> Shaped[Tensor, "M ..."]:
        """See `CommonTokens.spread`; `x` itself if no token is common."""
        return x if self.common is None else self.common.spread(x)

    def gathered(self, x: Shaped[Tensor, "M ..."]) -> Shaped[Tensor, "N ..."]:
        """See `CommonTokens.gathered`; `x` itself if no token is common."""
        return x if self.common is None else self.common.gathered(x)

    def skipped(self) -> Int[Tensor, " S"]:
        """Number of leading tokens of each of the S sequences that are in an earlier one."""
        again = self.sequence[:0] if self.common is None else self.sequence[self.common.again]
        return again.bincount(minlength=int(self.sequence.max()) + 1)


def visible_tokens(sequence: Int[Tensor, " M"], prefix: Int[Tensor, " M"]) -> Bool[Tensor, "M M"]:
    """Whether token q (row) sees token k (column), from the numbers of `Layout`:

    k ≤ q   and   (sequence[k] = sequence[q]   or   sequence[k] = prefix[q])
    """
    return ((sequence[:, None] == sequence) | (prefix[:, None] == sequence)).tril()


@dataclass(frozen=True)
class PackedRows:
    """B rows with Q prompt and R completion tokens as a packed sequence of N tokens."""

    tokens: Int[Tensor, " N"]
    positions: Int[Tensor, " N"]  # the position of each token in its row
    layout: Layout
    before: Int[Tensor, "B R"]  # the index of the token before each completion token; undefined where masked
    last: Int[Tensor, " B"]  # the index of the last packed token of each row
    cell: Int[Tensor, " N"]  # the index of each token in the rows, flattened from [B, Q + R]


def pack(rows: Rows, *, with_last: bool, apart: bool = False, common: bool = False) -> PackedRows:
    """Pack rows into one sequence, `with_last` or without the last token of each completion, which predicts nothing.

    With `apart`, a prompt and its only completion are a prefix and a suffix too, so that the order of summation over
    keys is the same for any number of completions. With `common`, common prefixes of prompts of at least COMMON tokens
    are packed once.

    Raises ValueError if a prompt has no token: no state would predict the first token of its completion.
    """
    if not rows.prompt_mask.any(1).all():
        raise ValueError("a prompt needs at least one token")
    width, device = rows.prompt.shape[1], rows.prompt.device
    distinct, family = aligned_prompts(rows).unique(dim=0, return_inverse=True)
    order = family.argsort(stable=True)
    family = family[order]
    first = torch.ones_like(family, dtype=torch.bool)
    first[1:] = family[1:] != family[:-1]
    mask = torch.cat([rows.prompt_mask, rows.mask], 1)[order]
    prompts, own = mask[:, :width].sum(1), mask[:, width:].sum(1)
    own = own if with_last else (own - 1).clamp(min=0)
    column = torch.arange(mask.shape[1] - width, device=device)
    taken = mask & torch.cat([first[:, None].expand(-1, width), column < own[:, None]], 1)
    where = (taken.flatten().cumsum(0) - 1).view_as(taken)
    where[:, :width] = where[first, :width][family]
    back = order.argsort()
    cell = (order[:, None] * mask.shape[1] + torch.arange(mask.shape[1], device=device))[taken]
    packed = PackedRows(
        tokens=torch.cat([rows.prompt, rows.response], 1).flatten()[cell],
        positions=positions(mask)[taken],
        layout=layout_of(*torch.stack([family, prompts, own]).tolist(), device=device, apart=apart),
        before=before_each_response_token(where, rows)[back],
        last=where.gather(1, (width - 1 + own)[:, None]).squeeze(1)[back],
        cell=cell,
    )
    starts = where[first, width - 1] + 1 - prompts[first]
    shared = _common_tokens(distinct, starts, len(cell)) if common else None
    return packed if shared is None else _without_copies(packed, shared)


def _common_tokens(prompts: Int[Tensor, "P Q"], starts: Int[Tensor, " P"], count: int) -> CommonTokens | None:
    """Common prefixes of prompts, among the `count` tokens of all sequences; None if there are none.

    The prompts are distinct and sorted, with −1 after their end. `starts` are their positions in the sequences.
    """
    shared = torch.zeros_like(starts)  # length of the prefix shared with the previous prompt
    shared[1:] = (prompts[1:] == prompts[:-1]).cumprod(1).sum(1)
    shared[shared < COMMON] = 0
    if not shared.any():
        return None
    column, number = (torch.arange(size, device=starts.device) for size in prompts.shape[::-1])
    owner = number[:, None].where(shared[:, None] <= column, 0).cummax(0).values
    again = column < shared[:, None]
    place = torch.arange(count, device=starts.device)
    first = place.clone()  # first position of the token at each position
    first[(starts[:, None] + column)[again]] = (starts[owner] + column)[again]
    is_first = first == place
    return CommonTokens((is_first.cumsum(0) - 1)[first], is_first.nonzero().squeeze(1))


def _without_copies(packed: PackedRows, common: CommonTokens) -> PackedRows:
    """The packed rows with common tokens deduplicated."""
    return PackedRows(
        tokens=common.gathered(packed.tokens),
        positions=common.gathered(packed.positions),
        layout=replace(packed.layout, common=common),
        before=common.token[packed.before],
        last=common.token[packed.last],
        cell=common.gathered(packed.cell),
    )


def layout_of(
    family: Sequence[int], prompts: Sequence[int], own: Sequence[int], *, device: torch.device, apart: bool = False
) -> Layout:
    """The layout of rows that are ordered by family.

    For each row: `family`, the number of its prompt, `prompts`, the length of that prompt, and `own`, the number of
    packed tokens of its completion. `apart` as in `pack`.
    """
    trees: list[PrefixTree] = []
    lone: list[tuple[int, int]] = []
    suffixes: list[tuple[int, int]] = []
    sequence: list[tuple[int, int]] = []  # (number of tokens, index of the continued prefix or of the sequence itself)
    at = 0
    for _, members in groupby(range(len(family)), key=family.__getitem__):
        rows = list(members)
        lengths = [own[row] for row in rows if own[row]]
        joined = len(rows) == 1 and not apart
        prefix = prompts[rows[0]] + (sum(lengths) if joined else 0)
        lengths = [] if joined else lengths
        number = len(sequence)
        sequence += [(prefix, number)] + [(length, number) for length in lengths]
        fork, stop = at + prefix, at + prefix + sum(lengths)
        if lengths or prefix >= SHORT:
            trees.append(PrefixTree(at, fork, stop))
        else:
            lone.append((at, prefix))
        for length in lengths:
            suffixes.append((fork, length))
            fork += length
        at = stop
    counts = torch.tensor([count for count, _ in sequence], device=device)
    continued = torch.tensor([number for _, number in sequence], device=device)
    return Layout(
        tuple(trees),
        (*_buckets(lone, at, False, device), *_buckets(suffixes, at, True, device)),
        torch.arange(len(sequence), device=device).repeat_interleave(counts),
        continued.repeat_interleave(counts),
        count=len(sequence),
    )


def _buckets(spans: Sequence[tuple[int, int]], padding: int, are_suffixes: bool, device: torch.device) -> list[Bucket]:
    """Buckets of sequences given as (start, length), longest first. `padding` is the index used for padding."""
    groups: list[list[tuple[int, int]]] = []
    for span in sorted(spans, key=lambda span: -span[1]):
        if not groups or span[1] < SIMILAR * groups[-1][0][1]:
            groups.append([])
        groups[-1].append(span)
    buckets = []
    for group in groups:
        start, length = torch.tensor(group, device=device).T
        step = torch.arange(int(group[0][1]), device=device)
        token = torch.where(step < length[:, None], start[:, None] + step, padding)
        first = group[0][0]
        consecutive = group == [(first + i * group[0][1], group[0][1]) for i in range(len(group))]
        buckets.append(Bucket(token, are_suffixes, first if consecutive else None))
    return buckets


@dataclass(frozen=True)
class PromptPass:
    """A pass over prompts of a rollout, `first` to `end` of a batch, as a packed sequence of N tokens."""

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
    """Passes over consecutive prompts, each of up to `budget` packed tokens or one longer prompt. Each reads common
    prefixes of its prompts (such as a system prompt) once."""
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

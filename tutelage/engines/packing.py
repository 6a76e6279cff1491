"""Rows as one line of tokens, in which every distinct prompt stands once and padding not at all.

    prompt A · response 1 of A · response 2 of A · prompt B · response of B · …

A prompt with its responses is a tree: a stem, and branches that all continue it. Linear layers, norms and MLPs do
not care who stands beside whom; positions and attention (see `attention`) do, and are told by what is built here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from tutelage.core.batch import Rows
from tutelage.core.rows import before_each_response_token, families, positions

SHORT = 512  # lone sequences below this length attend in one call with others of like length, longer ones by themselves
LIKE = 0.75  # the shortest sequence in such a call, as a share of the longest


@dataclass(frozen=True)
class Tree:
    """A stem at [start, fork) of the line, and its branches at [fork, stop)."""

    start: int
    fork: int
    stop: int


@dataclass(frozen=True)
class Bundle:
    """Sequences of like length side by side: lone ones, or branches as they are without their stems."""

    token: Tensor  # Int[b, L], where each token stands in the line; beyond the end of a sequence, the line's length
    branches: bool
    start: int | None = None  # where they begin, if they are of one length and stand one behind the other


@dataclass(frozen=True)
class Shape:
    """What stands where in a line of N tokens. Lone sequences that are long are trees without branches."""

    trees: tuple[Tree, ...]
    bundles: tuple[Bundle, ...]
    sequence: (
        Tensor  # Int[N], the number of the stem, the branch or the lone sequence that a token belongs to
    )
    stem: Tensor  # Int[N], the number of the stem that a branch continues; a token's own sequence elsewhere


@dataclass(frozen=True)
class Packed:
    """B rows as a line of N tokens."""

    tokens: Tensor  # Int[N]
    places: Tensor  # Int[N], the position of each in its row
    shape: Shape
    before: Tensor  # Int[B, R], where the token stands from which a response token is predicted; anything if masked
    last: Tensor  # Int[B], where the last token stands that is there of each row
    cell: Tensor  # Int[N], where each token stood in the rows, as flattened [B, Q + R]


def pack(rows: Rows, *, ends: bool) -> Packed:
    """Lay rows out as a line. The last token of a response predicts nothing: it is there only if `ends` asks for it.

    Raises ValueError where a prompt has no token: nothing would predict the first of its response.
    """
    if not rows.prompt_mask.any(1).all():
        raise ValueError("a prompt needs at least one token")
    width, device = rows.prompt.shape[1], rows.prompt.device
    family = families(rows)
    order = family.argsort(stable=True)
    family = family[order]
    first = torch.ones_like(family, dtype=torch.bool)
    first[1:] = family[1:] != family[:-1]
    mask = torch.cat([rows.prompt_mask, rows.mask], 1)[order]
    stems, own = mask[:, :width].sum(1), mask[:, width:].sum(1)
    own = own if ends else (own - 1).clamp(min=0)
    taken = mask & torch.cat(
        [first[:, None].expand(-1, width), torch.arange(mask.shape[1] - width, device=device) < own[:, None]],
        1,
    )
    where = (taken.flatten().cumsum(0) - 1).view_as(taken)
    where[:, :width] = where[first, :width][family]
    back = order.argsort()
    cell = (order[:, None] * mask.shape[1] + torch.arange(mask.shape[1], device=device))[taken]
    return Packed(
        tokens=torch.cat([rows.prompt, rows.response], 1).flatten()[cell],
        places=positions(mask)[taken],
        shape=shape_of(*torch.stack([family, stems, own]).tolist(), device=device),
        before=before_each_response_token(where, rows)[back],
        last=where.gather(1, (width - 1 + own)[:, None]).squeeze(1)[back],
        cell=cell,
    )


def shape_of(
    family: Sequence[int], stems: Sequence[int], own: Sequence[int], *, device: torch.device
) -> Shape:
    """The shape of rows that stand family by family, from the lengths of their prompts and of their responses."""
    trees: list[Tree] = []
    lone: list[tuple[int, int]] = []
    branches: list[tuple[int, int]] = []
    sequence: list[tuple[int, int]] = []  # (number of tokens, the stem that they continue or −1)
    at = 0
    for _, members in groupby(range(len(family)), key=family.__getitem__):
        rows = list(members)
        lengths = [own[row] for row in rows if own[row]]
        stem = stems[rows[0]] + (sum(lengths) if len(rows) == 1 else 0)
        lengths = lengths if len(rows) > 1 else []
        number = len(sequence)
        sequence += [(stem, number)] + [(length, number) for length in lengths]
        fork, stop = at + stem, at + stem + sum(lengths)
        if lengths or stem >= SHORT:
            trees.append(Tree(at, fork, stop))
        else:
            lone.append((at, stem))
        for length in lengths:
            branches.append((fork, length))
            fork += length
        at = stop
    counts = torch.tensor([count for count, _ in sequence], device=device)
    continued = torch.tensor([number for _, number in sequence], device=device)
    return Shape(
        tuple(trees),
        (*_bundles(lone, at, False, device), *_bundles(branches, at, True, device)),
        torch.arange(len(sequence), device=device).repeat_interleave(counts),
        continued.repeat_interleave(counts),
    )


def _bundles(
    spans: Sequence[tuple[int, int]], nowhere: int, branches: bool, device: torch.device
) -> list[Bundle]:
    """(start, length) of sequences → bundles, the longest first."""
    bundles: list[list[tuple[int, int]]] = []
    for span in sorted(spans, key=lambda span: -span[1]):
        if not bundles or span[1] < LIKE * bundles[-1][0][1]:
            bundles.append([])
        bundles[-1].append(span)
    found = []
    for spans in bundles:
        start, length = torch.tensor(spans, device=device).T
        step = torch.arange(int(spans[0][1]), device=device)
        token = torch.where(step < length[:, None], start[:, None] + step, nowhere)
        first = spans[0][0]
        in_a_row = spans == [(first + i * spans[0][1], spans[0][1]) for i in range(len(spans))]
        found.append(Bundle(token, branches, first if in_a_row else None))
    return found

"""Tensors and pointers into `trees.cpp`: attention of a line of trees, and its gradients."""

from collections import defaultdict
from ctypes import Structure, byref, c_float, c_int64, c_void_p
from functools import cached_property

import torch
from torch import Tensor

from tutelage.engines.cpu.native.bindings import LANES, is_there, library, team
from tutelage.engines.packing import Shape

SUMS = 4
"""Sums that the branches of a stem are divided among: more are more to keep and to add up, fewer leave threads idle."""
MOST_SUMS = 1 << 26
"""Floats that all sums together may need: with long prompts it is too much, and torch's kernels serve."""


class Line(Structure):
    """A line of sequences and what they attend with."""

    _fields_ = [
        *((name, c_int64) for name in ("heads", "keys", "width", "sequences")),
        *((name, c_int64) for name in ("longest", "all_columns", "stem_tokens")),
        *((name, c_void_p) for name in ("first", "length", "stem", "columns", "spot", "sum", "next", "sums")),
        ("scale", c_float),
        *((name, c_void_p) for name in ("query", "key", "value")),
    ]


class Trees:
    """The attention of a line of N tokens of one shape (see `attention.Kernels`)."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @cached_property
    def _sequences(self) -> "_Sequences":
        return _Sequences(self.shape)

    def serve(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether they are what `trees.cpp` reads, and it is there."""
        tensors = (query, key, value)
        plain = all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors)
        width = query.shape[-1]
        if not plain or width % LANES or value.shape[-1] != width:
            return False
        return is_there() and self._sums(key) <= MOST_SUMS

    def forward(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """out and the log-sum-exp. [N, H, w], [N, K, w], [N, K, w] → [N, H, w], [N, H]"""
        held = tuple(x.contiguous() for x in (query, key, value))
        line = self._sequences.line(held, scale)
        out, ends = torch.empty_like(held[0]), query.new_empty(query.shape[:2])
        turned, desks = self._turned(key), _desks(line)
        pointers = (x.data_ptr() for x in (out, ends, turned, desks))
        library().tutelage_trees(byref(team()), byref(line), *pointers)
        return out, ends

    def backward(
        self,
        tensors: tuple[Tensor, Tensor, Tensor],
        out: Tensor,
        lse: Tensor,
        grad: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of query, key and value from that of `out`."""
        held = tuple(x.contiguous() for x in tensors)
        line = self._sequences.line(held, scale)
        given = tuple(x.contiguous() for x in (out, lse, grad))
        to_query, to_key, to_value = map(torch.empty_like, held)
        turned, desks = self._turned(*held[1:]), _desks(line)
        sums = turned.new_empty(self._sums(held[1]))
        pointers = (x.data_ptr() for x in (*given, to_query, to_key, to_value, turned, sums, desks))
        library().tutelage_trees_gradients(byref(team()), byref(line), *pointers)
        return to_query, to_key, to_value

    def _sums(self, key: Tensor) -> int:
        """Floats for what branches add to the gradients of the keys and values of stems."""
        return 2 * self._sequences.most_sums * self._sequences.stem_tokens * key[0].numel()

    def _turned(self, *of: Tensor) -> Tensor:
        """Room for a turned copy of each."""
        return of[0].new_empty(self._sequences.all_columns * sum(x[0].numel() for x in of))


class _Sequences:
    """Where the sequences of a line are (see given.hpp)."""

    def __init__(self, shape: Shape) -> None:
        length = shape.sequence.bincount()
        first, own = _before(length), (length + LANES - 1) // LANES * LANES
        stem = shape.stem[first]
        is_branch = stem != torch.arange(len(stem))
        branches = torch.zeros_like(length).index_add_(0, stem, is_branch.long())
        has_branches, sums = branches > 0, branches.clamp(max=SUMS)
        spot = _before(length * has_branches).where(has_branches, -1)
        row = own + own[stem].where(is_branch, 0)
        self.arrays = (first, length, stem, _before(own), spot, *_divided(stem.tolist()), sums)
        self.longest, self.all_columns = int(row.max()), int(own.sum())
        self.stem_tokens, self.most_sums = int(length[has_branches].sum()), int(sums.max())

    def line(self, tensors: tuple[Tensor, ...], scale: float) -> Line:
        """With queries, keys and values, which somebody has to hold."""
        query, key, _ = tensors
        sizes = (query.shape[1], key.shape[1], query.shape[2], len(self.arrays[0]))
        arrays, pointers = ([x.data_ptr() for x in each] for each in (self.arrays, tensors))
        return Line(*sizes, self.longest, self.all_columns, self.stem_tokens, *arrays, scale, *pointers)


def _divided(stem: list[int]) -> tuple[Tensor, Tensor]:
    """`sum` and `next` of all sequences (see given.hpp): the branches of a stem take its sums by turns."""
    begins, follows = [0] * len(stem), [-1] * len(stem)
    branches: defaultdict[int, list[int]] = defaultdict(list)
    for sequence, of in enumerate(stem):
        if sequence != of:
            branches[of].append(sequence)
    for siblings in branches.values():
        for place, sequence in enumerate(siblings):
            begins[sequence] = place if place < SUMS else -1
        for before, behind in zip(siblings, siblings[SUMS:], strict=False):
            follows[before] = behind
    return torch.tensor(begins), torch.tensor(follows)


def _desks(line: Line) -> Tensor:
    """Room for what each thread works with."""
    return torch.empty(torch.get_num_threads() * library().tutelage_trees_desk(byref(line)))


def _before(counts: Tensor) -> Tensor:
    """The sum of those before each."""
    return counts.cumsum(0) - counts

"""The attention of a packed sequence and its gradients, in C++: tensors for `packed_attention.cpp`."""

from collections import defaultdict
from collections.abc import Sequence
from ctypes import byref
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.engines.cpu.native.bindings import LANES, is_available, library, thread_pool
from tutelage.engines.cpu.native.structs import PackedSequence
from tutelage.engines.packing import Layout

ACCUMULATORS = 4
"""Gradient accumulators of a shared prefix: more need more memory and additions, fewer leave threads idle."""
TYPES = (torch.float32, torch.bfloat16)
"""Types of queries, keys and values. The arithmetic is float32 in any case."""
MOST_FLOATS = 1 << 26
"""Floats that all accumulators may take together: with long prompts they take more, and torch's kernels serve."""


class NativeKernels:
    """The compiled implementation of `tutelage.engines.cpu.packed_attention.Kernels`, for one layout of N tokens."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @cached_property
    def _sequences(self) -> "_Sequences":
        return _Sequences(self.layout)

    def supports(
        self, query: Float[Tensor, "N H w"], key: Float[Tensor, "N K w"], value: Float[Tensor, "N K v"]
    ) -> bool:
        """Whether the kernels take these tensors and are available: float32 or bfloat16 on a processor, heads of whole
        vectors."""
        tensors = (query, key, value)
        plain = all(x.dtype in TYPES and x.device.type == "cpu" for x in tensors)
        width = query.shape[-1]
        if not plain or width % LANES or value.shape[-1] != width:
            return False
        return is_available() and self._floats(key) <= MOST_FLOATS

    def forward(
        self,
        query: Float[Tensor, "N H w"],
        key: Float[Tensor, "N K w"],
        value: Float[Tensor, "N K w"],
        scale: float,
    ) -> tuple[Float[Tensor, "N H w"], Float[Tensor, "N H"]]:
        """See `Kernels.forward`."""
        held = tuple(x.float().contiguous() for x in (query, key, value))
        packed = self._sequences.struct(held, scale)
        out, lse = torch.empty_like(held[0]), held[0].new_empty(query.shape[:2])
        transposed, workspaces = self._transposed(held[1]), _workspaces(packed)
        pointers = (x.data_ptr() for x in (out, lse, transposed, workspaces))
        library().tutelage_packed_attention(byref(thread_pool()), byref(packed), *pointers)
        return out.to(query.dtype), lse

    def backward(
        self,
        tensors: tuple[Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]],
        out: Float[Tensor, "N H w"],
        lse: Float[Tensor, "N H"],
        grad: Float[Tensor, "N H w"],
        scale: float,
    ) -> tuple[Float[Tensor, "N H w"], Float[Tensor, "N K w"], Float[Tensor, "N K w"]]:
        """See `Kernels.backward`."""
        held = tuple(x.float().contiguous() for x in tensors)
        packed = self._sequences.struct(held, scale)
        inputs = tuple(x.float().contiguous() for x in (out, lse, grad))
        to_query, to_key, to_value = map(torch.empty_like, held)
        transposed, workspaces = self._transposed(*held[1:]), _workspaces(packed)
        accumulated = transposed.new_empty(self._floats(held[1]))
        pointers = (
            x.data_ptr() for x in (*inputs, to_query, to_key, to_value, transposed, accumulated, workspaces)
        )
        library().tutelage_packed_attention_gradients(byref(thread_pool()), byref(packed), *pointers)
        to_query, to_key, to_value = (
            x.to(own.dtype) for x, own in zip((to_query, to_key, to_value), tensors, strict=True)
        )
        return to_query, to_key, to_value

    def _floats(self, key: Tensor) -> int:
        """Floats of all accumulators: what suffixes add to the gradients of the keys and values of prefixes."""
        return 2 * self._sequences.most_accumulators * self._sequences.prefix_tokens * key[0].numel()

    def _transposed(self, *tensors: Tensor) -> Tensor:
        """Memory for a transposed copy of each tensor [N, K, w]."""
        return tensors[0].new_empty(self._sequences.all_columns * sum(x[0].numel() for x in tensors))


class _Sequences:
    """The sequences of a layout, as `structs.hpp` describes them."""

    def __init__(self, layout: Layout) -> None:
        length = layout.sequence.bincount()
        first, columns = _sums_before(length), (length + LANES - 1) // LANES * LANES
        prefix = layout.prefix[first]
        is_suffix = prefix != torch.arange(len(prefix))
        suffixes = torch.zeros_like(length).index_add_(0, prefix, is_suffix.long())
        is_shared, accumulators = suffixes > 0, suffixes.clamp(max=ACCUMULATORS)
        offset = _sums_before(length * is_shared).where(is_shared, -1)
        row = columns + columns[prefix].where(is_suffix, 0)
        assigned = _assign_accumulators(prefix.tolist())
        self.arrays = (first, length, prefix, _sums_before(columns), offset, *assigned, accumulators)
        self.longest, self.all_columns = int(row.max()), int(columns.sum())
        self.prefix_tokens, self.most_accumulators = int(length[is_shared].sum()), int(accumulators.max())

    def struct(self, tensors: tuple[Tensor, ...], scale: float) -> PackedSequence:
        """The struct for queries, keys and values. It holds pointers: the caller must hold the tensors."""
        query, key, _ = tensors
        sizes = (query.shape[1], key.shape[1], query.shape[2], len(self.arrays[0]))
        arrays, pointers = ([x.data_ptr() for x in each] for each in (self.arrays, tensors))
        return PackedSequence(
            *sizes, self.longest, self.all_columns, self.prefix_tokens, *arrays, scale, *pointers
        )


def _assign_accumulators(prefix: Sequence[int]) -> tuple[Tensor, Tensor]:
    """`accumulator` and `next_suffix` of all sequences (see `structs.hpp`): the suffixes of a prefix take its
    accumulators in turn."""
    accumulator, next_suffix = [0] * len(prefix), [-1] * len(prefix)
    suffixes: defaultdict[int, list[int]] = defaultdict(list)
    for sequence, continued in enumerate(prefix):
        if sequence != continued:
            suffixes[continued].append(sequence)
    for siblings in suffixes.values():
        for place, sequence in enumerate(siblings):
            accumulator[sequence] = place if place < ACCUMULATORS else -1
        for sequence, follower in zip(siblings, siblings[ACCUMULATORS:], strict=False):
            next_suffix[sequence] = follower
    return torch.tensor(accumulator), torch.tensor(next_suffix)


def _workspaces(packed: PackedSequence) -> Tensor:
    """Memory for the workspaces of all threads."""
    floats = library().tutelage_packed_attention_workspace(byref(packed))
    return torch.empty(torch.get_num_threads() * floats)


def _sums_before(counts: Tensor) -> Tensor:
    """The exclusive cumulative sum: for each entry, the sum of the entries before it."""
    return counts.cumsum(0) - counts

"""Attention of a packed sequence and its gradients in C++: bindings of `packed_attention.cpp`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from tutelage.engines.cpu.allocator import workspace
from tutelage.engines.cpu.native.bindings import LANES, compute, is_available, size_of
from tutelage.engines.cpu.native.structs import PackedSequence
from tutelage.engines.packing import Layout

Queries = Float[Tensor, "N H w"]
Keys = Float[Tensor, "S K w"]
"""Keys or values of the N tokens with queries and, in `forward`, of tokens that have none."""
Operands = tuple[Queries, Keys, Keys]
"""Queries, keys and values."""
ACCUMULATORS = 4
"""Gradient accumulators per shared prefix: more cost memory and additions, fewer leave threads idle."""
TYPES = (torch.float32, torch.bfloat16)
"""Dtypes of queries, keys and values. In bfloat16, scores, softmax and sums are float32, and operands of products are
rounded."""
MOST_FLOATS = 1 << 26
"""Maximum floats of all accumulators together; longer prompts fall back to torch's kernels."""


class NativeKernels:
    """Forward and backward attention of a packed sequence of N tokens with a fixed layout, by the compiled kernels.

    Keys and values of common tokens are copied to all their positions; queries are not."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @cached_property
    def _sequences(self) -> "_Sequences":
        return _Sequences(self.layout)

    def supports(
        self, query: Float[Tensor, "N H w"], key: Float[Tensor, "N K w"], value: Float[Tensor, "N K v"]
    ) -> bool:
        """Whether the kernels are available and support these tensors: float32 or bfloat16 on a CPU, heads of whole
        vectors."""
        tensors = (query, key, value)
        plain = all(x.dtype in TYPES and x.device.type == "cpu" for x in tensors)
        width = query.shape[-1]
        if not plain or width % LANES or value.shape[-1] != width:
            return False
        return is_available() and self._floats(key) <= MOST_FLOATS

    def forward(self, query: Queries, key: Keys, value: Keys, scale: float) -> tuple[Queries, Float[Tensor, "N H"]]:
        """The output, and the log-sum-exp of the scores `scale` · q · k of each query."""
        operands, is_half = self._as_computed(query, key, value)
        packed = self._sequences.struct(operands, scale)
        out, lse = torch.empty_like(operands[0]), query.new_empty(query.shape[:2], dtype=torch.float32)
        kernel = "half_attention" if is_half else "packed_attention"
        with _buffers(self._copies(operands[1], 2 if is_half else 1), _workspaces(packed)) as buffers:
            compute(kernel, packed, out, lse, *buffers)
        return out.to(query.dtype), lse

    def backward(
        self, tensors: Operands, out: Queries, lse: Float[Tensor, "N H"], grad: Queries, scale: float
    ) -> Operands:
        """The gradients of query, key and value (`tensors`) from the gradient of `out`."""
        operands, is_half = self._as_computed(*tensors)
        packed = self._sequences.struct(operands, scale)
        lse, grad = lse.float().contiguous(), grad.to(operands[0].dtype).contiguous()
        to_query = torch.empty_like(operands[0])
        to_key, to_value = (torch.empty_like(x, dtype=torch.float32) for x in operands[1:])
        sizes = (self._copies(operands[1], 3 if is_half else 2), self._floats(operands[1]), _workspaces(packed))
        with _buffers(*sizes) as buffers:
            rest = [lse, grad, to_query, to_key, to_value, *buffers]
            if is_half:
                compute("half_attention_gradients", packed, *rest)
            else:
                compute("packed_attention_gradients", packed, out.float().contiguous(), *rest)
        common = self.layout.common
        if common is not None:
            to_key, to_value = common.summed(to_key), common.summed(to_value)
        to_query, to_key, to_value = (
            x.to(tensor.dtype) for x, tensor in zip((to_query, to_key, to_value), tensors, strict=True)
        )
        return to_query, to_key, to_value

    def _as_computed(self, query: Tensor, *keys_and_values: Tensor) -> tuple[tuple[Tensor, ...], bool]:
        """Contiguous tensors in the dtype of the arithmetic, with keys and values copied to all their positions, and
        whether that dtype is bfloat16 (if all tensors are)."""
        tensors = (query, *map(self.layout.spread, keys_and_values))
        is_half = all(x.dtype == torch.bfloat16 for x in tensors)
        return tuple((x if is_half else x.float()).contiguous() for x in tensors), is_half

    def _floats(self, key: Tensor) -> int:
        """Floats of all accumulators, which collect the contributions of suffixes to the gradients of prefix keys and
        values."""
        return 2 * self._sequences.most_accumulators * self._sequences.prefix_tokens * key[0].numel()

    def _copies(self, key: Tensor, count: int) -> int:
        """Floats of copies of the keys or values [N, K, w] in other layouts."""
        return count * self._sequences.all_columns * key[0].numel() * key.itemsize // 4


class _Sequences:
    """The sequences of a layout, as `structs.hpp` describes them."""

    def __init__(self, layout: Layout) -> None:
        length = layout.sequence.bincount()
        first, columns = _sums_before(length), (length + LANES - 1) // LANES * LANES
        prefix = layout.prefix[first]
        skipped, common = layout.skipped(), layout.common
        queries = first if common is None else common.token[first + skipped]
        is_suffix = prefix != torch.arange(len(prefix))
        suffixes = torch.zeros_like(length).index_add_(0, prefix, is_suffix.long())
        is_shared, accumulators = suffixes > 0, suffixes.clamp(max=ACCUMULATORS)
        offset = _sums_before(length * is_shared).where(is_shared, -1)
        row = columns + columns[prefix].where(is_suffix, 0)
        assigned = _assign_accumulators(prefix.tolist())
        places = (first, length, skipped, queries)
        self.arrays = (*places, prefix, _sums_before(columns), offset, *assigned, accumulators)
        self.longest, self.all_columns = int(row.max()), int(columns.sum())
        self.prefix_tokens, self.most_accumulators = int(length[is_shared].sum()), int(accumulators.max())

    def struct(self, tensors: tuple[Tensor, ...], scale: float) -> PackedSequence:
        """The struct for queries, keys and values. It holds pointers, so the caller must keep the tensors alive."""
        query, key, _ = tensors
        sizes = (query.shape[1], key.shape[1], query.shape[2], len(self.arrays[0]))
        arrays, pointers = ([x.data_ptr() for x in each] for each in (self.arrays, tensors))
        return PackedSequence(*sizes, self.longest, self.all_columns, self.prefix_tokens, *arrays, scale, *pointers)


def _assign_accumulators(prefix: Sequence[int]) -> tuple[Tensor, Tensor]:
    """`accumulator` and `next_suffix` of all sequences (see `structs.hpp`): suffixes use the accumulators of their
    prefix in turn."""
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


def _workspaces(packed: PackedSequence) -> int:
    """Floats of the workspaces of all threads."""
    return torch.get_num_threads() * size_of("packed_attention_workspace", packed)


@contextmanager
def _buffers(*counts: int) -> Iterator[tuple[Float32[Tensor, " _"], ...]]:
    """Buffers of `counts` floats inside the context, aligned to cache lines."""
    padded = [-(-count // LANES) * LANES for count in counts]
    with workspace(sum(padded)) as memory:
        yield memory[: sum(padded)].split(padded)


def _sums_before(counts: Tensor) -> Tensor:
    """Exclusive cumulative sum."""
    return counts.cumsum(0) - counts

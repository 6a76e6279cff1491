"""Memory retained by the process: freed pages, compiled oneDNN primitives, one arena shared by decoding weights and
gradients, and the workspaces of products."""

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters of mallopt(3), from malloc.h."""

PRIMITIVES = 128
"""Capacity of oneDNN's primitive caches; the passes of two batches need fewer."""
PRIMITIVE_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables for the cache capacities of oneDNN and of its wrapper in torch."""

HUGE = 1 << 21
"""Bytes of a huge page. With small pages, address translation dominates the cost of access."""
CACHE_LINE = 16
"""Floats per cache line."""
MOST_FRAGMENTS = 1 << 29
"""Maximum growth of free heap memory between rollouts, in bytes."""
MOST_OVERSIZE = 4
"""A spare mapping more than this many times the required size is returned to the system."""
_usual: int | None = None
"""Free heap bytes before the first rollout after memory was last returned."""
_spare: list[mmap.mmap] = []  # mapping of a freed arena, at most one


def release_freed_memory() -> None:
    """Return memory retained by `keep_freed_memory` to the system.

    Call it before large allocations that do not fit into free blocks of the heap. Mapping the pages again costs 0.2 s
    per GB, and up to 1.2 s on virtual machines with memory ballooning, so do not call it more often.
    """
    global _usual
    _spare.clear()
    _usual = None
    if _keeps_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


def release_fragments() -> None:
    """Return free heap memory to the system if it has grown by `MOST_FRAGMENTS`. Called before a rollout.

    Batches differ in size, so blocks freed by one do not fit the next and the heap fragments. Memory freed by the first
    step is retained, since every step needs it.
    """
    global _usual
    free = _free_heap() if _keeps_freed_memory() else 0
    if _usual is None:
        _usual = free
    elif free > _usual + MOST_FRAGMENTS:
        release_freed_memory()


def _free_heap() -> int:
    """Free bytes of the heap; 0 if the C library does not report them (glibc does since 2.33)."""
    try:
        tell = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return 0
    tell.restype = _Heap
    return int(tell().free)


class _Heap(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("used", "free", "keepcost")),
    ]


def _keeps_freed_memory() -> bool:
    """Whether `keep_freed_memory` was called successfully."""
    return bool(keep_freed_memory.cache_info().currsize) and keep_freed_memory()


@cache
def keep_freed_memory() -> bool:
    """Retain freed memory in this process for later allocations; returns whether the system supports it.

    By default glibc returns large blocks to the system, which maps and clears every page again for the next tensor;
    that takes about as long as computing the tensor. With this setting the process holds its peak memory until it
    exits, as on a GPU. Only glibc is configured.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  # glibc alone has this function
        return bool(libc.mallopt(TRIM_THRESHOLD, -1) and libc.mallopt(MMAP_MAX, 0))
    except (OSError, AttributeError, TypeError):
        return False


def limit_primitive_caches() -> None:
    """Limit oneDNN's primitive caches, unless the environment sets their capacity.

    oneDNN compiles a primitive for every shape, hence every number of tokens, and keeps 1,024 in each of two caches:
    about 30 MB per bfloat16 update of any size. The capacity is read at the first oneDNN product of the process, so
    later calls have no effect.
    """
    for name in PRIMITIVE_CACHES:
        os.environ.setdefault(name, str(PRIMITIVES))


class Arena:
    """CPU memory for float32 vectors of given sizes, in huge pages if available.

    The memory is freed with its last tensor, independently of the heap. If the process retains freed memory (see
    `keep_freed_memory`), the next arena reuses the mapping: decoding weights and gradients of an update share one
    mapping.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        floats = sum(map(_whole_lines, counts))
        if not hasattr(mmap, "MAP_ANONYMOUS"):
            self.rest = torch.empty(floats)
            return
        mapped = _spare_memory(4 * floats + HUGE)
        holder = (ctypes.c_char * len(mapped)).from_buffer(mapped)  # freed with the last tensor
        weakref.finalize(holder, _keep_as_spare, mapped).atexit = False
        self.rest = _floats_in_huge_pages(holder)

    def take(self, count: int) -> Float[Tensor, " count"]:
        """The next vector of `count` floats, aligned to a cache line."""
        taken, self.rest = self.rest[:count], self.rest[_whole_lines(count) :]
        return taken


def _whole_lines(floats: int) -> int:
    """The number of floats, rounded up to cache lines."""
    return -(-floats // CACHE_LINE) * CACHE_LINE


@contextmanager
def workspace(floats: int) -> Iterator[Float[Tensor, " _"]]:
    """At least `floats` floats that a kernel may overwrite inside the context. Threads never share them.

    They are outside the heap: between tensors that last longer, blocks of many sizes would fragment it.
    """
    memory = _workspaces.pop() if _workspaces else torch.empty(0)
    if len(memory) < floats:
        memory = _workspace(floats)
    try:
        yield memory
    finally:
        _workspaces.append(memory)


_workspaces: list[Tensor] = []  # not in use


def _workspace(floats: int) -> Tensor:
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.empty(floats)
    mapped = _map_memory(4 * floats + HUGE)
    return _floats_in_huge_pages((ctypes.c_char * len(mapped)).from_buffer(mapped))


def _floats_in_huge_pages(holder: "ctypes.Array[ctypes.c_char]") -> Tensor:
    """The floats of mapped memory from its first huge page on."""
    whole = torch.frombuffer(holder, dtype=torch.float32)
    return whole[-whole.data_ptr() % HUGE // 4 :]


def _spare_memory(size: int) -> mmap.mmap:
    """A mapping of at least `size` bytes: the spare one, if its size is suitable."""
    if _spare and size <= len(_spare[0]) <= MOST_OVERSIZE * size:
        return _spare.pop()
    _spare.clear()
    return _map_memory(size)


def _map_memory(size: int) -> mmap.mmap:
    """`size` bytes from the system, in huge pages if available."""
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # systems without huge pages
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def _keep_as_spare(mapped: mmap.mmap) -> None:
    if _keeps_freed_memory() and (not _spare or len(_spare[0]) < len(mapped)):
        _spare[:] = [mapped]

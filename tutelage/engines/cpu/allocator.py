"""Memory that the process keeps: freed pages, compiled products, and one arena that decoding weights and gradients use
in turn."""

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Names of mallopt(3), from malloc.h."""

PRIMITIVES = 128
"""Products that oneDNN keeps compiled. The passes of two batches need fewer."""
PRIMITIVE_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""The environment variables of the caches of oneDNN and of its wrapper in torch."""

HUGE = 1 << 21
"""Bytes of a huge page. With small pages, address translation takes much of the time of reading or filling them."""
CACHE_LINE = 16
"""Floats of a cache line."""
MOST_FRAGMENTS = 1 << 29
"""Bytes by which the free memory of the heap may grow from one rollout to a later one."""
MOST_OVERSIZE = 4
"""A spare mapping that is more than this factor larger than what is needed is returned to the system instead."""
_usual: int | None = None
"""Bytes of the heap that were free before the first rollout since memory was returned."""
_spare: list[mmap.mmap] = []  # the mapping of an arena that was freed, at most one


def release_freed_memory() -> None:
    """Return the free memory that `keep_freed_memory` keeps to the system.

    Called before something large is allocated that does not fit into the holes of the heap, which would count in
    addition. Taking the pages again costs .2 s a GB, and up to 1.2 s on virtual machines that return their memory too,
    so it should not be called more often than that.
    """
    global _usual
    _spare.clear()
    _usual = None
    if _keeps_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


def release_fragments() -> None:
    """Return the free memory of the heap to the system where it has grown by `MOST_FRAGMENTS`. Called before a rollout.

    Batches have other numbers of tokens, so what one leaves does not fit the next, and the heap grows although no more
    of it is in use. What a first step leaves is what every step needs: it is kept.
    """
    global _usual
    free = _free_heap() if _keeps_freed_memory() else 0
    if _usual is None:
        _usual = free
    elif free > _usual + MOST_FRAGMENTS:
        release_freed_memory()


def _free_heap() -> int:
    """Bytes of the heap that are free; 0 where the C library does not tell (glibc does from 2.33 on)."""
    try:
        tell = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return 0
    tell.restype = _Heap
    return int(tell().free)


class _Heap(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = [
        *(
            (name, ctypes.c_size_t)
            for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")
        ),
        *((name, ctypes.c_size_t) for name in ("used", "free", "keepcost")),
    ]


def _keeps_freed_memory() -> bool:
    """Whether `keep_freed_memory` was called, with success."""
    return bool(keep_freed_memory.cache_info().currsize) and keep_freed_memory()


@cache
def keep_freed_memory() -> bool:
    """Make this process keep the memory that it frees, for its next allocations; returns whether the system allows it.

    glibc returns large blocks to the system, which has to find and clear every page anew when the next tensor of that
    size is written: that takes about as long as computing the tensor. With this setting the process holds its peak
    memory until it ends, as it would on a GPU. Only glibc is configured; other allocators are left alone.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  # glibc alone has this function
        return bool(libc.mallopt(TRIM_THRESHOLD, -1) and libc.mallopt(MMAP_MAX, 0))
    except (OSError, AttributeError, TypeError):
        return False


def limit_primitive_caches() -> None:
    """Have oneDNN keep few compiled products, where the environment does not say how many.

    It compiles a product for every shape, and so for every number of tokens, and keeps 1,024 of them in each of two
    caches. An update with products in bfloat16 leaves some 30 MB there, whatever its size. The caches read their
    capacity when the process computes its first product by oneDNN, so later calls change nothing.
    """
    for name in PRIMITIVE_CACHES:
        os.environ.setdefault(name, str(PRIMITIVES))


class Arena:
    """Memory of a CPU for vectors of float32 of given sizes, in huge pages where the system has them.

    The memory is freed with the last tensor in it, whatever was allocated from the heap since. Where the process keeps
    freed memory (see `keep_freed_memory`), the next arena takes the mapping over: the weights that are laid out for
    decoding and the gradients of an update use one mapping in turn.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        floats = sum(map(_whole_lines, counts))
        if not hasattr(mmap, "MAP_ANONYMOUS"):
            self.rest = torch.empty(floats)
            return
        mapped = _map_memory(4 * floats + HUGE)
        holder = (ctypes.c_char * len(mapped)).from_buffer(mapped)  # dies with the last tensor
        weakref.finalize(holder, _keep_as_spare, mapped).atexit = False
        whole = torch.frombuffer(holder, dtype=torch.float32)
        self.rest = whole[-whole.data_ptr() % HUGE // 4 :]

    def take(self, count: int) -> Float[Tensor, " count"]:
        """The next vector of `count` floats, aligned to a cache line."""
        taken, self.rest = self.rest[:count], self.rest[_whole_lines(count) :]
        return taken


def _whole_lines(floats: int) -> int:
    """The number of floats, rounded up to cache lines."""
    return -(-floats // CACHE_LINE) * CACHE_LINE


def _map_memory(size: int) -> mmap.mmap:
    """A mapping of at least `size` bytes: the spare one, where it is large enough and not far too large."""
    if _spare and size <= len(_spare[0]) <= MOST_OVERSIZE * size:
        return _spare.pop()
    _spare.clear()
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # systems without huge pages
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def _keep_as_spare(mapped: mmap.mmap) -> None:
    if _keeps_freed_memory() and (not _spare or len(_spare[0]) < len(mapped)):
        _spare[:] = [mapped]

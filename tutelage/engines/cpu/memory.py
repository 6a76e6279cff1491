"""Memory that this process keeps for itself: freed pages, and one arena that weights and gradients take in turns."""

import ctypes
import mmap
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import torch
from torch import Tensor

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Names of mallopt(3), from malloc.h."""

HUGE = 1 << 21
"""Bytes of a huge page. With small ones, finding the pages takes a good part of the time of reading or filling them."""
LINE = 16
"""Floats of a line of the caches."""
AMPLE = 4
"""A spare stretch that is more than so many times as large as what is asked for goes back to the system instead."""
_spare: list[mmap.mmap] = []  # the stretch that nobody holds, if there is one


def hand_back_freed_memory() -> None:
    """Let the system have what is free now of the memory that `keep_freed_memory` keeps.

    Before something large is laid out for a while that the holes of the heap are of no use to: they would count beside
    it. Taking the pages again costs .2 s a GB, on virtual machines that give theirs back too up to 1.2 s, so not more
    often than that.
    """
    _spare.clear()
    if _keeps_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


def _keeps_freed_memory() -> bool:
    """Whether `keep_freed_memory` was asked for, and could be arranged."""
    return bool(keep_freed_memory.cache_info().currsize) and keep_freed_memory()


@cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, for what it needs next; returns whether that could be arranged.

    glibc hands large blocks back to the system, which has to find and clear every page anew when the next tensor of
    that size is written to: that takes about as long as what is computed into it. The process then holds what it held
    at most until it ends, as it would on a GPU. Only glibc is asked; other allocators have ways of their own.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  # whoever has it is glibc
        return bool(libc.mallopt(TRIM_THRESHOLD, -1) and libc.mallopt(MMAP_MAX, 0))
    except (OSError, AttributeError, TypeError):
        return False


class Stretch:
    """Room for vectors of float32 of these sizes in a processor's memory, in huge pages where the system has them.

    It is free as soon as nobody holds a part of it, whatever was taken from the heap since. Where freed memory is kept
    (see above) it then waits for who asks next: weights that are laid out for decoding and the gradients of an update
    take turns in one stretch.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        floats = sum(map(_in_lines, counts))
        if not hasattr(mmap, "MAP_ANONYMOUS"):
            self.rest = torch.empty(floats)
            return
        mapped = _mapped(4 * floats + HUGE)
        holder = (ctypes.c_char * len(mapped)).from_buffer(mapped)  # dies with the last tensor
        weakref.finalize(holder, _give_back, mapped).atexit = False
        whole = torch.frombuffer(holder, dtype=torch.float32)
        self.rest = whole[-whole.data_ptr() % HUGE // 4 :]

    def take(self, count: int) -> Tensor:
        """The next vector, at the beginning of a line of the caches."""
        taken, self.rest = self.rest[:count], self.rest[_in_lines(count) :]
        return taken


def _in_lines(floats: int) -> int:
    return -(-floats // LINE) * LINE


def _mapped(size: int) -> mmap.mmap:
    """So many bytes: those that were given back last, where they are enough and not far too many."""
    if _spare and size <= len(_spare[0]) <= AMPLE * size:
        return _spare.pop()
    _spare.clear()
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # another system, or one that was built without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def _give_back(mapped: mmap.mmap) -> None:
    if _keeps_freed_memory() and (not _spare or len(_spare[0]) < len(mapped)):
        _spare[:] = [mapped]

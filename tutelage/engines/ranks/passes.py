"""Passes through sharded models, which all ranks take together.

A layer is gathered from all ranks and its gradient is summed over them, so no rank can take a forward or backward pass
alone. But ranks have different numbers of micro-batches. So before each pass the ranks agree on it, and a rank that has
nothing left to compute takes part in the passes of the others without rows of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.engines.ranks.ranks import PeerError, PeerLost, Ranks

T = TypeVar("T")

DONE, OUT_OF_MEMORY, FAILED = 0.0, 1e6, 2e6
"""What a rank tells the others in place of a pass: it has none left; its memory ran out; it has an error."""


class Exhausted(Exception):
    """Memory ran out on another rank."""


class BrokenPass(TutelageError):
    """An error in the middle of a pass. The other ranks wait inside it, so this rank ends without a word to them."""


class Passes:
    """The kinds of passes through the sharded models of a run, and the agreement on each.

    `in_shards` ranks in a row hold one copy of the weights together; all of them where it is None. `take` and `join`
    are collective: in each exchange every rank is in one of them, or tells `FAILED`.
    """

    def __init__(self, ranks: Ranks, in_shards: int | None = None) -> None:
        self.ranks, self.in_shards = ranks, in_shards or ranks.size
        self._idle: list[Callable[[], object]] = []
        self.pending: list[Tensor] = []
        """Results of forward passes without rows of this rank, whose backward pass may follow."""

    def add(self, idle: Callable[[], object]) -> int:
        """The number of a new kind of pass. `idle` takes part in it without rows of this rank."""
        self._idle.append(idle)
        return len(self._idle)

    @contextmanager
    def take(self, number: int) -> Iterator[None]:
        """The context of a pass of this rank.

        Raises `Exhausted` or `PeerError` before the pass if another rank does not come, `PeerLost` if one is
        gone, and `BrokenPass` for another error inside it.
        """
        agreed = self.ranks.largest(number)
        if agreed == FAILED:
            self.ranks.raise_first(None)
        if agreed == OUT_OF_MEMORY:
            raise Exhausted
        if agreed != number:
            raise RuntimeError(f"rank {self.ranks.rank} is in pass {number}, and another one in {agreed:.0f}")
        with self._unbroken():
            yield

    def join(self) -> float:
        """Take part in the passes of other ranks until none has one left. Returns `DONE`, or what a rank told."""
        while DONE < (code := self.ranks.largest(DONE)) < OUT_OF_MEMORY:
            with self._unbroken():
                self._idle[int(code) - 1]()
        self.pending.clear()
        return code

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Raise `PeerLost` if an exchange of the pass inside fails, and `BrokenPass` for any other error."""
        try:
            yield
        except (PeerError, PeerLost):
            raise
        except Exception as error:
            if isinstance(error, dist.DistError) or "gloo/" in str(error):
                raise self.ranks.lost() from error
            raise BrokenPass(
                f"A pass over shards ended in the middle, which no rank can take again: {error} The latest checkpoint "
                "is whole: go on with --resume."
            ) from error

    def together(self, function: Callable[[], T]) -> T:
        """`Ranks.together` of a function in which each rank takes passes of its own, as many as it has use for."""
        try:
            result = function()
        except (PeerError, PeerLost, BrokenPass):
            raise
        except Exception as error:
            self.ranks.largest(FAILED)
            self.ranks.raise_first(error)
            raise
        if self.join() == FAILED:
            self.ranks.raise_first(None)
        return result

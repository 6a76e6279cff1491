"""Synchronised passes through sharded models.

Layers are gathered from all ranks and their gradients summed over them, so no rank can run a forward or backward pass
alone. Since ranks have different numbers of micro-batches, they agree on each pass beforehand, and a rank without
remaining rows takes part in the passes of the others with dummy input.
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
"""Messages of a rank instead of a pass number: no passes left, out of memory, or an error."""


class Exhausted(Exception):
    """Memory ran out on another rank."""


class BrokenPass(TutelageError):
    """An error within a pass. The other ranks are blocked inside it, so this rank exits without notifying them."""


class Passes:
    """Coordinates the passes through the sharded models of a run over all ranks.

    `in_shards` consecutive ranks share one copy of the weights; all ranks if None. `take` and `join` are collective: in
    each exchange every rank is in one of them or sends `FAILED`.
    """

    def __init__(self, ranks: Ranks, in_shards: int | None = None) -> None:
        self.ranks, self.in_shards = ranks, in_shards or ranks.size
        self._idle: list[Callable[[], object]] = []
        self.pending: list[Tensor] = []
        """Results of dummy forward passes whose backward pass may follow."""

    def add(self, idle: Callable[[], object]) -> int:
        """Register a kind of pass and return its number. `idle` takes part in it without rows of this rank."""
        self._idle.append(idle)
        return len(self._idle)

    @contextmanager
    def take(self, number: int) -> Iterator[None]:
        """The context of a pass of this rank.

        Raises `Exhausted` or `PeerError` before the pass if another rank does not take part, `PeerLost` if one has
        exited, and `BrokenPass` for other errors inside it.
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
        """Take part in the passes of other ranks until none is left. Returns `DONE`, or the message of a rank."""
        while DONE < (code := self.ranks.largest(DONE)) < OUT_OF_MEMORY:
            with self._unbroken():
                self._idle[int(code) - 1]()
        self.pending.clear()
        return code

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Context that raises `PeerLost` if communication fails, and `BrokenPass` for any other error."""
        try:
            yield
        except (PeerError, PeerLost):
            raise
        except Exception as error:
            if isinstance(error, dist.DistError) or "gloo/" in str(error):
                raise self.ranks.lost() from error
            raise BrokenPass(
                f"A pass over shards was interrupted and cannot be repeated: {error} The latest checkpoint is "
                "complete: continue with --resume."
            ) from error

    def together(self, function: Callable[[], T]) -> T:
        """`Ranks.together` for a function in which each rank runs any number of passes."""
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

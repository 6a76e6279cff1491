"""Ranks of a run: collective operations and the distribution of rows."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tutelage.base.errors import TutelageError

T = TypeVar("T")

LARGE = 1 << 18
"""Number of elements from which a tensor is reduced in place; smaller ones share one buffer."""


class PeerError(TutelageError):
    """Another rank failed and reports the reason; this rank exits as a consequence."""


class PeerLost(TutelageError):
    """Another rank exited without notice, for example because it was killed."""


@dataclass(frozen=True)
class Ranks:
    """A group of `size` processes, of which this one is `rank`, counted from 0.

    All methods are collective: every rank must call them in the same order. With a single rank they return immediately.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, the only one that writes and prints."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks. Every rank gets the same bits."""
        if self.size == 1:
            return
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            if tensor.numel() < LARGE:
                kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
            else:
                whole = tensor.contiguous()  # the memory layout may differ between ranks
                self._all_reduce(whole)
                if whole is not tensor:
                    tensor.copy_(whole)
        for small in kinds.values():
            buffer = torch.cat([tensor.reshape(-1) for tensor in small])
            self._all_reduce(buffer)
            for tensor, values in zip(small, buffer.split([t.numel() for t in small]), strict=True):
                tensor.copy_(values.view_as(tensor))

    def totals(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sum over ranks of each value by its name. A missing name counts as 0."""
        sums: dict[str, float] = {}
        for part in self.gather(dict(values)):
            for name, value in part.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, by rank. A value is anything that can be pickled."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self.connected():
            dist.all_gather_object(values, value)
        return values

    def largest(self, value: float) -> float:
        """The largest value of any rank."""
        if self.size == 1:
            return value
        number = torch.tensor(value, dtype=torch.float64)
        self._all_reduce(number, dist.ReduceOp.MAX)
        return float(number)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return bool(self.largest(float(flag)))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.largest(0.0)

    def shared(self, make: Callable[[], T]) -> T:
        """The result of `make`, called on rank 0 only. Its error is raised on every rank."""
        own = self.together(lambda: make() if self.is_first else None)
        if self.size == 1:
            return own  # type: ignore[return-value]  # rank 0 is the only rank
        box: list[Any] = [own]
        with self.connected():
            dist.broadcast_object_list(box, src=0)
        first: T = box[0]
        return first

    def together(self, function: Callable[[], T]) -> T:
        """This rank's result of `function`, once it has succeeded on every rank. See `raise_first` for errors."""
        if self.size == 1:
            return function()
        try:
            result = function()
        except Exception as error:
            self.raise_first(error)
            raise
        self.raise_first(None)
        return result

    def raise_first(self, error: Exception | None) -> None:
        """Raise on every rank if any rank has an error: the original on the lowest such rank, `PeerError` on all
        others. `error` is that of this rank, or None."""
        if self.size == 1:
            if error is not None:
                raise error
            return
        if not self.any(error is not None):
            return
        failed = [
            rank for rank, text in enumerate(self.gather(None if error is None else str(error))) if text is not None
        ]
        if failed[0] != self.rank or error is None:
            raise PeerError(f"rank {failed[0]} of {self.size} failed") from error
        raise error

    def _all_reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
        with self.connected():
            dist.all_reduce(tensor, operation)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Context that raises `PeerLost` if communication fails because another rank has exited."""
        try:
            yield
        except RuntimeError as error:
            raise self.lost() from error

    def lost(self) -> PeerLost:
        """The error to raise if another rank has exited."""
        return PeerLost(
            f"Another rank exited or does not respond, so rank {self.rank} of {self.size} cannot continue. The "
            "latest checkpoint is complete: continue with --resume."
        )


ALONE = Ranks()
"""A run in one process."""


SLACK = 1.05
"""Maximum load relative to the mean load; above it, the largest groups are split."""


def deal(costs: Sequence[float], groups: Sequence[Hashable], size: int) -> list[int]:
    """Assign items to ranks with balanced load. Returns the rank of each item.

    Items of one group stay on one rank, since they share a prompt that is read once, unless loads become uneven: then
    the most expensive group is halved until the largest load is within `SLACK` of the mean or every group is a single
    item. Groups are assigned in order of cost, each to the least loaded rank (Graham 1969: at most 4/3 of the optimal
    load). Every rank computes the same assignment.
    """
    members: dict[Hashable, list[int]] = {}
    for item, group in enumerate(groups):
        members.setdefault(group, []).append(item)
    pieces = list(members.values())
    while True:
        owners, loads = _to_least_load(pieces, costs, size)
        largest = max(pieces, key=lambda piece: (len(piece) > 1, _cost(piece, costs)), default=[])
        if len(largest) < 2 or max(loads) <= SLACK * sum(loads) / size:
            break
        half = len(largest) // 2
        pieces.remove(largest)
        pieces += [largest[:half], largest[half:]]
    ranks = [0] * len(costs)
    for piece, rank in zip(pieces, owners, strict=True):
        for item in piece:
            ranks[item] = rank
    return ranks


def _to_least_load(pieces: Sequence[Sequence[int]], costs: Sequence[float], size: int) -> tuple[list[int], list[float]]:
    """The rank of each piece, and the loads of the ranks."""
    loads, owners = [0.0] * size, [0] * len(pieces)
    for number in sorted(range(len(pieces)), key=lambda number: -_cost(pieces[number], costs)):
        rank = loads.index(min(loads))
        owners[number] = rank
        loads[rank] += _cost(pieces[number], costs)
    return owners, loads


def _cost(piece: Sequence[int], costs: Sequence[float]) -> float:
    return sum(costs[item] for item in piece)

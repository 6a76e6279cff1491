"""Which rank computes which rows: groups of rows are dealt by their cost, so that all ranks end at the same time."""

from collections.abc import Hashable, Sequence

SLACK = 1.05
"""The largest load that is left as it is, in units of the mean load; above it, the largest groups are split."""


def deal(costs: Sequence[float], groups: Sequence[Hashable], size: int) -> list[int]:
    """The rank of each item, so that no rank has much more to do than another.

    Items of one group stay on one rank (they share a prompt, which is read once) unless the loads become uneven: then
    the group with the highest cost is halved, until the largest load is within `SLACK` of the mean, or every group is a
    single item. Groups are dealt in the order of their cost, each to the rank with the least load (Graham 1969: at most
    4/3 of the best load). Every rank computes the same answer.
    """
    members: dict[Hashable, list[int]] = {}
    for item, group in enumerate(groups):
        members.setdefault(group, []).append(item)
    pieces = list(members.values())
    while True:
        dealt, loads = _to_least_load(pieces, costs, size)
        largest = max(pieces, key=lambda piece: (len(piece) > 1, _cost(piece, costs)), default=[])
        if len(largest) < 2 or max(loads) <= SLACK * sum(loads) / size:
            break
        half = len(largest) // 2
        pieces.remove(largest)
        pieces += [largest[:half], largest[half:]]
    ranks = [0] * len(costs)
    for piece, rank in zip(pieces, dealt, strict=True):
        for item in piece:
            ranks[item] = rank
    return ranks


def _to_least_load(
    pieces: Sequence[Sequence[int]], costs: Sequence[float], size: int
) -> tuple[list[int], list[float]]:
    """The rank of each piece, and the loads of the ranks."""
    loads, dealt = [0.0] * size, [0] * len(pieces)
    for number in sorted(range(len(pieces)), key=lambda number: -_cost(pieces[number], costs)):
        rank = loads.index(min(loads))
        dealt[number] = rank
        loads[rank] += _cost(pieces[number], costs)
    return dealt, loads


def _cost(piece: Sequence[int], costs: Sequence[float]) -> float:
    return sum(costs[item] for item in piece)

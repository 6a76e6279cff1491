"""Which answers to a prompt a judge compares: all with all, or a tournament with fewer comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol


@dataclass(frozen=True)
class Match:
    """A comparison of two players, by their numbers; `score` is 1 where the first won, 0 where the second did, 1/2 for
    a draw."""

    first: int
    second: int
    score: float


class Schedule(Protocol):
    """The next round: pairs of numbers below `players`, given the matches that were played; none at the end."""

    def __call__(self, players: int, played: Sequence[Match], /) -> Sequence[tuple[int, int]]: ...


def round_robin(players: int, played: Sequence[Match]) -> Sequence[tuple[int, int]]:
    """All pairs in a single round: n (n − 1) / 2 comparisons, the most that can be learnt about n answers."""
    return [] if played else list(combinations(range(players), 2))


def swiss(players: int, played: Sequence[Match]) -> Sequence[tuple[int, int]]:
    """A Swiss tournament of ⌈log2 n⌉ rounds: each player meets one that has won as much, and nobody twice.

    It takes about n/2 · log2 n comparisons, so 12 for 8 answers where all pairs are 28, and tells the best from the
    worst, but not every neighbour. With an odd number the lowest player that played as often as the others sits out.
    """
    rounds = (players - 1).bit_length()
    counts, points = [0] * players, [0.0] * players
    for match in played:
        for player, score in ((match.first, match.score), (match.second, 1.0 - match.score)):
            counts[player] += 1
            points[player] += score
    if players < 2 or max(counts) >= rounds:
        return []
    met = {frozenset((match.first, match.second)) for match in played}
    waiting = sorted(range(players), key=lambda player: (-points[player], player))
    if players % 2:
        most = max(counts)
        waiting.remove(next(player for player in reversed(waiting) if counts[player] == most))
    drawn = []
    while len(waiting) > 1:
        first = waiting.pop(0)
        rival = next((other for other in waiting if frozenset((first, other)) not in met), waiting[0])
        waiting.remove(rival)
        drawn.append((first, rival))
    return [pair for pair in drawn if frozenset(pair) not in met]

"""Comparison of the models in a study: Davidson's model of their votes, with ties."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, isfinite

import numpy as np

from tutelage.people import Match
from tutelage.stats.paired import Strengths, davidson

FEW = 30


@dataclass(frozen=True)
class Standing:
    """A model's strength in nats, with its interval (None if it has no opponents), and its numbers of votes."""

    name: str
    strength: float
    low: float | None
    high: float | None
    won: int
    lost: int
    tied: int


@dataclass(frozen=True)
class Leaderboard:
    """Groups of models that are compared directly or indirectly. `nu` is the tie parameter; `both_bad` counts votes
    left out. `needed` estimates the number of further votes to separate neighbours whose difference is not yet
    significant."""

    groups: tuple[tuple[Standing, ...], ...]
    nu: float | None
    votes: int
    both_bad: int
    needed: tuple[tuple[str, str, int], ...]


def leaderboard(matches: Sequence[Match]) -> Leaderboard:
    """The standings, strongest first. Votes on the same prompt count as independent, which narrows the intervals."""
    between = [match for match in matches if match.sampler_a != match.sampler_b]
    bad = sum(match.both_bad for match in between)
    rows = [
        (match.sampler_a, match.sampler_b, outcome, weight)
        for match in between
        for outcome, weight in ((1.0, match.a_votes), (0.0, match.b_votes), (0.5, match.ties))
        if weight
    ]
    if not rows:
        return Leaderboard((), None, 0, bad, ())
    names = sorted({row[0] for row in rows} | {row[1] for row in rows})
    code = {name: place for place, name in enumerate(names)}
    fitted = davidson(
        np.array([code[row[0]] for row in rows]),
        np.array([code[row[1]] for row in rows]),
        np.array([row[2] for row in rows]),
        len(names),
        weight=np.array([float(row[3]) for row in rows]),
    )
    groups = []
    for component in range(int(fitted.component.max()) + 1):
        members = [place for place in range(len(names)) if fitted.component[place] == component]
        members.sort(key=lambda place: -fitted.strength[place])
        groups.append(members)
    needed = [one for members in groups for one in _needed(fitted, names, members, sum(row[3] for row in rows))]
    standings = tuple(tuple(_standing(fitted, names, place, between) for place in members) for members in groups)
    return Leaderboard(standings, fitted.nu, sum(row[3] for row in rows), bad, tuple(needed))


def _standing(strengths: Strengths, names: Sequence[str], place: int, matches: Sequence[Match]) -> Standing:
    name = names[place]
    own = [(m.a_votes, m.b_votes, m.ties) for m in matches if m.sampler_a == name]
    own += [(m.b_votes, m.a_votes, m.ties) for m in matches if m.sampler_b == name]
    won, lost, tied = map(sum, zip(*own, strict=True))
    low, high = float(strengths.low[place]), float(strengths.high[place])
    finite = isfinite(low) and isfinite(high)
    strength = float(strengths.strength[place])
    return Standing(name, strength, low if finite else None, high if finite else None, won, lost, tied)


def _needed(
    strengths: Strengths, names: Sequence[str], members: Sequence[int], votes: int
) -> list[tuple[str, str, int]]:
    """Pairs of neighbours with the number of further votes after which the interval of their difference would exclude
    zero, as its width is inversely proportional to the square root of the number of votes."""
    pairs = []
    for one, other in pairwise(members):
        value, low, high = strengths.difference(one, other)
        if isfinite(low) and low <= 0 <= high and abs(value) > 0:
            half = (high - low) / 2
            pairs.append((names[one], names[other], ceil(votes * ((half / abs(value)) ** 2 - 1))))
    return pairs

"""The models of a study against each other: Davidson's model on the votes between them, with ties."""

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
    """A model: its strength in nats with its interval (None where it has no rival), and its votes."""

    name: str
    strength: float
    low: float | None
    high: float | None
    won: int
    lost: int
    tied: int


@dataclass(frozen=True)
class Leaderboard:
    """Groups of models compared with each other, directly or through others. `nu` tells how readily models tie;
    `both_bad` votes are left out. `needed`: votes that neighbours not yet told apart would still take, about."""

    groups: tuple[tuple[Standing, ...], ...]
    nu: float | None
    votes: int
    both_bad: int
    needed: tuple[tuple[str, str, int], ...]


def leaderboard(matches: Sequence[Match]) -> Leaderboard:
    """The standings, strongest first. Votes on one prompt count as independent, which flatters the intervals."""
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
    found = davidson(
        np.array([code[row[0]] for row in rows]),
        np.array([code[row[1]] for row in rows]),
        np.array([row[2] for row in rows]),
        len(names),
        weight=np.array([float(row[3]) for row in rows]),
    )
    groups = []
    for component in range(int(found.component.max()) + 1):
        members = [place for place in range(len(names)) if found.component[place] == component]
        members.sort(key=lambda place: -found.strength[place])
        groups.append(members)
    needed = [
        one for members in groups for one in _needed(found, names, members, sum(row[3] for row in rows))
    ]
    standings = tuple(
        tuple(_standing(found, names, place, between) for place in members) for members in groups
    )
    return Leaderboard(standings, found.nu, sum(row[3] for row in rows), bad, tuple(needed))


def _standing(found: Strengths, names: Sequence[str], place: int, matches: Sequence[Match]) -> Standing:
    name = names[place]
    own = [(m.a_votes, m.b_votes, m.ties) for m in matches if m.sampler_a == name]
    own += [(m.b_votes, m.a_votes, m.ties) for m in matches if m.sampler_b == name]
    won, lost, tied = map(sum, zip(*own, strict=True))
    low, high = float(found.low[place]), float(found.high[place])
    known = isfinite(low) and isfinite(high)
    strength = float(found.strength[place])
    return Standing(name, strength, low if known else None, high if known else None, won, lost, tied)


def _needed(
    found: Strengths, names: Sequence[str], members: Sequence[int], votes: int
) -> list[tuple[str, str, int]]:
    """An interval narrows with the root of the votes: by how many would it have to, to leave zero out?"""
    told = []
    for one, other in pairwise(members):
        value, low, high = found.difference(one, other)
        if isfinite(low) and low <= 0 <= high and abs(value) > 0:
            half = (high - low) / 2
            told.append((names[one], names[other], ceil(votes * ((half / abs(value)) ** 2 - 1))))
    return told

"""Schedules of comparisons: who meets whom, how often, and what a tournament finds out."""

import math
from itertools import combinations, permutations

import pytest

from tutelage.rewards.matches import Match, Schedule, round_robin, swiss


def played_by_strength(schedule: Schedule, strength: tuple[int, ...]) -> list[Match]:
    """All matches among players of which the stronger one always wins."""
    played: list[Match] = []
    while drawn := schedule(len(strength), played):
        assert len({player for pair in drawn for player in pair}) == 2 * len(drawn) or schedule is round_robin
        played += [
            Match(a, b, (strength[a] > strength[b]) + 0.5 * (strength[a] == strength[b])) for a, b in drawn
        ]
    return played


def points(played: list[Match], player: int) -> float:
    won = [match.score for match in played if match.first == player]
    return sum(won) + sum(1 - match.score for match in played if match.second == player)


@pytest.mark.parametrize("players", range(1, 7))
def test_in_a_round_robin_everybody_meets_everybody_once(players: int) -> None:
    met = [(match.first, match.second) for match in played_by_strength(round_robin, tuple(range(players)))]
    assert met == list(combinations(range(players), 2))


@pytest.mark.parametrize("players", range(1, 17))
def test_a_swiss_tournament_is_short_and_repeats_no_match(players: int) -> None:
    played = played_by_strength(swiss, tuple((7 * i) % players for i in range(players)))
    assert len({frozenset((match.first, match.second)) for match in played}) == len(played)
    assert len(played) <= players / 2 * math.ceil(math.log2(players)) if players > 1 else not played
    for player in range(players):
        count = sum(player in (match.first, match.second) for match in played)
        rounds = (players - 1).bit_length()
        assert rounds - 1 - players % 2 <= count <= rounds


def test_the_best_player_wins_every_swiss_tournament_of_up_to_six() -> None:
    """Whatever the order of the players: the best one has won all its matches, the worst one none."""
    for players in (2, 3, 4, 5, 6):
        for strength in permutations(range(players)):
            played = played_by_strength(swiss, strength)
            best, worst = strength.index(players - 1), strength.index(0)
            count = [sum(player in (m.first, m.second) for m in played) for player in (best, worst)]
            assert points(played, best) == count[0] > 0
            assert points(played, worst) == 0 < count[1]

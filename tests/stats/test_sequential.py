"""Sequential inference against enumerations, planted means and the number of users that theory gives."""

import itertools
import math
from itertools import product

import numpy as np
import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.stats.sequential import Arm, difference, log_capital, log_evidence, log_evidence_of_split, users_needed


def sequences(distribution, n):
    """(probability, outcomes) of all sequences of n independent outcomes."""
    for outcomes in itertools.product(distribution, repeat=n):
        yield math.prod(distribution[y] for y in outcomes), outcomes


HALVES = {0.0: 0.3, 0.5: 0.4, 1.0: 0.3}
SKEWED = {0.0: 0.1, 0.25: 0.6, 1.0: 0.3}


@pytest.mark.parametrize("distribution", [HALVES, SKEWED])
def test_capital_is_a_fair_game_at_the_mean_and_loses_below_it(distribution):
    mean = sum(y * p for y, p in distribution.items())
    bounds = np.array([mean, mean + 0.1])
    expected = sum(p * np.exp(log_capital(Arm.of(ys), bounds)) for p, ys in sequences(distribution, 5))
    assert expected[0] == pytest.approx(1, abs=1e-12)
    assert expected[1] < 1


@for_each(
    [(*arms, beyond) for arms, beyond in product([(HALVES, HALVES), (HALVES, SKEWED), (SKEWED, HALVES)], [0, 0.2])]
)
def test_evidence_against_the_truth_is_at_most_one_on_average(a, b, beyond):
    gap = sum(y * p for y, p in b.items()) - sum(y * p for y, p in a.items())
    expected = sum(
        p * q * math.exp(log_evidence(Arm.of(ys), Arm.of(zs), gap + beyond))
        for (p, ys), (q, zs) in itertools.product(sequences(a, 3), sequences(b, 3))
    )
    assert expected <= 1


def test_split_evidence_is_one_on_average():
    n, share = 30, 0.1
    expected = sum(
        math.comb(n, k) * share**k * (1 - share) ** (n - k) * math.exp(log_evidence_of_split(n - k, k, share))
        for k in range(n + 1)
    )
    assert expected == pytest.approx(1)
    assert log_evidence_of_split(900, 100, 0.1) < 0
    assert log_evidence_of_split(900, 50, 0.1) > math.log(1000)


def test_evidence_falls_with_the_margin_and_mirrors():
    generator = np.random.default_rng(0)
    a, b = Arm.of(generator.random(80).round(1)), Arm.of(generator.random(60).round(1) ** 0.7)
    evidence = [log_evidence(a, b, margin) for margin in np.linspace(-1, 1, 21)]
    assert np.all(np.diff(evidence) <= 1e-9)
    forth, back = difference(a, b), difference(b, a)
    assert (forth.value, forth.low, forth.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert forth.low < forth.value < forth.high


def test_bounds_on_the_minimum_are_tight():
    a, b = Arm.of([0] * 30 + [1] * 70), Arm.of([0] * 20 + [1] * 80)
    m = np.linspace(0, 1, 20001)
    exact = (log_capital(a.mirrored, 1 - m) + log_capital(b, m)).min()
    assert exact - 0.005 < log_evidence(a, b) <= exact


def test_sure_outcomes_and_no_outcomes():
    nothing = difference(Arm.of([]), Arm.of([1]))
    assert (nothing.value, nothing.low, nothing.high) == (None, -1, 1)
    sure = difference(Arm.of([0] * 200), Arm.of([1] * 200))
    assert (sure.value, sure.high) == (1, 1)
    assert 0.9 < sure.low < 1
    assert log_evidence(Arm.of([]), Arm.of([])) == 0
    with pytest.raises(TutelageError, match=r"1\.5"):
        Arm.of([0.5, 1.5])


def looks(generator, mean_a, mean_b, share, users, every):
    """Arms after each look of one experiment on `users` users."""
    in_b = generator.random(users) < share
    outcome = generator.random(users) < np.where(in_b, mean_b, mean_a)
    for n in every:
        yield n, Arm.of(outcome[:n][~in_b[:n]]), Arm.of(outcome[:n][in_b[:n]])


@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_an_equal_or_worse_model_is_hardly_ever_found_better_at_any_look(rounds):
    generator, level, every = np.random.default_rng(1), 0.9, np.unique(np.geomspace(5, 2000, 25).astype(int))
    found = dict.fromkeys((0.0, -0.05), 0)
    for gap in found:
        for _ in range(rounds):
            found[gap] += any(
                log_evidence(a, b) >= math.log(1 / (1 - level))
                for _, a, b in looks(generator, 0.5, 0.5 + gap, 0.3, 2000, every)
            )
    assert found[-0.05] <= found[0.0] <= (1 - level) * rounds


@pytest.mark.parametrize("rounds", [25, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize(("mean_a", "mean_b", "share"), [(0.5, 0.65, 0.5), (0.2, 0.35, 0.2)])
def test_a_better_model_is_found_with_the_users_that_theory_says(rounds, mean_a, mean_b, share):
    needed = users_needed(mean_a, mean_b, share)
    generator, every = np.random.default_rng(2), np.unique(np.geomspace(needed / 10, needed * 6, 50).astype(int))
    stops = [
        next(
            n
            for n, a, b in looks(generator, mean_a, mean_b, share, every[-1], every)
            if log_evidence(a, b) > math.log(20)
        )
        for _ in range(rounds)
    ]
    error = np.std(stops) / np.sqrt(rounds) / needed
    assert abs(np.mean(stops) / needed - 1) <= max(0.2, 3 * error)
    assert users_needed(mean_b, mean_a, share) is None


def test_the_interval_covers_the_difference_at_all_looks_together():
    generator, missed = np.random.default_rng(3), 0
    for _ in range(12):
        intervals = [difference(a, b, 0.8) for _, a, b in looks(generator, 0.6, 0.7, 0.4, 400, (50, 400))]
        missed += any(not each.low <= 0.1 <= each.high for each in intervals)
    assert missed <= 3

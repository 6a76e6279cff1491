"""Paired comparisons against planted strengths, a general optimiser, and closed forms. Win rates: counts by hand,
symmetry, and intervals that know that the prompt is the unit."""

from itertools import product

import numpy as np
import pytest
from offenders import for_each
from scipy.optimize import minimize

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import cluster_weights
from tutelage.stats.paired import components, davidson, length_controlled_win_rate, scored_win_rate, win_rate


def play(strength, nu, games, seed):
    """Comparisons of random pairs under Davidson's model."""
    generator = np.random.default_rng(seed)
    players = len(strength)
    first = generator.integers(players, size=games)
    second = (first + generator.integers(1, players, size=games)) % players
    half = np.exp((strength[first] - strength[second]) / 2)
    z = half + 1 / half + nu
    u = generator.random(games)
    return first, second, np.where(u < half / z, 1.0, np.where(u < (half + nu) / z, 0.5, 0.0))


def ties_as_half_wins(first, second, outcome):
    tied = outcome == 0.5
    return (
        np.concatenate([first, first[tied]]),
        np.concatenate([second, second[tied]]),
        np.concatenate([np.where(tied, 1.0, outcome), np.zeros(tied.sum())]),
        np.concatenate([np.where(tied, 0.5, 1.0), np.full(tied.sum(), 0.5)]),
    )


def without_ties(first, second, outcome):
    """The comparisons that are no ties."""
    kept = outcome != 0.5
    return first[kept], second[kept], outcome[kept]


PLANTED = np.linspace(-1, 1, 6)


def slope(found):
    return np.polyfit(PLANTED, found.strength, 1)[0]


@for_each([0.35, 0.9, 2.0])
def test_davidson_recovers_the_planted_strengths_and_nu(nu):
    found = davidson(*play(PLANTED, nu, 20_000, seed=0), 6)
    np.testing.assert_allclose(found.strength, PLANTED, atol=0.09)
    assert found.nu == pytest.approx(nu, rel=0.05)
    assert found.nu_low < nu < found.nu_high


def test_ties_as_half_wins_shrink_the_strengths_and_dropping_them_does_not():
    """Trap 16: about 30 % of the scale is lost at 25-30 % ties."""
    games = play(PLANTED, 0.9, 20_000, seed=1)
    assert 0.25 < (games[2] == 0.5).mean() < 0.3
    first, second, outcome, weight = ties_as_half_wins(*games)
    assert slope(davidson(*games, 6)) == pytest.approx(1.0, abs=0.04)
    assert slope(davidson(*without_ties(*games), 6)) == pytest.approx(1.0, abs=0.04)
    assert 0.65 < slope(davidson(first, second, outcome, 6, weight=weight)) < 0.75


@for_each(product([False, True], [0.01, 1.0]))
def test_the_maximum_is_that_of_a_general_optimiser(weighted, ridge):
    first, second, outcome = play(PLANTED, 0.7, 300, seed=3)
    weight = np.random.default_rng(0).uniform(0, 2, size=300) if weighted else np.ones(300)

    def tie_loss(parameters):
        s, nu = parameters[:6], np.exp(parameters[6])
        pi = np.exp(s)
        between = nu * np.sqrt(pi[first] * pi[second])
        total = pi[first] + pi[second] + between
        p = np.where(outcome == 1, pi[first], np.where(outcome == 0, pi[second], between)) / total
        return -(weight * np.log(p)).sum() + ridge / 2 * (s**2).sum() + 0.005 * parameters[6] ** 2

    with_ties = minimize(tie_loss, np.zeros(7), method="BFGS", options={"gtol": 1e-6}).x
    found = davidson(first, second, outcome, 6, weight=weight, ridge=ridge)
    np.testing.assert_allclose(np.append(found.strength, np.log(found.nu)), with_ties, atol=1e-4)


def test_two_players_have_the_closed_form():
    """30 wins to 10: s_0 - s_1 = log 3, without ties with variance 1/30 + 1/10; with 20 ties ν = 20/√300."""
    outcome = np.repeat([1.0, 0.0, 0.5], [30, 10, 20])
    first, second = np.zeros(60, dtype=int), np.ones(60, dtype=int)
    gap, low, high = davidson(*without_ties(first, second, outcome), 2, ridge=1e-9).difference(0, 1)
    assert gap == pytest.approx(np.log(3), abs=3e-3)
    assert high - low == pytest.approx(2 * 1.959964 * np.sqrt(1 / 30 + 1 / 10), rel=2e-3)
    found = davidson(first, second, outcome, 2, ridge=1e-9)
    assert found.difference(0, 1)[0] == pytest.approx(np.log(3), abs=1e-4)
    assert found.nu == pytest.approx(20 / np.sqrt(300), rel=1e-3)


@pytest.mark.parametrize("ties", [True, False])
def test_intervals_cover_the_planted_strengths_in_95_percent(ties):
    covered = []
    for seed in range(150):
        games = play(PLANTED, 0.7, 300, seed)
        found = davidson(*(games if ties else without_ties(*games)), 6)
        covered.append((found.low < PLANTED) & (found.high > PLANTED))
    assert 0.93 < np.mean(covered) < 0.97


def test_the_information_interval_is_that_of_the_bootstrap():
    first, second, outcome = play(PLANTED, 0.7, 1000, seed=4)
    found = davidson(first, second, outcome, 6)
    refits = [
        davidson(first, second, outcome, 6, weight=weight).strength
        for weight in cluster_weights(np.arange(1000), draws=200, seed=0)
    ]
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), np.std(refits, axis=0), rtol=0.2)


def test_swapping_the_sides_changes_nothing():
    first, second, outcome = play(PLANTED, 0.7, 400, seed=5)
    there, back = davidson(first, second, outcome, 6), davidson(second, first, 1 - outcome, 6)
    np.testing.assert_allclose(there.strength, back.strength, atol=1e-9)
    assert there.nu == pytest.approx(back.nu)


def test_an_unbeaten_player_stays_finite_and_ahead():
    first, second = np.array([0, 0, 0, 1, 2]), np.array([1, 2, 1, 2, 1])
    found = davidson(first, second, np.ones(5), 3)
    assert np.all(np.isfinite(found.strength))
    assert found.strength.argmax() == 0
    assert found.strength.sum() == pytest.approx(0.0, abs=1e-8)


def test_unconnected_players_are_told_apart_and_not_compared():
    first, second = np.array([0, 3, 3]), np.array([1, 4, 4])
    found = davidson(first, second, np.array([1.0, 0.0, 0.5]), 6)
    assert found.component.tolist() == [0, 0, 1, 2, 2, 3]
    assert np.isnan(found.low[[2, 5]]).all()
    assert np.isfinite(found.low[[0, 1, 3, 4]]).all()
    with pytest.raises(TutelageError, match="not compared"):
        found.difference(0, 3)
    assert found.difference(3, 4)[0] < 0


@for_each(range(5))
def test_components_are_those_of_a_graph_search(seed):
    generator = np.random.default_rng(seed)
    first, second = generator.integers(30, size=(2, 18))
    seen = {}
    for start in range(30):
        if start not in seen:
            label, queue = len(set(seen.values())), [start]
            while queue:
                node = queue.pop()
                if node not in seen:
                    seen[node] = label
                    queue += [int(b) for a, b in zip(first, second, strict=True) if a == node]
                    queue += [int(a) for a, b in zip(first, second, strict=True) if b == node]
    assert components(first, second, 30).tolist() == [seen[node] for node in range(30)]


def test_a_single_comparison_chain_is_connected():
    found = davidson(np.arange(9), np.arange(1, 10), np.ones(9), 10)
    assert (found.component == 0).all()
    assert np.all(np.diff(found.strength) < 0)


def test_nonsense_is_refused():
    zero, one = np.array([0]), np.array([1])
    with pytest.raises(TutelageError, match="compared with itself"):
        davidson(zero, zero, np.ones(1), 2)
    with pytest.raises(TutelageError, match="outside 0 to 0"):
        davidson(zero, one, np.ones(1), 1)
    with pytest.raises(TutelageError, match="not 1"):
        davidson(zero, one, np.array([2.0]), 2)


def test_counts_by_hand():
    found = scored_win_rate([1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 5.0, 1.0], ["a", "a", "b", "c"])
    assert (found["wins"], found["ties"], found["losses"]) == (2, 1, 1)
    assert found["win_rate"] == 2.5 / 4
    assert (found["n"], found["prompts"]) == (4, 3)
    assert found["win_rate_ci"][0] <= 2.5 / 4 <= found["win_rate_ci"][1]


def test_changing_sides_mirrors_everything():
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, 4, (2, 60)).astype(float)
    prompts = [f"p{i // 3}" for i in range(60)]
    one, other = scored_win_rate(a, b, prompts), scored_win_rate(b, a, prompts)
    assert one["win_rate"] == pytest.approx(1 - other["win_rate"])
    assert (one["wins"], one["losses"]) == (other["losses"], other["wins"])
    low, high = one["win_rate_ci"]
    assert other["win_rate_ci"] == pytest.approx([1 - high, 1 - low], abs=0.02)


def test_only_the_order_of_the_scores_counts():
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=(2, 40))
    prompts = [str(i) for i in range(40)]
    assert scored_win_rate(a, b, prompts) == scored_win_rate(np.exp(3 * a), np.exp(3 * b), prompts)


def test_more_answers_to_the_same_prompts_do_not_make_the_interval_narrower():
    """Ten copies of each answer are no new evidence; ten times as many prompts are."""
    generator = np.random.default_rng(2)
    a, b = generator.normal(size=(2, 50))
    prompts = [str(i) for i in range(50)]

    def width(found):
        return found["win_rate_ci"][1] - found["win_rate_ci"][0]

    plain = width(scored_win_rate(a, b, prompts))
    copied = width(scored_win_rate(np.repeat(a, 10), np.repeat(b, 10), np.repeat(prompts, 10).tolist()))
    assert copied == pytest.approx(plain, rel=0.1)
    a, b = generator.normal(size=(2, 500))
    assert width(scored_win_rate(a, b, [str(i) for i in range(500)])) < 0.5 * plain


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """300 studies of 80 prompts, true win rate .7: at least 92 % of the intervals hold it."""
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(300):
        outcome = (generator.random(80) < 0.7).astype(float)
        low, high = scored_win_rate(outcome, np.full(80, 0.5), [str(i) for i in range(80)])["win_rate_ci"]
        held += low <= 0.7 <= high
    assert held >= 276


def contest(theta, phi, longer_by, pairs, seed):
    generator = np.random.default_rng(seed)
    extra = generator.normal(longer_by, 100.0, size=pairs)
    p = 1 / (1 + np.exp(-theta - phi * np.tanh(extra / extra.std())))
    return (generator.random(pairs) < p).astype(float), extra, np.arange(pairs)


def test_a_model_that_is_merely_longer_wins_the_plain_rate_and_not_the_controlled_one():
    outcome, extra, prompt = contest(theta=0.0, phi=1.5, longer_by=120, pairs=20_000, seed=0)
    assert win_rate(outcome, prompt, draws=100).value > 0.65
    found = length_controlled_win_rate(outcome, extra, prompt)
    assert found.value == pytest.approx(0.5, abs=0.03)
    assert found.low < 0.5 < found.high
    assert found.length_effect == pytest.approx(1.5, abs=0.1)


def test_a_better_model_stays_better():
    outcome, extra, prompt = contest(theta=1.0, phi=-0.5, longer_by=-50, pairs=20_000, seed=1)
    assert length_controlled_win_rate(outcome, extra, prompt, draws=50).value == pytest.approx(0.731, abs=0.015)


def test_the_fit_is_that_of_a_general_optimiser_with_ties_as_half():
    outcome, extra, prompt = contest(theta=0.4, phi=0.8, longer_by=30, pairs=200, seed=2)
    outcome[:30] = 0.5
    feature = np.tanh(extra / extra.std())

    def loss(c):
        z = c[0] + c[1] * feature
        return -(outcome * z - np.logaddexp(0, z)).sum() + 0.005 * (c**2).sum()

    theta, phi = minimize(loss, np.zeros(2), options={"gtol": 1e-8}).x
    found = length_controlled_win_rate(outcome, extra, prompt, draws=10)
    assert found.value == pytest.approx(1 / (1 + np.exp(-theta)), abs=1e-6)
    assert found.length_effect == pytest.approx(phi, abs=1e-5)


def test_the_unit_of_length_does_not_matter():
    outcome, extra, prompt = contest(theta=0.3, phi=1.0, longer_by=30, pairs=300, seed=3)
    letters = length_controlled_win_rate(outcome, extra, prompt, draws=20)
    pages = length_controlled_win_rate(outcome, extra / 3000, prompt, draws=20)
    assert letters.value == pytest.approx(pages.value)
    assert letters.length_effect == pytest.approx(pages.length_effect)


def test_equal_lengths_leave_the_plain_win_rate():
    outcome = np.array([1.0] * 30 + [0.0] * 10)
    found = length_controlled_win_rate(outcome, np.zeros(40), np.arange(40), draws=20)
    assert found.value == pytest.approx(0.75, abs=0.001)
    assert found.length_effect == 0.0


def test_a_clean_sweep_stays_finite():
    found = length_controlled_win_rate(np.ones(20), np.linspace(-1, 1, 20), np.arange(20), draws=20)
    assert 0.95 < found.value < 1.0


def test_nothing_to_control_is_refused():
    with pytest.raises(TutelageError, match="at least one"):
        length_controlled_win_rate(np.array([]), np.array([]), np.array([], dtype=int))

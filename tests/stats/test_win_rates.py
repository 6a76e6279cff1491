"""Win rates: counts by hand, symmetry, and intervals that know that the prompt is the unit."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tutelage.base.errors import TutelageError
from tutelage.stats.win_rates import length_controlled_win_rate, scored_win_rate, win_rate


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

"""Win rates: counts by hand, symmetry, and intervals that know that the prompt is the unit."""

import numpy as np
import pytest

from tutelage.stats.win_rate import scored_win_rate


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

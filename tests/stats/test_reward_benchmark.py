"""The scores of a benchmark of rewards, against the reference formula on every small case."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.stats.reward_benchmark import ScoredRow, benchmark_score, best_of_score, ties_score


def reference(rows: list[ScoredRow]) -> float:
    """The ties score as `process_single_model` of allenai/reward-bench computes it, one prompt after the other."""
    ref, tied = {}, {}
    for row in rows:
        assert row.tie is not None
        right, wrong = row.scores[: row.correct], row.scores[row.correct :]
        gap = min(right) - max(wrong)
        {"ref": ref, "tied": tied}[row.tie[0]][row.tie[1]] = (gap > 0, max(right) - min(right), gap)
    both = set(ref) & set(tied)
    terms = []
    for prompt in both:
        spread, gap, smaller = tied[prompt][1], tied[prompt][2], min(ref[prompt][2], tied[prompt][2])
        if spread == 0:
            margin = 0.0 if smaller == 0 else math.copysign(1.0, smaller)
        else:
            margin = math.tanh(smaller / spread - 1)
        terms.append(0.2 * (gap > spread) + 0.2 * (smaller > spread) + 0.01 * margin)
    accuracy = [sum(each[0] for each in of.values()) / len(of) for of in (ref, tied)]
    return 0.3 * sum(accuracy) + sum(terms) / len(both)


def test_the_ties_score_is_that_of_the_reference_on_all_small_cases() -> None:
    """Every score 0, 1 or 2 of a reference with one wrong and a tied prompt with two right and one wrong completion."""
    offenders = []
    for values in itertools.product((0.0, 1.0, 2.0), repeat=5):
        rows = [ScoredRow("Ties", values[:2], 1, ("ref", 7)), ScoredRow("Ties", values[2:], 2, ("tied", 7))]
        if not math.isclose(ties_score(rows), reference(rows), abs_tol=1e-12):
            offenders.append(values)
    assert offenders == []


@given(st.lists(st.lists(st.integers(-3, 3), min_size=7, max_size=7), min_size=1, max_size=5), st.randoms())
def test_the_ties_score_of_several_prompts_in_any_order(values: list[list[int]], dice: object) -> None:
    rows = []
    for prompt, own in enumerate(values):
        scores = tuple(map(float, own))
        rows.append(ScoredRow("Ties", scores[:3], 1, ("ref", prompt)))
        rows.append(ScoredRow("Ties", scores[3:], 2, ("tied", prompt)))
    rows.append(ScoredRow("Ties", (1.0, 0.0), 1, ("ref", 99)))  # without a tied prompt: only its accuracy counts
    assert ties_score(rows) == pytest.approx(reference(rows))
    assert ties_score(rows[::-1]) == pytest.approx(ties_score(rows))


def test_a_perfect_reward_and_a_constant_one() -> None:
    perfect = [ScoredRow("Ties", (1.0, 0.0), 1, ("ref", 0)), ScoredRow("Ties", (1.0, 1.0, 0.0), 2, ("tied", 0))]
    constant = [ScoredRow("Ties", (1.0, 1.0), 1, ("ref", 0)), ScoredRow("Ties", (1.0,) * 3, 2, ("tied", 0))]
    assert ties_score(perfect) == pytest.approx(1.01)
    assert ties_score(constant) == 0.0


@for_each([((3.0, 1.0, 2.0, 0.0), 1.0), ((1.0, 1.0, 0.0, 0.0), 0.5), ((1.0,) * 4, 0.25), ((0.0, 1.0, 1.0, 0.0), 0.0)])
def test_the_best_of_four_shares_a_tie(scores: tuple[float, ...], credit: float) -> None:
    assert best_of_score(ScoredRow("Math", scores, 1)) == credit


def test_a_reward_at_random_is_right_in_a_quarter() -> None:
    dice = np.random.default_rng(0)
    rows = [ScoredRow("Math", tuple(dice.normal(size=4)), 1) for _ in range(2000)]
    (subset,) = benchmark_score(rows).subsets
    low, high = subset.interval
    assert low is not None
    assert high is not None
    assert low < 0.25 < high
    assert high - low < 0.05


def test_subsets_count_alike_whatever_their_size() -> None:
    rows = [ScoredRow("Math", (1.0, 0.0), 1)] * 3 + [ScoredRow("Focus", (0.0, 1.0), 1)]
    score = benchmark_score(rows)
    assert [(one.subset, one.score, one.n) for one in score.subsets] == [("Math", 1.0, 3), ("Focus", 0.0, 1)]
    assert score.overall == 0.5


def test_nothing_to_score() -> None:
    with pytest.raises(TutelageError, match="at least one row"):
        benchmark_score([])
    with pytest.raises(TutelageError, match="ref:N"):
        benchmark_score([ScoredRow("Ties", (1.0, 0.0), 1, ("ref", 0))])

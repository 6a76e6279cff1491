"""A weighted sum is a sum of weighted scores."""

import pytest

from tutelage.errors import TutelageError
from tutelage.rewards.weighted import WeightedReward

from .made import completion

TWO = [completion("a"), completion("bbb")]


def test_scores_are_added_up_by_weight() -> None:
    reward = WeightedReward(
        (
            (2.0, lambda completions: [float(len(one.answer)) for one in completions]),
            (-0.5, lambda completions: [one.answer == "a" for one in completions]),
        )
    )
    assert reward(TWO).tolist() == [1.5, 6.0]


def test_a_part_is_checked_before_it_disappears_in_the_sum() -> None:
    reward = WeightedReward(((1.0, lambda completions: [0.0, 1.0]), (1.0, lambda completions: [1.0])))
    with pytest.raises(TutelageError, match="returned 1 scores for 2 answers"):
        reward(TWO)

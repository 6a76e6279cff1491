"""A reward model against single votes, by hand."""

import pytest

from tutelage.stats.vote_quality import against_votes, by_strength


def test_votes_for_the_higher_score_are_counted() -> None:
    """Right on 3 of 4 votes, wrong on 2 of 3, and a draw of scores that splits 2."""
    found = against_votes([1.0, -0.5, 0.0], [3, 2, 2], [1, 1, 0], ["p", "q", "q"])
    assert found["n"] == 9
    assert found["accuracy"] == pytest.approx((3 + 1 + 1) / 9)
    low, high = found["interval"]
    assert low <= found["accuracy"] <= high


def test_strengths_are_rounded_and_ties_left_out() -> None:
    found = by_strength(
        [1.0, -1.0, 2.0, 0.0, 5.0, 1.0],
        [0.9, 0.8, 0.9, 0.7, 0.5, 0.2],
        [0.0, 1.49, 1.5, 2.4, 3.0, 2.5],
        list("abcdef"),
    )
    assert [(each["strength"], each["n"], each["accuracy"]) for each in found] == [
        ("slightly", 2, 0.5),
        ("better", 2, 0.75),
        ("much better", 1, 0.0),
    ]


def test_no_votes_say_nothing() -> None:
    assert against_votes([1.0], [0], [0], ["p"]) == {"n": 0, "accuracy": None, "interval": [None, None]}
    assert by_strength([], [], [], []) == []

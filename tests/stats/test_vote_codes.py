import numpy as np
import pytest

from tutelage.base.errors import TutelageError
from tutelage.stats.vote_codes import Votes


def test_a_later_vote_replaces_the_earlier_one_and_is_counted():
    votes = Votes.of(["x", "y", "x", "x"], ["r", "r", "s", "r"], ["a", "a", "a", "b"])
    assert votes.repeated == 1
    told = {
        (votes.items[i], votes.raters[r]): votes.choices[c]
        for i, r, c in zip(votes.item, votes.rater, votes.choice, strict=True)
    }
    assert told == {("y", "r"): "a", ("x", "s"): "a", ("x", "r"): "b"}


def test_numbers_are_ordered_as_numbers_and_words_as_words():
    assert Votes.of("uvw", "rrr", ["10", "-2", "9"]).choices == ("-2", "9", "10")
    assert Votes.of("uv", "rr", ["tie", "a"]).choices == ("a", "tie")
    assert Votes.of("uvw", "rrr", ["9", "NaN", "10"]).choices == ("10", "9", "NaN")  # NaN has no place among numbers


def test_given_choices_fix_the_codes_even_if_some_never_occur():
    votes = Votes.of(["x"], ["r"], ["b"], choices=("a", "b"))
    assert votes.counts().tolist() == [[0, 1]]


def test_a_choice_that_was_not_offered_is_named():
    with pytest.raises(TutelageError, match=r"'maybe' .*a, b"):
        Votes.of(["x"], ["r"], ["maybe"], choices=("a", "b"))


def test_unequal_columns_are_refused():
    with pytest.raises(TutelageError, match=r"2 items, 1 rater, 1 choice\."):
        Votes.of(["x", "y"], ["r"], ["a"])


def test_a_selection_keeps_its_codes():
    votes = Votes.of(["x", "y", "y"], ["r", "r", "s"], ["a", "b", "a"])
    kept = votes.keep(votes.rater == 1)
    assert kept.items == votes.items
    assert kept.counts().tolist() == [[0, 0], [1, 0]]
    assert kept.per_rater().tolist() == [0, 1]


def test_no_votes_at_all():
    votes = Votes.of([], [], [], choices=("a", "b"))
    assert len(votes) == 0
    assert votes.counts().shape == (0, 2)
    assert np.array_equal(votes.per_rater(), [])

"""The order of answers."""

from tutelage.data.ranking import ranking


def test_best_first_and_cut_answers_below_all_that_ended():
    assert ranking([1.0, 3.0, 2.0, 9.0], [True, True, True, False]) == [1, 2, 0, 3]
    assert ranking([1.0, 2.0], [False, False]) == [1, 0]


def test_equal_answers_stay_in_their_order():
    assert ranking([1.0, 1.0, 1.0], [True, True, True]) == [0, 1, 2]

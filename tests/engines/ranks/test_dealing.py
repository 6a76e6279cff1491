"""Rows dealt to ranks."""

from itertools import product

import pytest

from tutelage.engines.ranks.dealing import SLACK, deal


def loads(costs, ranks, size):
    return [sum(cost for cost, rank in zip(costs, ranks, strict=True) if rank == own) for own in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_each_row_has_one_rank(size):
    costs = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    assert set(deal(costs, range(8), size)) <= set(range(size))
    assert sum(loads(costs, deal(costs, range(8), size), size)) == sum(costs)


def test_the_largest_load_is_within_four_thirds_of_the_best():
    """Graham's bound, against the best of all ways to deal six rows to two ranks."""
    for costs in product([1.0, 2.0, 5.0], repeat=6):
        best = min(max(loads(costs, ranks, 2)) for ranks in product([0, 1], repeat=6))
        assert max(loads(costs, deal(costs, range(6), 2), 2)) <= 4 / 3 * best


def test_rows_of_a_prompt_stay_together_where_loads_stay_even():
    groups = ["a"] * 4 + ["b"] * 4 + ["c"] * 4 + ["d"] * 4
    ranks = deal([1.0] * 16, groups, 2)
    assert all(
        len({rank for rank, group in zip(ranks, groups, strict=True) if group == one}) == 1 for one in "abcd"
    )


def test_a_prompt_with_all_the_rows_is_shared():
    ranks = deal([1.0] * 8, ["a"] * 8, 2)
    assert sorted(ranks) == [0] * 4 + [1] * 4


def test_uneven_groups_are_split_until_loads_are_even():
    costs, groups = [1.0] * 9, ["a"] * 6 + ["b"] * 3
    assert max(loads(costs, deal(costs, groups, 3), 3)) <= SLACK * 3


def test_no_rows_and_more_ranks_than_rows():
    assert deal([], [], 3) == []
    assert sorted(deal([1.0, 1.0], ["a", "b"], 5)) == [0, 1]

"""Sums over ranks."""

from itertools import product

import pytest
import torch

from tutelage.engines.ranks.processes import join
from tutelage.engines.ranks.ranks import LARGE, SLACK, deal


def test_tensors_are_summed_whatever_their_layout_on_each_rank(worlds):
    """A tensor that is contiguous on one rank and transposed on another, among others of every size."""
    one, other = worlds(2).run(sums_of_uneven_layouts)
    shape = (2, LARGE // 2)
    numbers = torch.arange(LARGE, dtype=torch.float32).view(shape)
    for large, small in (one, other):
        assert torch.equal(large, numbers + 2 * numbers)
        assert torch.equal(small, torch.full((3, 2), 3.0))


def sums_of_uneven_layouts():
    """Two tensors times the number of this rank, from 1, both transposed on the second; after a sum over the ranks."""
    ranks = join()
    numbers = torch.arange(LARGE, dtype=torch.float32).view(2, LARGE // 2) * (ranks.rank + 1)
    small = torch.full((3, 2), ranks.rank + 1.0)
    if ranks.rank == 1:
        numbers, small = numbers.T.contiguous().T, small.T.contiguous().T
    ranks.sum_([small, numbers])
    return numbers.clone(), small.clone()


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
    assert all(len({rank for rank, group in zip(ranks, groups, strict=True) if group == one}) == 1 for one in "abcd")


def test_a_prompt_with_all_the_rows_is_shared():
    ranks = deal([1.0] * 8, ["a"] * 8, 2)
    assert sorted(ranks) == [0] * 4 + [1] * 4


def test_uneven_groups_are_split_until_loads_are_even():
    costs, groups = [1.0] * 9, ["a"] * 6 + ["b"] * 3
    assert max(loads(costs, deal(costs, groups, 3), 3)) <= SLACK * 3


def test_no_rows_and_more_ranks_than_rows():
    assert deal([], [], 3) == []
    assert sorted(deal([1.0, 1.0], ["a", "b"], 5)) == [0, 1]

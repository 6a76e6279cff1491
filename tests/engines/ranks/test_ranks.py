"""Sums over ranks."""

import torch

from tutelage.engines.ranks.processes import join
from tutelage.engines.ranks.ranks import LARGE


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

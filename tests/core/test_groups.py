"""Laws of the estimators that compare the responses to one prompt; TRL's numbers are in tests/peers."""

import pytest
import torch

from tutelage.core.groups import Greedy, Group
from tutelage.core.pieces import Context
from tutelage.core.reduce import at_last_token


def test_groups_of_two_are_pairwise_differences_and_plain_groups_a_share_of_leave_one_out() -> None:
    score, mask = torch.randn(10, 1), torch.ones(10, 1, dtype=torch.bool)
    psi, _ = Group(leave_one_out=True)(score, mask, None, 2)
    first, second = score.reshape(5, 2).unbind(1)
    assert torch.allclose(psi.reshape(5, 2), torch.stack((first - second, second - first), 1))
    plain, _ = Group()(score, mask, None, 5)
    left_out, _ = Group(leave_one_out=True)(score, mask, None, 5)
    assert torch.allclose(plain, left_out * 4 / 5)


def test_equal_scores_give_zero_and_a_group_of_one_is_refused() -> None:
    mask = torch.ones(3, 2, dtype=torch.bool)
    same = at_last_token(torch.full((3,), 0.1), mask)
    for piece in (Group(), Group(standardise=True), Group(leave_one_out=True)):
        assert piece(same, mask, None, 3)[0].abs().max() < 1e-12
    with pytest.raises(ValueError, match=r"3 rows .*groups of 1"):
        Group()(same, mask, None, 1)
    with pytest.raises(ValueError, match=r"3 rows .*groups of 2"):
        Group()(same, mask, None, 2)


def test_the_greedy_response_is_what_is_subtracted() -> None:
    mask = torch.ones(3, 2, dtype=torch.bool)
    same = at_last_token(torch.full((3,), 0.1), mask)
    with pytest.raises(ValueError, match="greedy responses"):
        Greedy()(same, mask, None, 1)
    found, _ = Greedy()(same, mask, None, 1, Context(greedy=torch.tensor([0.1, 0.0, 1.0])))
    assert torch.allclose(found[:, 0], torch.tensor([0.0, 0.1, -0.9]), atol=6e-7)

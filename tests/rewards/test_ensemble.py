"""Combinations of rewards by hand, and laws that hold for all of them."""

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tutelage.base.errors import TutelageError
from tutelage.rewards.ensemble import Combination, Ensemble, combine

from .made import completion

ALL: tuple[Combination, ...] = get_args(Combination)
NUMBERS = st.floats(-100, 100)


def test_combinations_by_hand() -> None:
    scores = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]], dtype=torch.float64)
    assert combine(scores, "mean").tolist() == [2.0, 1.0]
    assert combine(scores, "worst").tolist() == [1.0, 0.0]
    assert combine(scores, "lower", 0.5).tolist() == pytest.approx([2 - 0.5 * 2 / 3, 1 - 0.5 * 2])
    assert combine(scores, "lcb", 0.5).tolist() == pytest.approx([2 - 0.5 * (2 / 3) ** 0.5, 1 - 0.5 * 2**0.5])
    assert torch.equal(combine(scores, "lower", 0.0), combine(scores, "mean"))
    assert torch.equal(combine(scores, "lcb", 0.0), combine(scores, "mean"))
    alike = scores[:1].expand(4, -1)
    for how in ALL:
        assert torch.equal(combine(alike, how), scores[0]), "judges who agree are one judge"
    with pytest.raises(TutelageError, match="'median'"):
        combine(scores, "median")  # type: ignore[arg-type]


@given(st.lists(NUMBERS, min_size=2, max_size=5), NUMBERS, st.floats(0.1, 10), st.floats(0, 3))
def test_all_but_the_variance_keep_their_meaning_on_another_scale(
    scores: list[float], shift: float, scale: float, weight: float
) -> None:
    """combine(a s + b) = a combine(s) + b for a > 0. A variance is in the square of the unit, so `lower` is not so."""
    column = torch.tensor(scores, dtype=torch.float64)[:, None]
    for how in ("mean", "worst", "lcb"):
        moved = combine(scale * column + shift, how, weight)
        assert float(moved) == pytest.approx(scale * float(combine(column, how, weight)) + shift, abs=1e-6)


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.floats(0, 3))
def test_the_order_of_members_does_not_matter_and_caution_is_never_above_the_mean(
    scores: list[float], weight: float
) -> None:
    column = torch.tensor(scores, dtype=torch.float64)[:, None]
    for how in ALL:
        found = float(combine(column, how, weight))
        assert found == pytest.approx(float(combine(column.flip(0), how, weight)), abs=1e-9)
        assert found <= float(column.mean()) + 1e-9


def test_an_ensemble_asks_its_members() -> None:
    members = (lambda completions: [1.0, 6.0], lambda completions: torch.tensor([3, 2]))
    two = [completion("a"), completion("b")]
    assert Ensemble(members)(two).tolist() == [2.0, 4.0]
    assert Ensemble(members, "worst")(two).tolist() == [1.0, 2.0]
    assert Ensemble(members, "lcb", 2.0)(two).tolist() == [0.0, 0.0]
    assert Ensemble(members, "lower", 2.0)(two).tolist() == [0.0, -4.0]
    assert Ensemble(members)(two).dtype == torch.float32

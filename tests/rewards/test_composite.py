"""A weighted sum is a sum of weighted scores, and what it is made of is known by name."""

from collections.abc import Sequence
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tutelage.base.errors import TutelageError
from tutelage.rewards.composite import CappedReward, Combination, Ensemble, WeightedReward, combine
from tutelage.rewards.function import FunctionReward
from tutelage.rewards.reward import Completion, Scores, columns_read
from tutelage.rewards.rules import ExactMatch, LengthLimit, PatternMatch
from tutelage.rewards.scores import breakdown_of

from .made import completion

TWO = [completion("a"), completion("bbb")]


def partly(completions: Sequence[Completion]) -> Scores:
    """Applies to short completions."""
    return [None if len(one.answer) > 3 else 2.0 for one in completions]


def one(completions: Sequence[Completion]) -> Scores:
    return [1.0] * len(completions)


def test_a_sum_is_over_the_parts_that_apply() -> None:
    answers = [completion("abc"), completion("abcd")]
    assert WeightedReward(((1.0, one), (0.5, partly))).breakdown(answers).total.tolist() == [2.0, 1.0]
    assert WeightedReward(((0.5, partly), (0.5, partly))).breakdown(answers).total.isnan().tolist() == [False, True]
    assert CappedReward(partly, highest=1.0).breakdown(answers).total.isnan().tolist() == [False, True]
    for how in ("mean", "worst", "lower", "lcb"):
        assert Ensemble((one, partly), how).breakdown(answers).total.isnan().tolist() == [False, True]


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
    with pytest.raises(TutelageError, match="returned 1 score for 2 answers"):
        reward(TWO)


def test_every_part_is_known_by_name_before_its_weight() -> None:
    reward = WeightedReward(((2.0, LengthLimit(1, "characters")), (-1.0, PatternMatch("a")), (3.0, PatternMatch("b+"))))
    found = breakdown_of(reward, TWO)
    assert {name: scores.tolist() for name, scores in found.parts.items()} == {
        "length": [0.0, -2.0],
        "regex": [1.0, 0.0],
        "regex_2": [0.0, 1.0],
    }
    assert found.total.tolist() == reward(TWO).tolist() == [-1.0, -1.0]


def test_parts_of_parts_are_known_through_caps_ensembles_and_modules() -> None:
    inner = WeightedReward(((2.0, LengthLimit(1, "characters")), (1.0, PatternMatch("a"))))
    whole = FunctionReward(Ensemble((CappedReward(inner, lowest=-3.0), PatternMatch("b+")), "worst"), "mine:SAFE")
    found = breakdown_of(whole, TWO)
    assert found.total.tolist() == [0.0, -3.0]
    assert {name: scores.tolist() for name, scores in found.parts.items()} == {
        "WeightedReward": [1.0, -3.0],
        "WeightedReward.length": [0.0, -2.0],
        "WeightedReward.regex": [1.0, 0.0],
        "regex": [0.0, 1.0],
    }
    assert breakdown_of(PatternMatch("a"), TWO).parts == {}


def test_a_cap_holds_scores_between_its_bounds() -> None:
    scores = FunctionReward(lambda completions: [-5.0, 0.5, 5.0], "f")
    three = [completion("a")] * 3
    assert CappedReward(scores, -1.0, 2.0)(three).tolist() == [-1.0, 0.5, 2.0]
    assert CappedReward(scores, highest=0.0)(three).tolist() == [-5.0, 0.0, 0.0]
    for bounds in ((1.0, 1.0), (2.0, 1.0), (float("-inf"), float("inf"))):
        with pytest.raises(TutelageError, match="is not a cap"):
            CappedReward(scores, *bounds)


def test_the_columns_that_parts_read_are_those_of_the_whole() -> None:
    parts = (ExactMatch("solution"), LengthLimit(3), CappedReward(ExactMatch("hint"), highest=0.5), ExactMatch("hint"))
    assert columns_read(WeightedReward(tuple((1.0, part) for part in parts))) == ("solution", "hint")
    assert columns_read(Ensemble(parts)) == ("solution", "hint")
    assert columns_read(FunctionReward(Ensemble(parts), "mine:RULES")) == ("solution", "hint")
    assert columns_read(LengthLimit(3)) == ()


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

"""Whatever holds numbers is a score; whatever does not is refused by name."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.rewards.reward import Completion, Scores
from tutelage.rewards.scores import breakdown_of, checked, scores_of

from .made import completion

THREE = [completion("one"), completion("two"), completion("three", "q")]


@pytest.mark.parametrize(
    "scores",
    [
        [0, 1, 2],
        (0.0, 1.0, 2.0),
        range(3),
        np.arange(3),
        np.arange(3, dtype=np.uint8),
        np.arange(3, dtype=np.float16),
        np.array([0, 1, 2], dtype=object),
        [np.float32(0), np.int64(1), np.array(2.0)],
        torch.arange(3),
        torch.arange(3, dtype=torch.bfloat16),
        torch.arange(3, dtype=torch.float64, requires_grad=True),
        [torch.tensor(0.0), torch.tensor(1), Fraction(2)],
        pytest.param(iter([0.0, 1.0, 2.0]), id="iterator"),
    ],
    ids=repr,
)
def test_numbers_of_any_type(scores: object) -> None:
    found = checked(scores, THREE, "reward")
    assert found.tolist() == [0.0, 1.0, 2.0]
    assert (found.dtype, found.requires_grad) == (torch.float32, False)


@for_each(
    [
        [True, False, True],
        np.array(["a", "b", "a"]) == "a",
        [np.True_, np.False_, np.True_],
        torch.tensor([True, False, True]),
    ],
    repr,
)
def test_true_counts_one_and_false_nothing(scores: object) -> None:
    assert checked(scores, THREE, "reward").tolist() == [1.0, 0.0, 1.0]


def test_a_double_is_rounded_once() -> None:
    value = 0.1 + 2**-40
    expected = float(np.float32(value))
    for scores in ([value] * 3, np.full(3, value), torch.full((3,), value, dtype=torch.float64)):
        assert checked(scores, THREE, "reward").tolist() == [expected] * 3


@for_each(
    [
        ([1.0, 2.0], r"The reward f returned 2 scores for 3 answers"),
        (np.ones((3, 1)), r"The reward f returned scores of shape \(3, 1\) for 3 answers"),
        (torch.ones(()), r"returned scores of shape \(\) for 3 answers"),
        ([0.0, 1.0, float("nan")], r"returned nan for answer 3 of 3 \('three', to prompt q\); .* finite number"),
        (np.array([0.0, np.inf, 1.0]), r"returned inf for answer 2 of 3 \('two', to prompt p\)"),
        (torch.tensor([-torch.inf, 0.0, 1.0]), r"returned -inf for answer 1 of 3 \('one', to prompt p\)"),
        ([0.0, 1e300, 0.0], r"returned inf for answer 2 of 3"),
        ([0.0, 10**400, 0.0], r"returned inf for answer 2 of 3"),
        ([0.0, "good", 0.0], r"returned 'good' for answer 2 of 3"),
        ([0.0, [1.0], 0.0], r"returned \[1.0\] for answer 2 of 3"),
        ([0.0, 1j, 0.0], r"returned 1j for answer 2 of 3"),
        (torch.ones(3, dtype=torch.complex64), r"returned a value of type Tensor"),
        (np.array(["a", "b", "c"]), r"returned np.str_\('a'\) for answer 1 of 3"),
        (None, r"returned a value of type NoneType"),
        (1.0, r"returned a value of type float"),
        ("abc", r"returned a value of type str"),
        ({"one": 1.0, "two": 2.0, "three": 3.0}, r"returned a value of type dict"),
    ]
)
def test_what_is_no_score_is_refused_with_the_name_and_the_row(scores: object, told: str) -> None:
    with pytest.raises(TutelageError, match=told):
        checked(scores, THREE, "reward f")


@pytest.mark.parametrize("scores", [[0.5, None, 1.0], np.array([0.5, None, 1.0], dtype=object)], ids=repr)
def test_none_is_no_score_for_those_who_take_that(scores: list[float | None]) -> None:
    total = breakdown_of(lambda completions: scores, THREE).total
    assert total.isnan().tolist() == [False, True, False]
    assert total[[0, 2]].tolist() == [0.5, 1.0]
    with pytest.raises(TutelageError, match="returned None for answer 2 of 3"):
        scores_of(lambda completions: scores, THREE)


def test_a_reward_is_named_by_its_own_name_or_its_type() -> None:
    class Broken:
        def __call__(self, completions: Sequence[Completion]) -> Scores:
            return [0.0]

    def short(completions: Sequence[Completion]) -> Scores:
        return [0.0]

    for reward, name in ((Broken(), "Broken"), (short, "short")):
        with pytest.raises(TutelageError, match=rf"The reward \S*{name} returned 1 score for 3 answers"):
            scores_of(reward, THREE)

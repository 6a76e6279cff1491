"""The critic's loss, the shaping of scores, and what drives coefficients."""

import math

import pytest
import torch
from offenders import for_each

from tutelage.core.kl import Adaptive, Doubling, Fixed
from tutelage.core.pieces import Context
from tutelage.core.shaping import Overlong, ScoreShaping
from tutelage.core.values import explained_variance, value_loss

SCORE = torch.tensor([2.0, -3.0, 0.5, 1.0])
ENDED = torch.tensor([True, True, False, True])
LENGTH = torch.tensor([3, 8, 10, 10])


def shaped(shaping: ScoreShaping) -> list[float]:
    found, _ = shaping(SCORE, ENDED, LENGTH, Context(max_length=10), shaping.init())
    return [float(x) for x in found]


def test_the_value_loss_is_the_worse_of_two_squares() -> None:
    value, old, target = torch.tensor([1.0, 1.0, 0.1]), torch.zeros(3), torch.tensor([2.0, -2.0, 2.0])
    # clipped to .2: errors of 1.8 and 1.0 -> the larger; of 2.2 and 3.0 -> the larger; inside the range both agree
    assert value_loss(value, old, target, 0.2).tolist() == pytest.approx([1.8**2 / 2, 3.0**2 / 2, 1.9**2 / 2])
    assert value_loss(value, old, target, None).tolist() == pytest.approx([0.5, 4.5, 1.9**2 / 2])


def test_a_clipped_value_loses_its_gradient_only_where_it_has_moved_towards_the_target() -> None:
    value = torch.tensor([1.0, 1.0, 0.1], requires_grad=True)
    loss = value_loss(value, torch.zeros(3), torch.tensor([2.0, -2.0, 2.0]), 0.2)
    (slope,) = torch.autograd.grad(loss.sum(), value)
    assert slope.tolist() == pytest.approx([0.0, 3.0, -1.9])


def test_explained_variance() -> None:
    mask = torch.tensor([[True, True, True, False]])
    target = torch.tensor([[1.0, 2.0, 3.0, 99.0]])
    assert float(explained_variance(target, target, mask)) == 1.0
    assert float(explained_variance(torch.full((1, 4), 7.0), target, mask)) == pytest.approx(0.0)
    assert float(explained_variance(-target, target, mask)) == pytest.approx(-3.0)
    assert math.isnan(float(explained_variance(target, torch.ones(1, 4), mask)))


@for_each(
    [
        (ScoreShaping(missing_end=None), [2.0, -3.0, 0.5, 1.0]),
        (ScoreShaping(), [2.0, -3.0, -1.0, 1.0]),
        (ScoreShaping(missing_end=None, missing_end_penalty=2.0), [2.0, -3.0, -1.5, 1.0]),
        (ScoreShaping(clip=1.5, missing_end=-9.0), [1.5, -1.5, -9.0, 1.0]),
        (ScoreShaping(scale=2.0, clip=3.0), [3.0, -3.0, -1.0, 2.0]),
    ]
)
def test_scores_are_shaped_in_the_documented_order(shaping: ScoreShaping, expected: list[float]) -> None:
    assert shaped(shaping) == expected


def first_rollout(ended: list[bool], score: list[float]) -> tuple[list[float], float | None]:
    """The shaped scores of a first rollout, and what "auto" takes for a missing end from then on."""
    shaping = ScoreShaping()
    rows = torch.tensor(score), torch.tensor(ended), torch.ones(len(score), dtype=torch.long)
    shaped, state = shaping(*rows, Context(), shaping.init())
    again, same = shaping(rows[0], ~rows[1], rows[2], Context(), state)
    assert same == state, "decided once"
    instead = shaping.replacement(state)
    assert again.tolist() == [x if not e or instead is None else instead for x, e in zip(score, ended, strict=True)]
    return shaped.tolist(), instead


@for_each(
    [
        ([True, True, False, False], [1.0, 2.0, 3.0, 4.0], -1.0),
        ([True, False, False, False], [1.0, 2.0, 3.0, 4.0], None),  # most of the reward would be gone
        ([False] * 4, [1.0, 2.0, 3.0, 4.0], None),
        ([True, True, True, False], [-5.0, -3.0, 0.0, -9.0], None),  # -1 would be a prize for not ending
        ([True, True, True, False], [-5.0, -3.0, 9.0, -9.0], -1.0),
    ]
)
def test_the_first_rollout_decides_what_a_missing_end_scores(
    ended: list[bool], score: list[float], instead: float | None
) -> None:
    expected = [x if e or instead is None else instead for x, e in zip(score, ended, strict=True)]
    assert first_rollout(ended, score) == (expected, instead)


def test_greedy_responses_decide_nothing() -> None:
    shaping = ScoreShaping()
    _, state = shaping(SCORE, ENDED, LENGTH, Context(is_greedy=True), shaping.init())
    assert state == shaping.init()
    assert shaping.replacement(state) is None


def test_a_normalised_score_is_what_the_statistics_make_of_it() -> None:
    mean, std = 0.125, math.sqrt((1.875**2 + 3.125**2 + 0.375**2 + 0.875**2) / 4)
    for normalise in ("batch", "running"):
        found = shaped(ScoreShaping(normalise=normalise, missing_end=None))
        assert found == pytest.approx([(x - mean) / std for x in (2.0, -3.0, 0.5, 1.0)])


@pytest.mark.parametrize("normalise", ["batch", "running"])
def test_greedy_scores_are_normalised_as_the_rollout_was_and_are_not_counted(normalise: str) -> None:
    """The greedy score is a baseline: on another scale than the scores it would be none."""
    shaping = ScoreShaping(normalise=normalise, missing_end=None)
    _, before = shaping(100 * SCORE, ENDED, LENGTH, Context(), shaping.init())
    sampled, state = shaping(SCORE, ENDED, LENGTH, Context(), before)
    greedy, same = shaping(SCORE[:2], ENDED[:2], LENGTH[:2], Context(is_greedy=True), state)
    assert torch.equal(greedy, sampled[:2])
    assert same == state
    _, counted = shaping(SCORE[:2], ENDED[:2], LENGTH[:2], Context(), state)
    assert counted != state


def test_overlong_responses_lose_score_linearly() -> None:
    lengths = torch.tensor([1, 8, 9, 10])
    assert Overlong(buffer=0.2, penalty=2.0)(lengths, 10).tolist() == pytest.approx([0.0, 0.0, -1.0, -2.0])
    # the paper's numbers: 20,480 tokens of which the last 4,096 are the buffer
    found = Overlong()(torch.tensor([16384, 18432, 20480, 30000]), 20480)
    assert found.tolist() == pytest.approx([0.0, -0.5, -1.0, -1.0])
    shaping = ScoreShaping(missing_end=None, overlong=Overlong(buffer=0.2, penalty=2.0))
    assert shaped(shaping) == pytest.approx([2.0, -3.0, -1.5, -1.0])
    with pytest.raises(ValueError, match=r"Context\(max_length=...\) must be given"):
        shaping(SCORE, ENDED, LENGTH, Context(), shaping.init())


@for_each(
    [({"scale": -1.0}, "another sign"), ({"clip": 0.0}, "clip must"), ({"missing_end_penalty": 1.0}, "Choose one")]
)
def test_shaping_without_meaning_is_refused(settings: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ScoreShaping(**settings)


def test_the_adaptive_controller_of_2019() -> None:
    adaptive = Adaptive(target=6.0, horizon=10_000)
    assert adaptive(0.15, 6.0, 512) == 0.15
    assert adaptive(0.15, 6.6, 500) == pytest.approx(0.15 * (1 + 0.1 * 500 / 10_000))
    assert adaptive(0.15, 600.0, 500) == pytest.approx(0.15 * (1 + 0.2 * 500 / 10_000))  # clipped
    assert adaptive(0.15, 0.0, 500) == pytest.approx(0.15 * (1 - 0.2 * 500 / 10_000))


@for_each([(1.6, 0.2), (1.5, 0.1), (1.0, 0.1), (0.7, 0.1), (0.6, 0.05)])
def test_the_doubling_controller_of_2017(kl: float, expected: float) -> None:
    assert Doubling(target=1.0)(0.1, kl, 7) == expected
    assert Fixed()(0.1, kl, 7) == 0.1


@for_each([lambda: Adaptive(target=0.0), lambda: Adaptive(horizon=0), lambda: Doubling(-1.0)])
def test_controllers_without_a_goal_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="must be in"):
        bad()


def test_controllers_hold_a_process_at_its_target() -> None:
    def kl_at(coef: float) -> float:
        return 3.0 / (0.1 + coef)  # the dearer a nat, the fewer

    for controller in (Adaptive(target=6.0, horizon=1000), Doubling(target=6.0)):
        coef = 5.0
        for _ in range(400):
            coef = controller(coef, kl_at(coef), 100)
        assert 6.0 / 1.5 <= kl_at(coef) <= 6.0 * 1.5

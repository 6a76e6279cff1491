"""Scales are maps with an inverse; ticks are round numbers inside."""

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.report.figures.scales import Scale, domain, rounded

values = st.floats(-1e6, 1e6, allow_nan=False)
positive = st.floats(1e-6, 1e6)


@given(values, st.floats(1e-3, 1e6), st.floats(0, 1))
def test_a_linear_scale_has_an_inverse(low: float, span: float, share: float) -> None:
    scale, value = Scale(low, low + span, 50, 430), low + span * share
    assert scale.invert(scale(value)) == pytest.approx(value, abs=1e-6 * span + 1e-9 * abs(value))
    assert scale(scale.low) == 50
    assert scale(scale.high) == pytest.approx(430)


@given(positive, st.floats(1.01, 1e6), st.floats(0, 1))
def test_a_log_scale_has_an_inverse_and_turns_factors_into_distances(low: float, ratio: float, share: float) -> None:
    scale = Scale(low, low * ratio, 200, 10, log=True)
    value = low * ratio**share
    assert scale.invert(scale(value)) == pytest.approx(value, rel=1e-6)
    assert scale(low * math.sqrt(ratio)) == pytest.approx(105)


@given(values, values, values)
def test_order_is_kept(a: float, b: float, c: float) -> None:
    low, middle, high = sorted((a, b, c))
    assume(high > low)
    scale = Scale(low, high, 0, 100)
    assert scale(low) <= scale(middle) <= scale(high)


def test_what_a_scale_cannot_show() -> None:
    assert not any(Scale(0, 1, 0, 1).shows(value) for value in (math.nan, math.inf, -math.inf))
    assert not Scale(1, 2, 0, 1, log=True).shows(0)
    assert Scale(0, 1, 0, 1).shows(-3)


@given(values, st.floats(1e-3, 1e6))
def test_linear_ticks_are_inside_evenly_spaced_and_round(low: float, span: float) -> None:
    assume(span > 1e-6 * abs(low))
    ticks = Scale(low, low + span, 0, 1).ticks(5)
    assert 2 <= len(ticks) <= 6
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    step = ticks[1] - ticks[0]
    assert all(b - a == pytest.approx(step, rel=1e-6) for a, b in pairwise(ticks))
    mantissa = step / 10 ** math.floor(math.log10(step * (1 + 1e-9)))
    assert min(abs(mantissa - unit) for unit in (1, 2, 2.5, 5)) < 1e-5


@for_each(
    [
        (1, 1000, (1, 10, 100, 1000)),
        (1, 100, (1, 2, 5, 10, 20, 50, 100)),
        (4.1, 21, (5, 10, 20)),
        (1e-8, 1e2, (1e-8, 1e-6, 1e-4, 1e-2, 1, 1e2)),
        (2.1, 3.9, (2.5, 3.0, 3.5)),
    ]
)
def test_log_ticks(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert Scale(low, high, 0, 1, log=True).ticks(5) == pytest.approx(expected)


@given(positive, st.floats(1.05, 1e9))
def test_log_ticks_are_inside_and_at_least_two(low: float, ratio: float) -> None:
    ticks = Scale(low, low * ratio, 0, 1, log=True).ticks(5)
    assert len(ticks) >= 2
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)


@given(st.lists(st.floats(), max_size=8), st.booleans())
def test_a_domain_holds_all_that_can_be_drawn_and_is_never_empty(points: list[float], log: bool) -> None:
    low, high = domain(points, log=log)
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert low < high
    assert not log or low > 0
    assert all(low <= v <= high for v in points if Scale(1, 2, 0, 1, log).shows(v))


def test_rounding_an_axis_never_costs_half_a_step() -> None:
    assert rounded(0.1, 9.9) == pytest.approx((0, 10))
    low, high = rounded(-0.3, 30)
    assert -2 < low <= -0.3
    assert high == 30


@given(values, st.floats(1e-3, 1e6))
def test_a_rounded_axis_still_holds_everything(low: float, span: float) -> None:
    assume(span > 1e-6 * abs(low))
    below, above = rounded(low, low + span)
    slack = 1e-6 * span + 1e-9 * abs(low)
    assert below <= low + slack
    assert above >= low + span - slack

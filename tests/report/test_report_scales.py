"""Scales are maps with an inverse; ticks are round numbers inside; written numbers read back as what they were."""

import math
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tutelage.report.scales import Scale, domain, number, rounded, tick_labels
from tutelage.report.words import clean, duration, percent, signed

values = st.floats(-1e6, 1e6, allow_nan=False)
positive = st.floats(1e-6, 1e6)


@given(values, st.floats(1e-3, 1e6), st.floats(0, 1))
def test_a_linear_scale_has_an_inverse(low: float, span: float, share: float) -> None:
    scale, value = Scale(low, low + span, 50, 430), low + span * share
    assert scale.invert(scale(value)) == pytest.approx(value, abs=1e-6 * span + 1e-9 * abs(value))
    assert scale(scale.low) == 50
    assert scale(scale.high) == pytest.approx(430)


@given(positive, st.floats(1.01, 1e6), st.floats(0, 1))
def test_a_log_scale_has_an_inverse_and_turns_factors_into_distances(
    low: float, ratio: float, share: float
) -> None:
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


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 1000, (1, 10, 100, 1000)),
        (1, 100, (1, 2, 5, 10, 20, 50, 100)),
        (4.1, 21, (5, 10, 20)),
        (1e-8, 1e2, (1e-8, 1e-6, 1e-4, 1e-2, 1, 1e2)),
        (2.1, 3.9, (2.5, 3.0, 3.5)),
    ],
)
def test_log_ticks(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert Scale(low, high, 0, 1, log=True).ticks(5) == pytest.approx(expected)


@given(positive, st.floats(1.05, 1e9))
def test_log_ticks_are_inside_and_at_least_two(low: float, ratio: float) -> None:
    ticks = Scale(low, low * ratio, 0, 1, log=True).ticks(5)
    assert len(ticks) >= 2
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)


def reading(label: str) -> float:
    """A label as a number again."""
    factor = {"k": 1e3, "M": 1e6, "G": 1e9}.get(label[-1], 1.0)
    return float(label.rstrip("kMG").replace(",", "").replace("−", "-")) * factor


@example(low=900_000.0, span=125_000.0)
@given(values, st.floats(1e-3, 1e6))
def test_tick_labels_say_where_the_ticks_are(low: float, span: float) -> None:
    assume(span > 0.02 * abs(low))
    ticks = Scale(low, low + span, 0, 1).ticks(5)
    for tick, label in zip(ticks, tick_labels(ticks), strict=True):
        assert reading(label) == pytest.approx(tick, abs=0.01 * span)


def test_tick_labels_align() -> None:
    assert tick_labels((0.0, 0.5, 1.0)) == ("0.0", "0.5", "1.0")
    assert tick_labels((0.0, 0.25, 0.5), percent=True) == ("0%", "25%", "50%")
    assert tick_labels((-2000.0, 0.0)) == ("−2,000", "0")
    assert tick_labels((0.0, 10000.0)) == ("0", "10k")
    assert tick_labels((0.01, 1.0, 100.0), log=True) == ("0.01", "1", "100")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (12345, "12,345"),
        (0.031623, "0.0316"),
        (-2, "−2"),
        (3e-6, "3e−6"),
        (0, "0"),
        (-0.0, "0"),
        (99.97, "100"),
        (1.40, "1.4"),
        (math.nan, "not a number"),
        (-math.inf, "−∞"),
        (2.5e12, "2.5e12"),
    ],
)
def test_numbers_for_reading(value: float, written: str) -> None:
    assert number(value) == written


@given(st.floats(-1e12, 1e12, allow_nan=False))
def test_numbers_keep_three_digits(value: float) -> None:
    assert float(number(value).replace(",", "").replace("−", "-")) == pytest.approx(
        value, rel=0.006, abs=1e-300
    )


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


def test_times_shares_and_differences() -> None:
    told = [duration(seconds) for seconds in (0.04, 9.94, 9.96, 59.7, 61, 120, 3599.6, 7500)]
    assert told == ["0.0 s", "9.9 s", "10 s", "1 min", "1 min 1 s", "2 min", "1 h", "2 h 5 min"]
    assert percent(0.7249, 1) == "72.5%"
    assert (signed(1.94), signed(-0.3), signed(0.0)) == ("+1.94", "−0.3", "0")


def test_unprintable_characters_become_visible() -> None:
    hostile = "a\x00b\x1b[31m\u202ec\ud800d\r\ne\tf"
    cleaned = clean(hostile)
    assert cleaned == "a�b�[31m�c�d\ne\tf"
    cleaned.encode("utf-8")

"""Numbers as text read back as what they were."""

import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.number_text import duration, number, percent, signed, tick_labels
from tutelage.report.figures.scales import Scale

values = st.floats(-1e6, 1e6, allow_nan=False)


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


@for_each(
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
    ]
)
def test_numbers_for_reading(value: float, written: str) -> None:
    assert number(value) == written


@given(st.floats(-1e12, 1e12, allow_nan=False))
def test_numbers_keep_three_digits(value: float) -> None:
    assert float(number(value).replace(",", "").replace("−", "-")) == pytest.approx(value, rel=0.006, abs=1e-300)


def test_shares_in_per_cent() -> None:
    assert percent(0.7249, 1) == "72.5%"
    assert percent(-0.3) == "−30%"


def test_times_shares_and_differences() -> None:
    told = [duration(seconds) for seconds in (0.04, 9.94, 9.96, 59.7, 61, 120, 3599.6, 7500)]
    assert told == ["0.0 s", "9.9 s", "10 s", "1 min", "1 min 1 s", "2 min", "1 h", "2 h 5 min"]
    assert (signed(1.94), signed(-0.3), signed(0.0)) == ("+1.94", "−0.3", "0")

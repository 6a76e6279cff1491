"""Times and differences as the pages write them."""

from tutelage.report.wording import duration, signed


def test_times_shares_and_differences() -> None:
    told = [duration(seconds) for seconds in (0.04, 9.94, 9.96, 59.7, 61, 120, 3599.6, 7500)]
    assert told == ["0.0 s", "9.9 s", "10 s", "1 min", "1 min 1 s", "2 min", "1 h", "2 h 5 min"]
    assert (signed(1.94), signed(-0.3), signed(0.0)) == ("+1.94", "−0.3", "0")

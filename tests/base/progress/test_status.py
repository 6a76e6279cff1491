"""The line of a status: laws over widths and values."""

import math
import re
from itertools import product

import pytest
from offenders import for_each
from rich.cells import cell_len

from tutelage.base.progress.status import ASCII, CLOCK, VALUE, Marks, StatusLine, clock, number

WIDTHS = range(40, 201)
LABELS = ("ppo", "reward model", "reinforce_pp", "a recipe with a very long name of its own")
VALUES = (0.0, -0.123456, math.nan, math.inf, -math.inf, 1e-9, -1e-9, 1e12, -1e12, -999999.5, 12345.678, 1e-300)
SHOWN = ("score/mean", "kl/reference", "length/mean", "ended")


def status(label: str, value: float, left: float | None = 2530.0, done: int = 7, phase: str = "update") -> StatusLine:
    return StatusLine(label, phase, done, 1200, 72.0, left, dict.fromkeys(SHOWN, value) if done else {})


@for_each(product(LABELS, [None, 0.0, 59.9, 2530.0, 1e7]))
def test_label_count_bar_and_time_are_there_at_any_width_and_nothing_is_wider(label, left):
    for columns in WIDTHS:
        for done in (0, 7, 1200):
            shown = status(label, -1e-9, left, done)
            line = shown.line(columns)
            assert cell_len(line) <= columns
            assert line.startswith(label[: min(len(label), 4)])
            assert re.search(r"[━─]{3,30} ", line)
            assert f"{done}/1200" in line
            assert (clock(72.0) + " spent" if left is None else clock(left) + " left") in line


def test_the_bar_is_shorter_before_the_label_is_cut():
    def bar(line):
        return len(re.search(r"[━─]+", line)[0])

    lines = [status("reward model", 0.0).line(columns) for columns in WIDTHS]
    assert [bar(line) for line in lines] == sorted(bar(line) for line in lines)
    for line in lines:
        assert "…" not in line.partition("─")[0] or bar(line) == 3


def test_metrics_keep_their_columns_whatever_their_values_are():
    for columns in WIDTHS:
        places = {
            tuple(line.find(f"  {name} ") for name in SHOWN)
            for value in VALUES
            for done in (1, 700, 1200)
            for left in (None, 3.0, 2530.0)
            if (line := status("ppo", value, left, done).line(columns))
        }
        assert len(places) == 1, columns
    assert min(places.pop()) > 0  # at 200 columns all are there


def test_a_metric_that_comes_later_moves_no_other():
    for columns in WIDTHS:
        early = StatusLine("sft", "", 7, 1200, 72.0, 3.0, {"loss": 2.5, "tokens_per_second": 123.0})
        late = StatusLine("sft", "", 7, 1200, 72.0, 3.0, dict(early.metrics) | {"held_out/loss": 2.4})
        assert late.line(columns).startswith(early.line(columns))


def test_a_wider_terminal_shows_no_less():
    shown = [sum(name in status("ppo", 0.5).line(columns) for name in SHOWN) for columns in WIDTHS]
    assert (shown[0], shown[-1]) == (0, len(SHOWN))


@for_each([*VALUES, 0.1, 99999.9, 999999.4, 1e5, 9999.96, -12345.6])
def test_a_number_is_short_and_close(value):
    text = number(value)
    assert len(text) <= VALUE
    assert float(text) == pytest.approx(value, rel=0.1, nan_ok=True)


def test_times_are_short():
    for exponent in range(10):
        assert len(clock(10.0**exponent)) <= CLOCK


def test_the_phase_is_there_before_any_metric_is_known():
    """At 40 columns cut, wider as a whole."""
    for columns in WIDTHS:
        line = status("ppo", 0.0, None, 0, "generate").line(columns)
        assert "gen" in line if columns < 42 else line.endswith("  generate")


def test_ascii_alone_where_the_encoding_has_no_more():
    for columns in WIDTHS:
        assert status("a recipe with a very long name of its own", 0.5).line(columns, ASCII).isascii()
    assert not status("ppo", 0.5).line(80, Marks()).isascii()

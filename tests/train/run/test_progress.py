"""Progress: rates and remaining time by arithmetic, lines at intervals, silence when asked."""

import io
import pty
import subprocess
import sys
import textwrap

import pytest

from tutelage.train.run import progress as module
from tutelage.train.run.progress import progress


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_lines_come_first_last_and_at_intervals_with_rate_and_time_left(clock: Clock) -> None:
    out = io.StringIO()
    with progress("SFT", 10, show=("loss", "kl"), stream=out, interval=5.0) as advance:
        for step in range(1, 11):
            clock.now += 2.0
            advance(step, {"loss": 1 / step, "lr": 0.1})
    assert out.getvalue().splitlines() == [
        "SFT 1/10  2.0 s/step, 0:18 left  loss 1",
        "SFT 4/10  2.0 s/step, 0:12 left  loss 0.25",
        "SFT 7/10  2.0 s/step, 0:06 left  loss 0.1429",
        "SFT 10/10  2.0 s/step, 0:00 left  loss 0.1",
    ]


def test_steps_before_the_resume_do_not_count_as_speed(clock: Clock) -> None:
    out = io.StringIO()
    with progress("SFT", 1000, start=900, stream=out) as advance:
        clock.now += 0.5
        advance(910, {})
    assert out.getvalue() == "SFT 910/1000  20.0 steps/s, 0:04 left\n"


def test_long_times_are_shown_in_hours(clock: Clock) -> None:
    out = io.StringIO()
    with progress("PPO", 3601, stream=out) as advance:
        clock.now += 2.0
        advance(1, {})
    assert "2:00:00 left" in out.getvalue()


def test_a_metric_that_is_not_finite_is_shown_as_such(clock: Clock) -> None:
    out = io.StringIO()
    with progress("PPO", 2, show=("loss",), stream=out) as advance:
        clock.now += 1
        advance(1, {"loss": float("nan")})
    assert "loss nan" in out.getvalue()


def test_quiet_is_silent() -> None:
    out = io.StringIO()
    with progress("SFT", 1, quiet=True, stream=out) as advance:
        advance(1, {"loss": 1.0})
    assert out.getvalue() == ""


def test_on_a_terminal_there_is_a_bar() -> None:
    code = """
        from tutelage.train.run.progress import progress
        with progress("SFT", 4, show=("loss",)) as advance:
            for step in range(1, 5):
                advance(step, {"loss": 0.25})
    """
    master, slave = pty.openpty()
    environment = {"TERM": "xterm", "COLUMNS": "100", "PATH": ""}
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], stderr=slave, check=True, env=environment, timeout=20
    )
    with open(slave, closefd=True), open(master, "rb", buffering=0) as terminal:
        shown = terminal.read(100_000).decode()
    assert "━" in shown
    assert "4/4" in shown
    assert "loss 0.25" in shown

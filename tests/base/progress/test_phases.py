"""Phases: the time that is left, by a clock that the test moves."""

import threading

import pytest

from tutelage.base.progress import phases as module
from tutelage.base.progress.phases import HERE, Phase, phase


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


@pytest.mark.parametrize("start", [0, 900])
def test_the_time_left_is_exact_for_steps_of_one_length_after_a_slow_first_one(clock: Clock, start: int) -> None:
    """Steps before the start, of an earlier process, count as little as the first one."""
    with phase("ppo", start + 50, done=start) as loop:
        clock.now += 500.0  # the first step compiles
        loop.advance(start + 1)
        assert loop.left is None
        for step in range(2, 51):
            clock.now += 3.0
            loop.advance(start + step)
            assert loop.left == pytest.approx(3.0 * (50 - step))


def test_the_time_left_runs_down_within_a_step_and_never_rises(clock: Clock) -> None:
    """Whatever the lengths of the steps, and however long the present one takes."""
    with phase("ppo", 40) as loop:
        for step, seconds in enumerate([60, 2, 3, 1, 90, 2, 0.5, 4, 2, 2], 1):
            before = loop.left
            for _ in range(10):
                clock.now += seconds / 10
                left = loop.left
                assert (left is None) == (before is None)
                if left is not None and before is not None:
                    assert 0 <= left <= before
                before = left
            loop.advance(step)
        assert loop.left == pytest.approx((sum([2, 3, 1, 90, 2, 0.5, 4, 2, 2]) / 9) * 30)


def test_a_step_that_evaluates_now_and_then_is_part_of_the_mean(clock: Clock) -> None:
    with phase("ppo", 101) as loop:
        for step in range(1, 102):
            clock.now += 1.0 + (10.0 if step % 10 == 1 else 0.0)
            loop.advance(step)
            if step % 10 == 1 and step > 1:  # whole periods after the first step
                assert loop.left == pytest.approx((101 - step) * 2.0)


def test_a_loop_of_one_step_has_no_estimate(clock: Clock) -> None:
    with phase("ppo", 1) as loop:
        clock.now += 5.0
        assert (loop.left, loop.elapsed) == (None, 5.0)
        loop.advance(1)
        assert loop.left is None


def test_each_thread_has_its_own_phases() -> None:
    found: list[list[Phase]] = []
    with phase("here"):
        other = threading.Thread(target=lambda: found.append(list(HERE.phases)))
        other.start()
        other.join()
        assert [one.name for one in HERE.phases] == ["here"]
    assert (found, HERE.phases) == ([[]], [])

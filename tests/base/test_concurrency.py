"""Calls at once: that they run together, keep their order, and end when they have to."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from offenders import for_each

from tutelage.base.concurrency import Call, CallError, Calls, HeldContext, awaited, concurrent, mapped, threaded
from tutelage.base.errors import TutelageError


def test_as_many_calls_run_together_as_there_are_workers_and_no_more() -> None:
    """Only 64 calls that run at the same time pass the barrier; a 65th never joins them."""
    barrier, running, most, lock = threading.Barrier(64, timeout=10), 0, 0, threading.Lock()

    def call(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait()
        with lock:
            running -= 1
        return item

    assert mapped(call, range(128), 64) == list(range(128))
    assert most == 64


def test_coroutines_run_together_on_one_loop() -> None:
    async def call(item: int, gate: list[asyncio.Event]) -> tuple[int, int]:
        gate.append(asyncio.Event())
        if len(gate) == 8:
            for each in gate:
                each.set()
        await gate[item].wait()
        return item, id(asyncio.get_running_loop())

    gate: list[asyncio.Event] = []
    results = concurrent(lambda item: awaited(call(item, gate)), list(range(8)), Calls(8, timeout=10))
    assert [item for item, _ in results] == list(range(8))
    assert len({loop for _, loop in results}) == 1


def test_results_have_the_order_of_the_items_whichever_ends_first() -> None:
    later = [threading.Event() for _ in range(6)]
    later[5].set()

    def call(item: int) -> int:
        later[item].wait(10)
        later[item - 1].set()  # ends after its successor
        return item

    assert mapped(call, range(6), 6) == list(range(6))


def test_a_call_is_repeated_until_it_has_no_attempt_left() -> None:
    counts: Counter[int] = Counter()

    def call(item: int) -> int:
        counts[item] += 1
        if counts[item] <= item:
            raise OSError("busy")
        return item

    start = lambda item: threaded(call, item)  # noqa: E731
    assert concurrent(start, [0, 1, 2], Calls(2, retries=2)) == [0, 1, 2]
    assert counts == {0: 1, 1: 2, 2: 3}
    counts.clear()
    with pytest.raises(CallError) as caught:
        concurrent(start, [0, 1, 2], Calls(2, retries=1))
    assert (caught.value.index, type(caught.value.__cause__)) == (2, OSError)


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_a_call_beyond_its_time_out_is_left_behind(kind: str) -> None:
    attempts = []
    never = threading.Event()

    def wait(item: int) -> None:
        attempts.append(item)
        never.wait(30 if item == 1 else 0)

    async def pause(item: int) -> None:
        attempts.append(item)
        await asyncio.sleep(30 if item == 1 else 0)

    def start(item: int) -> Call[None]:
        return threaded(wait, item) if kind == "thread" else awaited(pause(item))

    before = time.monotonic()
    with pytest.raises(CallError) as caught:
        concurrent(start, [0, 1, 2], Calls(3, timeout=0.05, retries=2))
    never.set()
    assert time.monotonic() - before < 10
    assert caught.value.index == 1
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert Counter(attempts)[1] == 3


def test_what_still_runs_is_stopped_when_one_fails() -> None:
    stopped = []

    def start(item: int) -> Call[int]:
        call = threaded(lambda item: 1 // item if item == 0 else threading.Event().wait(30), item)
        return Call(call.future, lambda: stopped.append(item))

    with pytest.raises(CallError):
        concurrent(start, [3, 0, 2], Calls(3))
    assert sorted(stopped) == [2, 3]


def test_a_context_is_entered_once_and_held_and_its_error_is_that_of_all() -> None:
    entered = list[str]()

    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        entered.append("in")
        await asyncio.sleep(0.001)
        yield
        entered.append("out")

    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        raise OSError("no server")
        yield

    async def scene() -> list[object]:
        held, broken = HeldContext(context), HeldContext(failing)
        await asyncio.gather(*(held.enter() for _ in range(3)))
        return await asyncio.gather(*(broken.enter() for _ in range(2)), return_exceptions=True)

    assert list(map(str, awaited(scene()).future.result())) == ["no server"] * 2
    assert entered == ["in"]


HANGING = """
import sys, threading
from tutelage.base.concurrency import mapped
def call(item):
    if item == 7:
        print("all run", flush=True)
    threading.Event().wait(60)
mapped(call, range(8), 8)
"""


def test_ctrl_c_ends_the_program_at_once() -> None:
    with subprocess.Popen([sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"all run\n"
        before = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) != 0
        assert time.monotonic() - before < 20  # its calls take 60 seconds


@for_each([({"workers": -1}, "workers"), ({"workers": 2, "timeout": -0.5}, "timeout"), ({"timeout": 1.0}, "workers")])
def test_limits_that_are_none(settings: dict[str, float], field: str) -> None:
    with pytest.raises(TutelageError, match=field):
        Calls(**settings)

"""Calls of a function at once: in threads, on an event loop, or in processes; with time-outs and retries.

The threads are daemons and a time-out is measured by the caller, so neither a call that hangs nor the end of the
program waits for it: `concurrent` raises KeyboardInterrupt at once.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from tutelage.base.errors import TutelageError

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Calls:
    """Limits of concurrent calls: how many at once, how long each may take, and how often one is repeated."""

    workers: int = 0
    """Calls at once, each of a single item; 0 for one call of all items."""
    timeout: float = 0.0
    """Seconds that a call may take; 0 for no limit."""
    retries: int = 0
    """Repetitions of a call that raised or exceeded its time-out."""
    processes: bool = False
    """Whether the workers are processes rather than threads: for functions that compute instead of waiting."""

    def __post_init__(self) -> None:
        for name in ("workers", "timeout", "retries"):
            if getattr(self, name) < 0:
                raise TutelageError(f"{name} has to be 0 or more, not {getattr(self, name):g}.")
        if not self.workers and (self.timeout or self.retries or self.processes):
            raise TutelageError(
                "timeout, retries and processes are about calls of single completions: give workers, the number of "
                "calls at once."
            )


WHOLE = Calls()
"""One call of all items."""


@dataclass(frozen=True)
class Call(Generic[R]):
    """A call in progress. `stop` ends it if it can be ended: a thread cannot, and its result is ignored."""

    future: Future[R]
    stop: Callable[[], object]


class CallError(Exception):
    """Raised for the item at `index` after its last attempt; its cause is the error, a TimeoutError after a
    time-out."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def concurrent(start: Callable[[T], Call[R]], items: Sequence[T], calls: Calls) -> list[R]:
    """Results of the calls that `start` starts, in the order of the items; at most `calls.workers` run at once.

    Raises CallError as soon as an item has no attempt left; of several at the same time, for the first of them.
    """
    results: dict[int, R] = {}
    waiting = deque((index, 0) for index in range(len(items)))
    running: dict[Future[R], tuple[int, int, float, Call[R]]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(calls.workers, 1):
                index, attempt = waiting.popleft()
                call = start(items[index])
                end = time.monotonic() + calls.timeout if calls.timeout else float("inf")
                running[call.future] = index, attempt, end, call
            first = min(end for _, _, end, _ in running.values())
            wait(running, None if first == float("inf") else first - time.monotonic(), FIRST_COMPLETED)
            now = time.monotonic()
            over = [(*state, future) for future, state in running.items() if future.done() or state[2] <= now]
            for index, attempt, _, call, future in sorted(over, key=lambda item: item[0]):
                del running[future]
                error = _failure(call, calls.timeout)
                if error is None:
                    results[index] = future.result()
                elif isinstance(error, Exception) and attempt < calls.retries:
                    waiting.appendleft((index, attempt + 1))
                else:
                    raise CallError(index) from error
    finally:
        for _, _, _, call in running.values():
            call.stop()
    return [results[index] for index in range(len(items))]


def _failure(call: Call[R], timeout: float) -> BaseException | None:
    """Error of a call that is over; a call that still runs is stopped."""
    if not call.future.done():
        call.stop()
        return TimeoutError(f"took more than {timeout:g} seconds")
    try:
        return call.future.exception()
    except CancelledError as error:
        return error


def threaded(function: Callable[[T], R], item: T) -> Call[R]:
    """Call a function in a thread of its own."""
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function(item))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="tutelage-call", daemon=True).start()
    return Call(future, future.cancel)


def mapped(function: Callable[[T], R], items: Iterable[T], workers: int) -> list[R]:
    """Results of a function in the order of the items, from at most `workers` threads. Raises the errors of the
    function."""
    try:
        return concurrent(lambda item: threaded(function, item), list(items), Calls(workers))
    except CallError as error:
        raise error.__cause__ or error from None


def awaited(coroutine: Coroutine[Any, Any, R]) -> Call[R]:
    """Run a coroutine on the event loop of the process, the same one for all: clients of services may be shared."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop.running())
    return Call(future, future.cancel)


class HeldContext:
    """A context that the first call of `enter` enters, and that is held until the process ends."""

    _tasks: ClassVar[list[asyncio.Task[None]]] = []  # asyncio itself keeps no task

    def __init__(self, context: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self.context = context
        self._entered: asyncio.Future[None] | None = None

    async def enter(self) -> None:
        """Wait until the context is entered. Raises what it raises."""
        if self._entered is None:
            self._entered = asyncio.get_running_loop().create_future()
            self._tasks.append(asyncio.ensure_future(self._hold(self._entered)))
        await asyncio.shield(self._entered)

    async def _hold(self, entered: "asyncio.Future[None]") -> None:
        try:
            async with self.context():
                entered.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:
            if entered.done():
                raise
            entered.set_exception(error)


class _Loop:
    """Event loop in a daemon thread; a fork gets its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def running(self) -> asyncio.AbstractEventLoop:
        with self._turn:
            if self._loop is None or self._owner != os.getpid():
                self._loop, self._owner = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="tutelage-loop", daemon=True).start()
            return self._loop


_loop = _Loop()

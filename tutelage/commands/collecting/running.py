"""Running a command as a part of this one: its signals and its status are passed on."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def run(words: Sequence[str]) -> int:
    """Run a command to its end and return its exit status, 128 and the number of the signal where one ended it. SIGINT
    and SIGTERM are the command's: they are passed on, and what the command does about them counts."""
    with _Forwarder().installed() as forwarder, subprocess.Popen(words) as child:
        forwarder.begin(child)
        status = child.wait()
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[float], None]]:
    """A sleep that SIGINT ends with KeyboardInterrupt. Inside, the signal is noted, and raised by the sleep alone:
    Python loses an interrupt that comes while a finaliser runs. Only the main thread gets signals."""
    noted = threading.Event()

    def sleep(seconds: float) -> None:
        if noted.wait(seconds):
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield sleep
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.set())
    try:
        yield sleep
    finally:
        signal.signal(signal.SIGINT, before)
    if noted.is_set():
        raise KeyboardInterrupt


class _Forwarder:
    """Passes signals on to a child; those that came before it had begun, as soon as it has."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def begin(self, child: "subprocess.Popen[bytes]") -> None:
        """Pass signals on to this child from now on."""
        self._child = child
        for number in self._early:
            child.send_signal(number)

    @contextlib.contextmanager
    def installed(self) -> Iterator["_Forwarder"]:
        """Inside, this handles the signals. Only the main thread gets signals."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {each: signal.signal(each, self._forward) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _forward(self, number: int, frame: Any) -> None:
        if number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty():
            return  # the terminal has sent it to the child as well
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)

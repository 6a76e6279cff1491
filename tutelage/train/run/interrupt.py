"""Graceful interruption of a loop: the first Ctrl-C finishes the step, the second one stops at once."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tutelage.engines.ranks.processes import world_rank

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The loop stopped at the first Ctrl-C, with everything saved. The message includes the command to resume."""


class Interruption:
    """Whether a signal has requested the loop to stop; initially false."""

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested


@contextmanager
def interrupted() -> Iterator[Interruption]:
    """Turn the first Ctrl-C (or SIGTERM) into a flag, which the loop checks at the end of each step.

        with interrupted() as stop:
            for step in steps:
                ...
                if stop:
                    save and break

    The second one raises KeyboardInterrupt. Signals only reach the main thread.
    """
    flag = Interruption()

    def ask(number: int, frame: FrameType | None) -> None:
        if flag.requested:
            raise KeyboardInterrupt
        flag.requested = True
        if world_rank() == 0:
            print("\nFinishing this step, then saving. Once more to stop at once.", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    previous = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield flag
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

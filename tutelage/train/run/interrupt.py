"""Interruption of a loop: the first Ctrl-C stops at once if that loses nothing, and else finishes the step; the second
one stops at once."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tutelage.base.signals import handled
from tutelage.engines.ranks.processes import world_rank


class Interrupted(KeyboardInterrupt):
    """The loop stopped at a Ctrl-C. The message says what is saved, and has the command to resume."""


class Interruption:
    """Whether a signal has requested the loop to stop; initially false."""

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested


@contextmanager
def interrupted(
    at_once: Callable[[], bool] = lambda: False, otherwise: Callable[[], str] = lambda: ""
) -> Iterator[Interruption]:
    """Turn the first Ctrl-C (or SIGTERM) into a KeyboardInterrupt if `at_once` says so, and otherwise into a flag,
    which the loop checks at the end of each step; `otherwise` says what a second one keeps.

        with interrupted() as stop:
            for step in steps:
                ...
                if stop:
                    save and break

    The second one raises KeyboardInterrupt. Signals only reach the main thread.
    """
    flag = Interruption()

    def ask(number: int, frame: FrameType | None) -> None:
        if flag.requested or at_once():
            flag.requested = True
            raise KeyboardInterrupt
        flag.requested = True
        if world_rank() == 0:
            again = " ".join(filter(None, ("Once more to stop at once.", otherwise())))
            print(f"\nFinishing this step, then saving. {again}", file=sys.stderr)

    with handled(ask):
        yield flag

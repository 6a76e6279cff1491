"""Running a command as a part of this one: its signals and its status are passed on."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any


def run(words: Sequence[str]) -> int:
    """Run a command to its end and return its exit status, 128 and the number of the signal where one ended it. ctrl-C
    is left to the command, which a terminal sends it to as well; this waits for its end."""
    with subprocess.Popen(words) as child, _termination_forwarded(child):
        while True:
            try:
                status = child.wait()
            except KeyboardInterrupt:
                if not sys.stdin.isatty():  # no terminal has told the child
                    child.send_signal(signal.SIGINT)
            else:
                return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _termination_forwarded(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Inside, SIGTERM ends the child, and with it this command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, frame: Any) -> None:
        child.terminate()

    before = signal.signal(signal.SIGTERM, forward)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

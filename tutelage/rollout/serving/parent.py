"""A server that ends with the process that started it, however that one ends.

The process that starts the server holds the other end of its standard input and never writes. When that process ends,
even by SIGKILL, the system closes the pipe and the server reads its end. This holds on Linux and macOS alike.
"""

import os
import signal
import threading
import time

GRACE = 10.0
"""Seconds that the server has to end by itself once nobody holds the pipe."""


def end_with_parent() -> None:
    """Watch standard input from a thread, and end this process when the pipe is closed."""
    threading.Thread(target=_watch, daemon=True, name="parent").start()


def _watch() -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:  # there is no standard input, so nobody holds it
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)

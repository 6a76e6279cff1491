"""Signals are handled within a context alone, and only in the main thread."""

import os
import signal
import threading

import pytest

from tutelage.base.signals import handled


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_lasts_as_long_as_its_context(number: signal.Signals) -> None:
    before, caught = signal.getsignal(number), list[int]()
    with pytest.raises(ValueError, match="an error"), handled(lambda *signal: caught.append(signal[0])):  # noqa: PT012
        os.kill(os.getpid(), number)
        raise ValueError("an error")
    assert caught == [number]
    assert signal.getsignal(number) is before


def test_other_signals_and_other_threads_keep_their_handlers() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    handlers = list[object]()
    with handled(lambda *signal: None, numbers=(signal.SIGINT,)):
        handlers.append(signal.getsignal(signal.SIGTERM))

    def work() -> None:
        with handled(lambda *signal: None):
            handlers.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before[1], *before]

"""Processes of tests that start at once: they are forked from one that has imported torch and the package.

A process is that of `python -m tutelage` or of `python -c` in all that the operating system sees of it (its signals,
its limits, its locks, its exit status), without the seconds of imports at its start.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from subprocess import TimeoutExpired
from textwrap import dedent
from threading import Thread
from typing import Any, TextIO

PRELOADED = [f"tutelage.commands.{name}.run" for name in ("improve", "evaluate", "dpo", "reward", "serve")]
"""Imported once, in the process that all others are forked from."""


def forking() -> ForkServerContext:
    """The context of multiprocessing whose processes have `PRELOADED`."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class Forked:
    """A process that calls `function(*arguments)`, with pipes for what it prints; the methods are those of `Popen`.

    It has the environment of the test with the given changes. Its standard input is at its end.
    """

    def __init__(
        self, function: Callable[..., object], *arguments: Any, environment: Mapping[str, str] | None = None
    ) -> None:
        context = forking()
        (out, to_out), (err, to_err) = (context.Pipe(duplex=False) for _ in range(2))
        given = {**os.environ, **(environment or {})}
        self.process: BaseProcess = context.Process(
            target=_life, args=(to_out, to_err, given, os.getcwd(), function, arguments), daemon=True
        )
        self.process.start()
        to_out.close()
        to_err.close()
        self.stdout, self.stderr = _text(out), _text(err)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise TimeoutExpired(self.process.name, timeout or 0.0)
        return self.process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it still prints, once it has ended. It is killed where that takes too long."""
        told = ["", ""]

        def read(number: int, stream: TextIO) -> None:
            told[number] = stream.read()

        readers = [Thread(target=read, args=pair) for pair in enumerate((self.stdout, self.stderr))]
        for reader in readers:
            reader.start()
        end = None if timeout is None else time.monotonic() + timeout
        for reader in readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
        if any(reader.is_alive() for reader in readers):
            self.kill()
            raise TimeoutExpired(self.process.name, timeout or 0.0)
        self.wait(timeout)
        self.stdout.close()
        self.stderr.close()
        return told[0], told[1]


def command(words: Sequence[str], **environment: str) -> Forked:
    """`tutelage WORDS`."""
    return Forked(_command, list(words), environment=environment)


def python(code: str, *arguments: str) -> Forked:
    """`python -c CODE ARGUMENTS`."""
    return Forked(_python, dedent(code), list(arguments))


def _text(end: Connection) -> TextIO:
    stream = os.fdopen(os.dup(end.fileno()), encoding="utf-8")
    end.close()
    return stream


def _life(
    out: Connection,
    err: Connection,
    environment: Mapping[str, str],
    folder: str,
    function: Callable[..., object],
    arguments: Sequence[Any],
) -> None:
    for end, number in ((out, 1), (err, 2)):
        os.dup2(end.fileno(), number)
        end.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.exit(function(*arguments))


def _command(words: list[str]) -> int:
    from tutelage.commands.line import main

    sys.argv = ["tutelage", *words]
    return main(words)


def _python(code: str, arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})

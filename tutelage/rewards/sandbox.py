"""Sandbox for what a rule computes on a completion, with limits on time and memory; regular expressions in it.

A short text can keep a regular expression, a formula or a JSON schema busy for years, and none of them can be ended
from another thread or by a signal outside the main thread: they hold the interpreter. So they are computed in a process
of their own, the worker, whose CPU time and memory the kernel limits. It imports no torch, starts with the first of
them, and again after each that ended it. A completion that goes beyond the limits scores as one that does not match, is
counted, and the first of each rule is logged.
"""

import atexit
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar, runtime_checkable

from tutelage.base.errors import TutelageError

log = logging.getLogger(__name__)

SECONDS = 3.0
"""CPU time for one answer; that of other programs does not count, so a busy machine gives the same scores."""
BYTES = 2**30
"""Memory of the worker."""
SHOWN = 60
"""Characters of an answer that a message shows."""

P = ParamSpec("P")
R = TypeVar("R")
_exceeded: Counter[str] = Counter()
_ENDED = {getattr(signal, name, None) for name in ("SIGPROF", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS")}
"""The signals that end a worker whose text went beyond the limits: its time, the system's memory, its stack."""


@runtime_checkable
class SandboxedRule(Protocol):
    """A rule that computes in the sandbox. Completions beyond the limits are counted under its name."""

    name: ClassVar[str]
    sandboxed: ClassVar[bool]


class LimitExceeded(TutelageError):
    """A text takes more to compute than the limits allow."""


def limited(function: Callable[P, R], *arguments: P.args, **_: P.kwargs) -> R:
    """`function(*arguments)`, computed in the worker. The function is one of a module that imports no torch.

    Raises LimitExceeded where it takes more than `SECONDS` or `BYTES`, and what the function raises.
    """
    return _worker.computed(function, arguments)


def answered(rule: str, answer: str, compute: Callable[[], R]) -> R | None:
    """What `compute` finds out about an answer; None where it goes beyond the limits, which is counted for the rule."""
    try:
        return compute()
    except (LimitExceeded, RecursionError):
        _exceeded[rule] += 1
        if _exceeded[rule] == 1:
            log.warning(
                f"rule:{rule} cannot read an answer within its limits of size and time ({answer[:SHOWN]!r} …): it "
                "scores as one that does not match. Further ones are counted in rules/over_limits."
            )
        return None


def exceeded(rule: str) -> int:
    """The answers that a rule could not read within the limits since the process began."""
    return _exceeded[rule]


class _Worker:
    """The process in which functions are computed, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def computed(self, function: Callable[..., R], arguments: tuple[object, ...]) -> R:
        request = pickle.dumps((function, arguments, SECONDS))
        with self._turn:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(request)
                process.stdin.flush()
                succeeded, value = pickle.load(process.stdout)
            except (BrokenPipeError, EOFError) as error:
                status = self._end()
                if -status in _ENDED:
                    raise LimitExceeded(
                        f"A text takes more than {SECONDS:g} seconds or {BYTES // 2**20} MiB to read."
                    ) from error
                raise RuntimeError(
                    f"the process in which rules compute ended with status {status}"
                ) from error
            except BaseException:  # interrupted: the answer would be taken for that to the next request
                self._end(kill=True)
                raise
        if succeeded:
            return value
        raise value

    def _started(self) -> subprocess.Popen[bytes]:
        """The process; a new one where there is none, where it ended, and after a fork."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._owner = os.getpid()
            # Without the terminal's signals: it ends with the pipe, after a graceful stop of the run.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from tutelage.rewards.sandbox import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        return self._process

    def _end(self, *, kill: bool = False) -> int:
        """Wait for the end of the process, or kill it. Returns its status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if kill:
            process.kill()
        with suppress(OSError):  # what was not sent is lost
            process.communicate()
        return process.wait()

    def close(self) -> None:
        """End the process, if it is this process's own."""
        if self._owner == os.getpid():
            self._end(kill=True)


_worker = _Worker()
atexit.register(_worker.close)


def serve() -> None:
    """The life of the worker: reads a function with its arguments, writes the result, until there are no more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    logging.disable()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with suppress(ImportError, ValueError, OSError):  # not on Windows; macOS refuses it
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    with suppress(EOFError, BrokenPipeError):
        while True:
            function, arguments, seconds = pickle.load(requests)
            _prepare(function.__module__)
            pickle.dump(_outcome(function, arguments, seconds), answers)
            answers.flush()


@cache
def _prepare(module: str) -> None:
    """Call the function `prepare` of a module, where it has one, before the time of the first answer begins."""
    getattr(sys.modules[module], "prepare", lambda: None)()


def _outcome(
    function: Callable[..., object], arguments: tuple[object, ...], seconds: float
) -> tuple[bool, Any]:
    """(whether it succeeded, the result or the error). The kernel ends the process where it takes too long."""
    _limit_time(seconds)
    try:
        return True, function(*arguments)
    except (MemoryError, RecursionError):
        return False, LimitExceeded("A text takes more memory or depth to read than there is.")
    except Exception as error:
        return False, error
    finally:
        _limit_time(0)


def _limit_time(seconds: float) -> None:
    if hasattr(signal, "setitimer"):  # Windows has none, and runs no training
        signal.setitimer(signal.ITIMER_PROF, seconds)


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches. Raises LimitExceeded."""
    return limited(_matches, pattern, text)


def last_match(pattern: str, text: str) -> str | None:
    """The last match of a regular expression, its first group where it has one; the whole text without a pattern.

    Raises LimitExceeded.
    """
    return limited(_last_match, pattern, text) if pattern else text


def compiled(pattern: str) -> re.Pattern[str]:
    """A regular expression whose dot matches line breaks too. Raises TutelageError for any other text."""
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise TutelageError(f"{pattern!r} is no regular expression: {error}.") from error


def _matches(pattern: str, text: str) -> bool:
    return compiled(pattern).fullmatch(text) is not None


def _last_match(pattern: str, text: str) -> str | None:
    last = deque(compiled(pattern).finditer(text), maxlen=1)
    return (last[0][1 if last[0].re.groups else 0] or "") if last else None

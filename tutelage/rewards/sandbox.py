"""Sandbox with time and memory limits for rules that process completions; regular expressions in it.

A short text can keep a regular expression, a formula or a JSON schema busy for years. They hold the interpreter
lock, so neither another thread nor a signal outside the main thread can stop them. They run in a worker process,
whose CPU time and memory the kernel limits. It does not import torch, starts on first use, and restarts when a
computation ended it. Completions beyond the limits score as non-matching and are counted; the first of each rule is
logged.
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
from tutelage.data.json_values import DeepJson, parse_json

log = logging.getLogger(__name__)

SECONDS = 3.0
"""CPU time per completion in seconds; independent of other programs, so a busy machine gives the same scores."""
BYTES = 2**30
"""Memory limit of the worker."""
SHOWN = 60
"""Characters of a completion shown in messages."""

P = ParamSpec("P")
R = TypeVar("R")
_exceeded: Counter[str] = Counter()
_ENDED = {getattr(signal, name, None) for name in ("SIGPROF", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS")}
"""Signals that end a worker beyond its limits: time, system memory, stack."""


@runtime_checkable
class SandboxedRule(Protocol):
    """Rule computed in the sandbox. Completions beyond the limits are counted under its name."""

    name: ClassVar[str]
    sandboxed: ClassVar[bool]


class LimitExceeded(TutelageError):
    """Raised if a text exceeds the limits of the computation."""


def limited(function: Callable[P, R], *arguments: P.args, **_: P.kwargs) -> R:
    """Compute `function(*arguments)` in the worker. The function's module must not import torch.

    Raises LimitExceeded beyond `SECONDS` or `BYTES`, and the errors of the function.
    """
    return _worker.computed(function, arguments, SECONDS)


def answered(rule: str, answer: str, compute: Callable[[], R]) -> R | None:
    """Result of `compute` for a completion; None beyond the limits, which is counted for the rule."""
    try:
        return compute()
    except (LimitExceeded, RecursionError):
        _exceeded[rule] += 1
        if _exceeded[rule] == 1:
            log.warning(
                f"rule:{rule} cannot read a completion within its limits of size and time ({answer[:SHOWN]!r} …): it "
                "scores as non-matching. Further ones are counted in rules/over_limits."
            )
        return None


def exceeded(rule: str) -> int:
    """Number of completions beyond the limits of a rule since the process started."""
    return _exceeded[rule]


class SandboxWorker:
    """Worker process, which computes one function at a time, within `memory` bytes; 0 for no limit."""

    def __init__(self, memory: int = 0) -> None:
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def computed(self, function: Callable[..., R], arguments: tuple[object, ...], seconds: float = 0.0) -> R:
        """Result of `function(*arguments)`, within `seconds` of CPU time; 0 for no limit. Raises its errors."""
        request = pickle.dumps((function, arguments, seconds))
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
                if seconds and -status in _ENDED:
                    raise LimitExceeded(
                        f"A text takes more than {SECONDS:g} seconds or {BYTES // 2**20} MiB to read."
                    ) from error
                raise RuntimeError(f"the worker process ended with status {status}") from error
            except BaseException:  # interrupted: the pending result would be taken for that of the next request
                self._end(kill=True)
                raise
        if succeeded:
            return value
        raise value

    def _started(self) -> subprocess.Popen[bytes]:
        """Worker process; started if there is none, if it ended, and after a fork."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._owner = os.getpid()
            # Without the terminal's signals: it ends with the pipe, after a graceful stop of the run.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from tutelage.rewards.sandbox import serve; serve({self._memory})"],
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
        with suppress(OSError):  # unsent data is lost
            process.communicate()
        return process.wait()

    def kill(self) -> None:
        """Kill the process, and wait for its end, so that no later computation begins in it; the one in it ends with an
        error."""
        process = self._process
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stop the process, if it belongs to this one."""
        if self._owner == os.getpid():
            self._end(kill=True)


_worker = SandboxWorker(BYTES)
atexit.register(_worker.close)


def serve(memory: int) -> None:
    """Main loop of a worker: read functions with arguments and write results until the input ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries is not a result
    logging.disable()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with suppress(ImportError, ValueError, OSError):  # unavailable on Windows; macOS refuses it
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with suppress(EOFError, BrokenPipeError):
        while True:
            function, arguments, seconds = pickle.load(requests)
            _prepare(function.__module__)
            pickle.dump(_outcome(function, arguments, seconds), answers)
            answers.flush()


@cache
def _prepare(module: str) -> None:
    """Call the function `prepare` of a module, if any, before the time limit of the first completion starts."""
    getattr(sys.modules[module], "prepare", lambda: None)()


def _outcome(function: Callable[..., object], arguments: tuple[object, ...], seconds: float) -> tuple[bool, Any]:
    """(success, result or error). The kernel ends the process beyond its CPU time."""
    _limit_time(seconds)
    try:
        return True, function(*arguments)
    except (MemoryError, RecursionError):
        return False, LimitExceeded("A text exceeds the memory or recursion limit.")
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
    """Last match of a regular expression, its first group if any; the whole text without a pattern.

    Raises LimitExceeded.
    """
    return limited(_last_match, pattern, text) if pattern else text


def parsed_json(text: str) -> Any:
    """Parse JSON, in which NaN and Infinity are no numbers. Raises ValueError, and LimitExceeded for deep nesting."""
    try:
        return parse_json(text, strict=True)
    except DeepJson as error:
        raise LimitExceeded(f"A text cannot be read: {error}.") from None


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression whose dot also matches line breaks. Raises TutelageError if it is invalid."""
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise TutelageError(f"{pattern!r} is not a regular expression: {error}.") from error


def _matches(pattern: str, text: str) -> bool:
    return compiled(pattern).fullmatch(text) is not None


def _last_match(pattern: str, text: str) -> str | None:
    last = deque(compiled(pattern).finditer(text), maxlen=1)
    return (last[0][1 if last[0].re.groups else 0] or "") if last else None

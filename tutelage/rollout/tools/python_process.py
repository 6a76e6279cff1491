"""Tool `python`: a program in a process of its own, within limits.

These are limits, and no wall against an attacker of the kernel, which the program shares with the machine.
"""

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.rollout.tools import isolation
from tutelage.rollout.tools.tool import Fault, Tool, tool_of

log = logging.getLogger(__name__)

KEEPER: tuple[str, ...] = (sys.executable, "-I", "-S", isolation.__file__)
"""Command of the process that limits the program."""
GRACE = 5.0
"""Seconds after the limit of time in which the keeper must have reported everything."""
_places = threading.BoundedSemaphore(os.cpu_count() or 1)
"""As many programs run at once as there are CPUs; the others wait, and their time begins afterwards."""


@dataclass(frozen=True)
class ProgramLimits:
    """Limits of a program.

    `computing` is the CPU time of each process in seconds, independent of other programs on the machine; `seconds` the
    time of a clock for everything. `memory` is the address space of each process in bytes, `disk` the size of all files
    (of each file, where the system does not permit a root in memory), `output` what is read of standard output and
    error together. `processes` includes threads.
    """

    computing: int = 10
    seconds: float = 30.0
    memory: int = 512 << 20
    processes: int = 16
    disk: int = 64 << 20
    output: int = 1 << 20


@dataclass(frozen=True)
class ProgramResult:
    """End of a program: output, exit status (negative for a signal), why it was stopped ("time", "output" or nothing),
    and what the system did not permit to limit."""

    output: str
    status: int
    stopped: str
    unlimited: tuple[str, ...]


def python(code: str) -> str:
    """Run a Python program, and return what it prints. Nothing is kept between calls.

    Args:
        code: The program. It has no network and an empty folder; print what you want to see.
    """
    limits = ProgramLimits()
    result = run_program(code, limits)
    _log_unlimited(result.unlimited)
    if result.stopped == "output":
        return f"{result.output}\n[stopped: more than {counted(limits.output, 'byte')} of output]"
    if result.stopped == "time" or -result.status == signal.SIGXCPU:
        seconds = limits.seconds if result.stopped else limits.computing
        raise TimeoutError(f"stopped after {seconds:g} seconds; the output of the program until then:\n{result.output}")
    if result.status:
        return f"{result.output}\n[exit status {result.status}]"
    return result.output or "[no output]"


def python_tool() -> Tool:
    """The tool, after a trial: raises TutelageError where it cannot run programs."""
    if not hasattr(os, "fork"):
        raise TutelageError("The tool python needs Linux or macOS; on Windows, use WSL.")
    try:
        result = run_program("print(6 * 7)", ProgramLimits())
    except Fault as error:
        raise TutelageError(f"The tool python does not work on this machine: {error}") from error
    if result.output.strip() != "42":
        raise TutelageError(f"The tool python does not work on this machine: a trial result with {result.output!r}.")
    _log_unlimited(result.unlimited)
    return tool_of(python, timeout=float("inf"))


@cache
def _log_unlimited(unlimited: tuple[str, ...]) -> None:
    if unlimited:
        log.warning(f"The tool python cannot limit on this machine: {', '.join(unlimited)}.")


def run_program(code: str, limits: ProgramLimits) -> ProgramResult:
    """Run a program in a folder of its own, which is removed with everything in it. All of its processes have result
    afterwards. Raises Fault if it cannot be started."""
    with _places, tempfile.TemporaryDirectory(prefix="tutelage-python-") as folder:
        Path(folder, "main.py").write_bytes(code.encode("utf-8", "surrogatepass"))
        receive, report = os.pipe()
        real = Path(sys.executable).resolve().parents[1]  # folders of this Python and its packages
        prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.base_prefix).resolve()), str(real)}
        values = {
            "folder": folder,
            "report": report,
            "command": [sys.executable, "-sEBu", "-X", "utf8", "main.py"],
            "prefixes": sorted(prefixes),
            **{name: getattr(limits, name) for name in ("computing", "seconds", "memory", "processes", "disk")},
        }
        try:
            process = subprocess.Popen(
                [*KEEPER, json.dumps(values)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(report,),
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"},
            )
        except OSError as error:
            os.close(receive)
            raise Fault(f"The tool python cannot start a process: {error}.") from error
        finally:
            os.close(report)
        with open(receive, "rb") as reported:
            try:
                output, full = _read(process, limits)
            finally:
                _end(process)
            lines = [json.loads(line) for line in reported]
    return _result(output.decode("utf-8", "replace"), lines, full=full)


def _read(process: "subprocess.Popen[bytes]", limits: ProgramLimits) -> tuple[bytes, bool]:
    """(output, whether it was longer than the limit). A program with too much output is stopped, and no output is
    waited for after its time."""
    assert process.stdin is not None
    assert process.stdout is not None
    output, full, end = bytearray(), False, time.monotonic() + limits.seconds + GRACE
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (remaining := end - time.monotonic()) > 0:
            if not selector.select(remaining):
                break
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            output += piece[: limits.output - len(output)]
            if len(output) == limits.output and not full:
                full, end = True, time.monotonic() + GRACE
                process.stdin.close()
    return bytes(output), full


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop the keeper, which ends all others, and kill what is left of its group."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    with suppress(OSError):  # there is no group any more
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def _result(output: str, lines: list[dict[str, Any]], *, full: bool) -> ProgramResult:
    """The end of a program from its output and the lines of the report."""
    values: dict[str, Any] = {key: value for line in lines for key, value in line.items()}
    unlimited = tuple(dict.fromkeys(what for line in lines for what in line.get("unlimited", ())))
    stopped = "output" if full else values.get("stopped", "")
    if "fault" in values or "started" not in values:
        raise Fault(f"The tool python cannot run programs: {values.get('fault') or output.strip() or 'no reason'}.")
    return ProgramResult(output, values.get("status", 0 if stopped else -signal.SIGKILL), stopped, unlimited)

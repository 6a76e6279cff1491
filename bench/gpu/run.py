"""`python -m bench gpu`: measure the parts on this machine's GPU, each with each subject in a process of its own.

A finished unit is a line of `gpu.jsonl`, written at once; a second call measures what is missing or failed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from bench.gpu import lines
from bench.gpu.parts import PARTS, Unit, obstacle, units
from bench.processes import KEPT, ROOT, revision

LEAST = 20
"""Seconds that must be left for another unit to be started."""


def main(words: Sequence[str]) -> None:
    """Measure what was asked for, and print the tables."""
    asked = _arguments(words)
    out = Path(asked.out)
    out.mkdir(parents=True, exist_ok=True)
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ[variable] = str((out / "cache" / name).resolve())
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}
    try:
        chosen = units(_names(asked.parts), _names(asked.subjects))
    except ValueError as error:
        sys.exit(str(error))
    device = asked.device or ("cpu" if asked.tiny else "cuda")
    libraries = {library: version(library) for library in ("torch", "transformers")}
    common = libraries | {"revision": asked.revision or revision(), "tiny": asked.tiny}
    processes = Processes(out, device, asked.tiny)
    try:
        measure(chosen, out / "gpu.jsonl", common, 60 * asked.minutes, processes)
    finally:
        processes.close()
    columns = {part.name: (part.about, part.columns) for part in PARTS}
    text = lines.markdown(lines.read(out / "gpu.jsonl"), columns)
    (out / "gpu.md").write_text(text)
    print(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="for all parts together")
    parser.add_argument("--parts", default="", help=f"of {', '.join(part.name for part in PARTS)}; beginnings will do")
    parser.add_argument(
        "--subjects", default="", help="of parts with several: plain, gpu, generate, trl, …; all without"
    )
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with tiny shapes, on a CPU unless --device")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--out", default=str(KEPT / "gpu"), help="folder of gpu.jsonl and of compiled kernels")
    parser.add_argument("--revision", default="", help="the commit that is measured, where git cannot tell")
    return parser.parse_args(list(words))


class Work(Protocol):
    """Where units are measured."""

    def start(self, unit: Unit) -> None:
        """Prepare a unit; called while the one before it is measured."""

    def finish(self, unit: Unit, seconds: float) -> dict[str, Any]:
        """Measure a started unit: its figures or its error, and the name of the card."""


def measure(chosen: Sequence[Unit], file: Path, common: Mapping[str, Any], seconds: float, work: Work) -> None:
    """Measure units until the time is over, except those of which `file` has figures. Lines begin with `common`."""
    deadline = time.monotonic() + seconds
    open_units = list(_open(chosen, file))
    for unit in open_units[:1]:
        work.start(unit)
    for number, unit in enumerate(open_units, 1):
        left = deadline - time.monotonic()
        if left < LEAST:
            print(f"{' '.join(unit.key)}: left out, {max(left, 0):.0f} s are left", flush=True)
            continue
        for after in open_units[number : number + 1]:
            work.start(after)
        line = {**common, **_line(unit, min(left, unit.part.limit), work)}
        lines.append(file, line)
        print(json.dumps(line), flush=True)


def _open(chosen: Sequence[Unit], file: Path) -> Iterator[Unit]:
    """The units that can be measured and of which there are no figures."""
    done = {(line["part"], line["subject"]) for line in lines.read(file) if "figures" in line}
    for unit in chosen:
        name = " ".join(unit.key)
        if unit.key in done:
            print(f"{name}: measured before", flush=True)
        elif reason := obstacle(unit):
            print(f"{name}: left out, {reason}", flush=True)
        else:
            yield unit


def _line(unit: Unit, limit: float, work: Work) -> dict[str, Any]:
    """The part of a line that is of this unit alone."""
    started = time.monotonic()
    outcome = work.finish(unit, limit)
    part, subject = unit.key
    return {"part": part, "subject": subject, "seconds": round(time.monotonic() - started, 1), **outcome}


class Processes:
    """A process for each unit. It imports the libraries while the unit before it is measured, then waits for a line of
    input before it touches the device; when its time is over it is ended with all its children."""

    def __init__(self, out: Path, device: str, tiny: bool) -> None:
        self._out, self._device, self._tiny = out, device, tiny
        self._started: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        (out / "logs").mkdir(parents=True, exist_ok=True)

    def start(self, unit: Unit) -> None:
        """See `Work.start`."""
        log = self._file(unit, "log")
        command = [sys.executable, "-m", "bench.gpu.side", *unit.key, self._device, str(self._file(unit, "json"))]
        with log.open("wb") as into:
            self._started[unit.key] = subprocess.Popen(
                [*command, *(["tiny"] if self._tiny else [])],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=into, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def finish(self, unit: Unit, seconds: float) -> dict[str, Any]:
        """See `Work.finish`."""
        process, file = self._started.pop(unit.key), self._file(unit, "json")
        file.unlink(missing_ok=True)
        failure = ""
        try:
            process.communicate(b"start\n", timeout=seconds)
        except subprocess.TimeoutExpired:
            failure = f"took more than {seconds:.0f} s"
        _end(process)
        outcome: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"card": ""}
        if "figures" not in outcome and "error" not in outcome:
            last = self._file(unit, "log").read_text(errors="replace").strip().splitlines()[-3:]
            outcome["error"] = "\n".join([*last, failure or f"the process ended with status {process.returncode}"])
        return outcome

    def close(self) -> None:
        """End the processes that were started and never measured."""
        for process in self._started.values():
            _end(process)

    def _file(self, unit: Unit, kind: str) -> Path:
        return (self._out / "logs" / f"{'-'.join(unit.key)}.{kind}").resolve()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, and the group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""`python -m bench gpu`: measure the parts on this machine's GPU, each with each subject in a process of its own.

A finished unit is a line of `gpu.jsonl`, written at once; a second call measures what is missing or failed. The parent
imports the libraries once and never touches the device: its children are forks.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.gpu import lines
from bench.gpu.parts import ENGINES, PARTS, Unit, obstacle, units
from bench.machine import name_of
from bench.processes import KEPT, revision

LEAST = 15
"""Seconds that must be left for another unit to be started."""
Work = Callable[[Unit, str, bool, float], dict[str, Any]]
"""(unit, device, tiny, seconds) ↦ the figures or the error, and the name of the card."""


def main(words: Sequence[str]) -> None:
    """Measure what was asked for, and print the tables."""
    asked = _arguments(words)
    out = Path(asked.out)
    out.mkdir(parents=True, exist_ok=True)
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ[variable] = str((out / "cache" / name).resolve())
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRL_EXPERIMENTAL_SILENCE": "1"}
    try:
        chosen = units(_names(asked.parts), _names(asked.engines))
    except ValueError as error:
        sys.exit(str(error))
    device = asked.device or ("cpu" if asked.tiny else "cuda")
    measure(chosen, out / "gpu.jsonl", device, asked.tiny, 60 * asked.minutes)
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
    parser.add_argument("--engines", default=",".join(ENGINES), help="engines of this package that are measured")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with tiny shapes, on a CPU unless --device")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--out", default=str(KEPT / "gpu"), help="folder of gpu.jsonl and of compiled kernels")
    return parser.parse_args(list(words))


def measure(
    chosen: Sequence[Unit], file: Path, device: str, tiny: bool, seconds: float, work: Work | None = None
) -> None:
    """Measure units until the time is over, except those of which `file` has figures."""
    deadline = time.monotonic() + seconds
    done = {(line["part"], line["subject"]) for line in lines.read(file) if "figures" in line}
    for unit in chosen:
        name = " ".join(unit.key)
        left = deadline - time.monotonic()
        if unit.key in done:
            print(f"{name}: measured before", flush=True)
        elif reason := obstacle(unit):
            print(f"{name}: left out, {reason}", flush=True)
        elif left < LEAST:
            print(f"{name}: left out, {max(left, 0):.0f} s are left", flush=True)
        else:
            line = _line(unit, device, tiny, min(left, unit.part.limit), work or forked)
            lines.append(file, line)
            print(json.dumps(line), flush=True)


def _line(unit: Unit, device: str, tiny: bool, limit: float, work: Work) -> dict[str, Any]:
    started = time.monotonic()
    part, subject = unit.key
    told = work(unit, device, tiny, limit)
    return {
        "part": part,
        "subject": subject,
        **{library: version(library) for library in ("torch", "transformers")},
        "revision": revision(),
        "tiny": tiny,
        "seconds": round(time.monotonic() - started, 1),
        **told,
    }


def here(unit: Unit, device: str, tiny: bool, seconds: float) -> dict[str, Any]:
    """A unit in this process, without a limit of time."""
    told: dict[str, Any] = {"card": name_of(device)}
    try:
        return told | {"figures": dict(unit.part.measure(device, tiny, unit.subject))}
    except Exception:
        return told | {"error": "\n".join(traceback.format_exc().strip().splitlines()[-6:])}


def forked(unit: Unit, device: str, tiny: bool, seconds: float) -> dict[str, Any]:
    """A unit in a fork of this process, which is ended with all its own children when its time is over."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(unit, device, tiny, sender))
    child.start()
    sender.close()
    told: dict[str, Any] = {"card": ""}
    try:
        if receiver.poll(seconds):
            told = receiver.recv()
        else:
            told["error"] = f"took more than {seconds:.0f} s"
    except EOFError:
        child.join(5)
        told["error"] = f"the process ended with status {child.exitcode}"
    finally:
        _end(child.pid)
        child.join()
    return told


def _child(unit: Unit, device: str, tiny: bool, sender: Connection) -> None:
    os.setsid()
    sender.send(here(unit, device, tiny, 0.0))
    sender.close()
    sys.stdout.flush()


def _end(group: int | None) -> None:
    """End a child that leads a group of processes, and the group."""
    try:
        if group is not None and os.getpgid(group) == group:
            os.killpg(group, signal.SIGKILL)
        elif group is not None:
            os.kill(group, signal.SIGKILL)
    except ProcessLookupError:
        pass

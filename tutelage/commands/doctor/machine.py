"""Checks of this machine: available features, missing ones, and advice."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from tutelage.base import extras
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.version import __version__
from tutelage.commands.serve.settings import PORT
from tutelage.people.store.database import sqlite_version
from tutelage.rollout.serving.asgi_server import listen

if TYPE_CHECKING:
    import torch

State: TypeAlias = Literal["ok", "warning", "fault"]
GIB = 2.0**30
LITTLE_MEMORY, LITTLE_DISK = 3.0, 5.0
"""GiB below which a warning is given: the demonstration needs 1 GiB, a LoRA run of 135 million parameters about 3."""
HELD = 0.2
"""Share of a GPU's memory held by other programs above which a warning is given."""

BUSY = 2.0
"""Load per core, averaged over a minute, above which a warning is given. At 4, two threads took 16 s for a step of the
demonstration that needs .2 s of CPU time."""


@dataclass(frozen=True)
class Check:
    """Result of one check of the machine, a study or a server.

    A `warning` costs time, votes or a feature; with a `fault` a command cannot run, or a guarantee is violated.
    """

    subject: str
    result: str
    state: State = "ok"
    advice: str = ""

    @classmethod
    def warning(cls, subject: str, result: str, advice: str, *, when: bool = True) -> "Check":
        """Return a warning with its advice if `when`, else a check that is ok."""
        return cls(subject, result, "warning", advice) if when else cls(subject, result)


def check_machine(folder: Path | None = None) -> tuple[Check, ...]:
    """Check this machine; disk space is that of `folder`, by default of the current folder.

    Devices, the engine and memory matter only for models: without torch they are skipped, and the extra `train` is
    reported as missing.
    """
    models = (_devices, _engine, _memory) if find_spec("torch") else ()
    parts: tuple[Callable[[], Iterator[Check]], ...] = (
        _versions,
        *models,
        lambda: _disk(folder or Path()),
        lambda: iter([Check("database", f"SQLite {sqlite_version()}")]),
        _ports,
        _extras,
    )
    return tuple(check for part in parts for check in part())


def _versions() -> Iterator[Check]:
    yield Check("tutelage", f"{__version__}, Python {platform.python_version()} ({sys.executable})")
    libraries = [name for name in ("torch", "transformers", "peft", "numpy", "scipy") if find_spec(name) is not None]
    yield Check("libraries", ", ".join(f"{name} {metadata.version(name)}" for name in libraries))


def _devices() -> Iterator[Check]:
    import torch

    cores, load = os.cpu_count() or 1, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    cpu = f"{platform.machine()}, {counted(torch.get_num_threads(), 'thread')} for torch"
    if load > BUSY * cores:
        yield Check.warning(
            "CPU",
            f"{cpu}; busy: on {counted(cores, 'core')}, {load:.0f} programs are running",
            "Training slows down, especially with several threads, which synchronise at each operation: "
            "end other programs, or set OMP_NUM_THREADS=1.",
        )
    else:
        yield Check("CPU", cpu)
    if not torch.cuda.is_available():
        from tutelage.engines.devices import missing_gpu

        yield Check("GPU", f"none: {missing_gpu()}; models run on the CPU")
        return
    for index in range(torch.cuda.device_count()):
        yield _gpu(torch.device("cuda", index))


def _gpu(device: "torch.device") -> Check:
    """The check of a GPU: its compute capability, and its memory, of which other programs may hold much."""
    import torch

    from tutelage.engines.devices import memory_of_other_programs

    properties = torch.cuda.get_device_properties(device)
    total, held = properties.total_memory / GIB, memory_of_other_programs(device) / GIB
    capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
    text = f"{properties.name}, compute capability {capability}, {total - held:,.0f} of {total:,.0f} GiB free"
    advice = "Other programs hold the rest; nvidia-smi lists them."
    return Check.warning(f"GPU {device.index}", text, advice, when=held > HELD * total)


def _engine() -> Iterator[Check]:
    import torch

    from tutelage.engines.choose import VARIABLE, processor_engine

    try:
        engine = processor_engine()
    except TutelageError as error:
        yield Check("engine", "none", "fault", str(error))
        return
    text = f"{engine.name} on the CPU"
    if engine.missing:
        yield Check.warning("engine", f"{text}, without compiled kernels, which is slower", engine.missing)
    else:
        why = f"kernels {engine.kernels}" if engine.kernels else f"{VARIABLE} is {engine.name}"
        yield Check("engine", f"{text} ({why})")
    if engine.products:
        libraries = ", ".join(f"{kind} {library}" for kind, library in engine.products.items())
        yield Check("products", f"float32: {libraries}")
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        yield _engine_on_gpu(torch.device("cuda", index))


def _engine_on_gpu(device: "torch.device") -> Check:
    """The check of the engine that `auto` selects on a GPU."""
    from tutelage.engines.choose import VARIABLE, engine_name
    from tutelage.engines.devices import obstacle

    name, reason, subject = engine_name("auto", device), obstacle(device), f"engine {device.index}"
    if name == "gpu" and not reason:
        return Check(subject, f"gpu on {device} (Triton {import_module('triton').__version__})")
    if name == "plain" and not reason:
        return Check(subject, f"plain on {device} ({VARIABLE} is plain)")
    if name == "plain":
        return Check.warning(subject, f"plain on {device}, which is slower", f"{reason[:1].upper()}{reason[1:]}.")
    why = reason if name == "gpu" else "it is for CPUs"
    return Check(subject, f"none on {device}", "fault", f"{VARIABLE} is {name}, which cannot compute there: {why}.")


def _memory() -> Iterator[Check]:
    import torch

    from tutelage.engines.devices import available_memory

    memory = available_memory(torch.device("cpu")) / GIB
    advice = "Close other programs, or plan a run first: tutelage plan COMMAND ..."
    yield Check.warning("memory", f"{memory:,.1f} GiB free", advice, when=memory < LITTLE_MEMORY)


def _disk(folder: Path) -> Iterator[Check]:
    try:
        disk = shutil.disk_usage(folder).free / GIB
    except OSError as error:
        yield Check("disk", f"{folder}: {error.strerror}", "fault", "Give a folder that exists.")
        return
    text, advice = (f"{disk:,.1f} GiB free in {folder.resolve()}", "Checkpoints take 16 bytes per trained weight.")
    yield Check.warning("disk", text, advice, when=disk < LITTLE_DISK)


def _ports() -> Iterator[Check]:
    try:
        listen("127.0.0.1", PORT).close()
    except TutelageError as error:
        yield Check.warning(f"port {PORT}", "taken, the default of `serve` and `collect serve`", str(error))
        return
    yield Check(f"port {PORT}", "free, the default of `serve` and `collect serve`")


def _extras() -> Iterator[Check]:
    for extra in extras.EXTRAS:
        there = find_spec(extra.modules[0]) is not None
        yield Check(
            f"extra {extra.name}",
            f"installed: {extra.use}" if there else f"not installed: {extra.use}",
            advice="" if there else f"pip install 'tutelage[{extra.name}]'",
        )

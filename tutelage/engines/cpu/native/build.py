"""Locates or compiles the shared library of the sources in this folder for this CPU.

Wheels contain libraries that `hatch_build.py` compiled for several CPU types (TARGETS), in `prebuilt`. The first one
that this CPU can run is used if it was built from the same sources. Otherwise the sources are compiled once for exactly
this CPU. The library is cached in $XDG_CACHE_HOME/tutelage (~/.cache/tutelage), named by a hash of all its inputs: the
sources, the compiler, its flags and the CPU. Cached libraries are therefore never stale, and several machines may share
the folder.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase

SOURCES = [
    Path(__file__).with_name(name)
    for name in (
        *("step.cpp", "float_products.cpp", "half_products.cpp", "packed_attention.cpp"),
        *("elementwise.cpp", "mixed.cpp", "structs.cpp"),
    )
]
COMPILERS = ("g++", "c++", "clang++")
CPUINFO = Path("/proc/cpuinfo")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-Wno-psabi")
"""Compiler flags. Without -ffast-math, since infinities and NaN must propagate through sums and softmax."""
INSTEAD = "Install g++ or clang++ (CXX names another), or use --engine plain."


class Target(NamedTuple):
    """A CPU type with a prebuilt library: its name, the compiler flags, and the required instruction sets by their
    names in /proc/cpuinfo."""

    name: str
    flags: str
    needs: frozenset[str] = frozenset()


_V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
TARGETS = {
    ("linux", "x86_64"): (
        Target(
            "x86-64-v4-amx",
            "-march=x86-64-v4 -mavx512bf16 -mamx-tile -mamx-bf16",
            frozenset(f"{_V4} avx512_bf16 amx_tile amx_bf16".split()),
        ),
        Target("x86-64-v4-bf16", "-march=x86-64-v4 -mavx512bf16", frozenset(f"{_V4} avx512_bf16".split())),
        Target("x86-64-v4", "-march=x86-64-v4", frozenset(_V4.split())),
        Target("x86-64-v3", "-march=x86-64-v3", frozenset(_V3.split())),
    ),
    ("linux", "aarch64"): (Target("armv8-a", "-march=armv8-a"),),
    ("darwin", "arm64"): (Target("apple-m1", "-mcpu=apple-m1"),),
}
"""Targets of wheels by system and machine, fastest first."""
PREBUILT = Path(__file__).with_name("prebuilt")
"""Folder of the prebuilt libraries of the package; absent in a checkout."""


def built() -> Path:
    """The path of the library for this CPU: a prebuilt one, else a cached or newly compiled one. CXX, if set, names the
    compiler and disables prebuilt libraries.

    Raises TutelageError if there is no compiler, if compilation fails, or if the folder is not writable.
    """
    ready = None if os.environ.get("CXX") else _prebuilt()
    if ready is not None:
        return ready
    native = "-march=native" if platform.machine() in ("x86_64", "AMD64", "i686") else "-mcpu=native"
    command = [*_compiler(), *FLAGS, native]
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False).stdout
    name = hashlib.sha256("\0".join([*command, version, processor()]).encode())
    name.update(content())
    target = folder() / f"kernels-{name.hexdigest()[:20]}.so"
    if not target.exists():
        _compile(command, target)
    return target


def targets() -> tuple[Target, ...]:
    """Targets of a wheel built on this machine; empty on platforms without wheels."""
    return TARGETS.get((sys.platform, platform.machine()), ())


def prebuilt_name(target: Target) -> str:
    """File name of the library of these sources for `target`."""
    digest = hashlib.sha256("\0".join([*FLAGS, target.flags]).encode())
    digest.update(content())
    return f"kernels-{target.name}-{digest.hexdigest()[:20]}.so"


def prebuild(target: Target, folder: Path) -> Path:
    """Compile the library for `target` into `folder`, for a wheel. Raises TutelageError as `built` does."""
    path = folder / prebuilt_name(target)
    _compile([*_compiler(), *FLAGS, *target.flags.split()], path)
    return path


def _prebuilt() -> Path | None:
    """The first prebuilt library that matches these sources and that this CPU can run."""
    if not PREBUILT.is_dir():
        return None
    has = _instruction_sets()
    paths = (PREBUILT / prebuilt_name(target) for target in targets() if target.needs <= has)
    return next((path for path in paths if path.exists()), None)


def _instruction_sets() -> frozenset[str]:
    """Instruction sets of the CPU; empty if the system does not report them."""
    lines = (line for line in processor().splitlines() if line.startswith("flags"))
    return frozenset(next(lines, "").partition(":")[2].split())


@cache
def multiplies_bf16() -> bool:
    """Whether this CPU has instructions for bf16 products: AVX512-BF16, AMX, or those of ARM. True if the system does
    not report them."""
    words = {word for line in processor().splitlines() for word in line.split()}
    is_reported = bool(words & {"fpu", "fp"})  # every list of instruction sets has one of them
    return not is_reported or bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def content() -> bytes:
    """Concatenated text of all sources and headers."""
    paths = (*SOURCES, *sorted(SOURCES[0].parent.glob("*.hpp")))
    return b"".join(path.read_bytes() for path in paths)


@phase("compile kernels")
def _compile(command: list[str], target: Path) -> None:
    """Compile the sources, side by side, and link them into `target`, unless another process has done so meanwhile.

    The library is written to a temporary folder and moved at the end, so no process sees an incomplete one.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(dir=target.parent)
    except OSError as error:
        raise TutelageError(
            f"The compiled kernels cannot be written to {target.parent} ({error.strerror}): set XDG_CACHE_HOME "
            "to a writable folder, or use --engine plain."
        ) from error
    with place as name, _only_process(target.parent):
        if target.exists():
            return
        objects = [str(Path(name, source.stem).with_suffix(".o")) for source in SOURCES]
        library = Path(name, target.name)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            tasks = zip(map(str, SOURCES), objects, strict=True)
            list(pool.map(lambda task: _run([*command, "-c", task[0], "-o", task[1]]), tasks))
        _run([*command, *objects, "-o", str(library)])
        os.replace(library, target)


def _run(command: list[str]) -> None:
    """Run the compiler. Raises TutelageError if it fails."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise TutelageError(
            f"The kernels could not be compiled: {shlex.join(command)} ended with status "
            f"{process.returncode} ({_first_error(process.stderr)}). {INSTEAD}"
        )


@contextmanager
def _only_process(folder: Path) -> Iterator[None]:
    """Lock of a folder among the processes of this machine, where the system and the file system have locks."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            opened = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _compiler() -> list[str]:
    """The compiler command, including flags from CXX."""
    command = shlex.split(os.environ.get("CXX", ""))
    for name in command[:1] or COMPILERS:
        if shutil.which(name):
            return command or [name]
    names = command[0] if command else ", ".join(COMPILERS)
    raise TutelageError(f"Compiling the kernels needs a C++ compiler, but none was found (tried {names}). {INSTEAD}")


def folder() -> Path:
    """Cache folder for machine-specific files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tutelage"


def processor() -> str:
    """Name and instruction sets of the CPU, as far as the system reports them."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    prefixes = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(prefixes)}))


def _first_error(output: str) -> str:
    """The first error line of the compiler's output, cut to 300 characters."""
    lines = [line for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")[:300]

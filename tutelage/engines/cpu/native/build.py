"""Compiles the sources beside this file into a shared library for this processor, once.

The library is kept in $XDG_CACHE_HOME/tutelage (~/.cache/tutelage), under a name that is a hash of all that it depends
on: the sources, the compiler, its flags and the processor. So no library in that folder is ever out of date, and
several machines may share the folder.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from tutelage.errors import TutelageError

SOURCES = [
    Path(__file__).with_name(name)
    for name in ("step.cpp", "packed_attention.cpp", "elementwise.cpp", "structs.cpp")
]
COMPILERS = ("g++", "c++", "clang++")
CPUINFO = Path("/proc/cpuinfo")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-Wno-psabi")
"""Flags of the compiler. Without -ffast-math, since infinities and NaN must pass through sums and softmax."""
INSTEAD = "Install g++ or clang++ (CXX names another), or use --engine plain."


def built() -> Path:
    """The path of the library for this processor, which is compiled unless it exists.

    Raises TutelageError where there is no compiler, where compiling fails, and where the folder cannot be written to.
    """
    command = [*_compiler(), *FLAGS, _tuned()]
    name = hashlib.sha256("\0".join([*command, _version(command[0]), _processor()]).encode())
    for path in (*SOURCES, *sorted(SOURCES[0].parent.glob("*.hpp"))):
        name.update(path.read_bytes())
    target = _folder() / f"kernels-{name.hexdigest()[:20]}.so"
    if not target.exists():
        _compile(command, target)
    return target


def _compile(command: list[str], target: Path) -> None:
    """Compile the sources into `target`.

    The compiler writes to a temporary name, which is renamed at the end: two processes may compile at once, and neither
    sees an incomplete library.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(suffix=".so", dir=target.parent)
    except OSError as error:
        raise TutelageError(
            f"The compiled kernels cannot be kept in {target.parent} ({error.strerror}): set XDG_CACHE_HOME to "
            "a folder that can be written to, or use --engine plain."
        ) from error
    os.close(number)
    try:
        done = subprocess.run(
            [*command, *map(str, SOURCES), "-o", name], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise TutelageError(
                f"The kernels could not be compiled: {shlex.join(command)} ended with status "
                f"{done.returncode} ({_first_error(done.stderr)}). {INSTEAD}"
            )
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _compiler() -> list[str]:
    """The command of the compiler, with the flags that CXX may contain."""
    wanted = shlex.split(os.environ.get("CXX", ""))
    for name in wanted[:1] or COMPILERS:
        if shutil.which(name):
            return wanted or [name]
    looked = wanted[0] if wanted else ", ".join(COMPILERS)
    raise TutelageError(
        f"Compiling the kernels needs a C++ compiler, and there is none here (looked for {looked}). {INSTEAD}"
    )


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tutelage"


def _tuned() -> str:
    """The flag that makes a compiler use all instructions of this processor."""
    return "-march=native" if platform.machine() in ("x86_64", "AMD64", "i686") else "-mcpu=native"


def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def _processor() -> str:
    """The name and the instruction sets of the processor, as far as the system tells them."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    prefixes = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(prefixes)}))


def _first_error(output: str) -> str:
    """The first line of the compiler's output that contains an error, at most 300 characters of it."""
    lines = [line for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")[:300]

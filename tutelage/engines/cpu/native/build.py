"""From the sources beside this file to a shared library: compiled for this processor when first needed, and kept.

It is kept in $XDG_CACHE_HOME/tutelage (~/.cache/tutelage), under a name made of all that it depends on: the source, the
compiler, its flags and the processor. So nothing that is there is ever out of date, and folders may be shared.
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

SOURCES = [Path(__file__).with_name(name) for name in ("step.cpp", "trees.cpp", "passes.cpp")]
COMPILERS = ("g++", "c++", "clang++")
CPUINFO = Path("/proc/cpuinfo")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-Wno-psabi")
"""Not -ffast-math: a sum of weights and shares must stay what it is where a number is infinite or none."""
INSTEAD = "Install g++ or clang++ (CXX names another), or use --engine plain."


def built() -> Path:
    """The library for this processor. Raises TutelageError where it is not there and cannot be made."""
    command = [*_compiler(), *FLAGS, _tuned()]
    name = hashlib.sha256("\0".join([*command, _version(command[0]), _processor()]).encode())
    for path in (*SOURCES, *sorted(SOURCES[0].parent.glob("*.hpp"))):
        name.update(path.read_bytes())
    target = _folder() / f"kernels-{name.hexdigest()[:20]}.so"
    if not target.exists():
        _compile(command, target)
    return target


def _compile(command: list[str], target: Path) -> None:
    """Under a name of its own first: two processes may do it at once, and neither sees half a library."""
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
    """As a command: CXX may bring flags along."""
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
    """What makes a compiler use all that this processor can do."""
    return "-march=native" if platform.machine() in ("x86_64", "AMD64", "i686") else "-mcpu=native"


def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def _processor() -> str:
    """What it can do, as far as the system says: folders may be shared by machines."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(telling)}))


def _first_error(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "without a word")[:300]

"""What tests need of the machine that compile something."""

import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest

from tutelage.base.errors import TutelageError
from tutelage.engines.cpu import products
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.native import bindings, build, elementwise, matrix_products


def _is_there() -> bool:
    try:
        return bool(build._compiler())
    except TutelageError:
        return False


needs_compiler = pytest.mark.skipif(not _is_there(), reason="there is no C++ compiler")

needs_tiles = pytest.mark.skipif(
    "amx_bf16" not in build._instruction_sets(), reason="this processor has no tiles to do without"
)

_NARROWER = (
    ["-mno-avx512f", *(pytest.param(f"{flag} -O3", marks=pytest.mark.long) for flag in ("-mno-avx512f", "-mno-avx"))]
    if platform.machine() in ("x86_64", "AMD64")
    else []
)
_TILES = Path(__file__).with_name("software_tiles.hpp")

narrower_registers = pytest.mark.parametrize("flag", _NARROWER)
"""What tells a compiler to do without the widest registers: a vector then takes several, as on other processors."""

other_processors = pytest.mark.parametrize(
    "flag",
    [
        *_NARROWER,
        pytest.param(
            f"-DSOFTWARE_TILES={crc32(_TILES.read_bytes())} -include {shlex.quote(str(_TILES))}",
            id="tiles",
            marks=pytest.mark.skipif(
                sys.platform != "linux" or "avx512_bf16" not in build._instruction_sets(),
                reason="pairs are not multiplied by tiles here",
            ),
        ),
    ],
)
"""What makes the kernels in bfloat16 those of other processors: narrower registers, and the tiles of AMX in software.
Compiled libraries are kept by the command that made them, which the checksum makes another when the header changes."""


@contextmanager
def compiled_with(flag: str) -> Iterator[None]:
    """Inside, the library is another, compiled with a flag more; unless that says so, at a level of optimisation that
    takes half the time to compile."""
    with pytest.MonkeyPatch.context() as patch:
        if "-O" not in flag:
            patch.setattr(build, "FLAGS", tuple("-O1" if each == "-O3" else each for each in build.FLAGS))
        patch.setenv("CXX", f"{build._compiler()[0]} {flag}")
        forget_library()
        yield
    forget_library()


@contextmanager
def uncompiled_steps() -> Iterator[None]:
    """Inside, answers are decoded without the compiled step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Capabilities, "has_compiled_step", lambda capabilities: False)
        yield


def forget_library() -> None:
    """What was compiled is looked for again, and tried again."""
    for known in (
        bindings.library,
        bindings._function,
        bindings.is_available,
        elementwise._agree_with_torch,
        elementwise._mixed_agree_with_torch,
        matrix_products._floats_agree_with_torch,
        matrix_products._panels_agree_with_torch,
    ):
        known.cache_clear()
    products.forget()

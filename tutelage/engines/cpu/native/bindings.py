"""Python bindings of the compiled library: function signatures, struct checks and the thread pool."""

import logging
from ctypes import CDLL, POINTER, Structure, alignment, byref, c_char_p, c_float, c_int64, c_void_p, cast, sizeof
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.engines.cpu.native.build import built
from tutelage.engines.cpu.native.structs import (
    STRUCTS,
    ActivationBlocks,
    FloatProduct,
    Matrix,
    PackedSequence,
    StepLines,
    StepModel,
    ThreadPool,
)

LANES = 16
"""Floats per vector of the kernels."""
_log = logging.getLogger(__name__)

_TYPES: dict[str, Any] = {
    "p": c_void_p,
    "i": c_int64,
    "f": c_float,
    "T": POINTER(ThreadPool),
    "M": POINTER(Matrix),
    "F": POINTER(FloatProduct),
    "S": POINTER(PackedSequence),
    "A": POINTER(ActivationBlocks),
    "m": POINTER(POINTER(StepModel)),
    "l": POINTER(POINTER(StepLines)),
}
"""Argument types: pointers to numbers, integers and floats, then pointers to structs."""
SIZES = {
    "step_workspace": "mlii",
    "piece_workspace": "mlip",
    "float_product_workspace": "F",
    "packed_attention_workspace": "S",
    "parts": "ii",
}
"""Functions that return a number, with their argument types."""
KERNELS = {
    "step": "TmliApppp",
    "piece_attention": "Tmliipppppp",
    "product": "TMippp",
    "half_product": "TMippppp",
    "float_product": "TFp",
    "pack": "Tpiipi",
    "pack_half": "Tpiipi",
    "copy_half": "Tpiipi",
    "packed_attention": "TSpppp",
    "packed_attention_gradients": "TSppppppppp",
    "half_attention": "TSpppp",
    "half_attention_gradients": "TSpppppppp",
    "rms_norm": "Tiippfpp",
    "scale_rows": "Tiipppp",
    "norm_gradients": "Tiippppppp",
    "swiglu": "Tippp",
    "gate_gradients": "Tippppp",
    "rotate": "Tiiipppfp",
    "sum_of_squares": "Tipp",
    "softmax": "Tiipfipp",
    "logit_gradients": "Tiipppf",
    "sample": "Tiipfpppp",
    "mixed_norm": "Tiipppfppp",
    "mixed_norm_gradients": "Tiipppppppp",
    "mixed_swiglu": "Tiipp",
    "mixed_swiglu_gradients": "Tiipppp",
    "mixed_rotate": "Tiiiipppfpfp",
    "mixed_add": "Tippp",
}
"""Functions that run on a thread pool, with their argument types."""
SERIAL = {"exponential": "ppi"}
"""Functions that run on one thread."""


@cache
def library() -> Any:
    """The loaded library, with typed functions.

    Raises TutelageError if it cannot be compiled or loaded, or if a struct differs in size from Python's.
    """
    path = built()
    try:
        found = CDLL(str(path))
    except OSError as error:
        raise TutelageError(
            f"The compiled kernels {path} cannot be loaded ({error}): delete the file to rebuild it."
        ) from error
    _check_structs(found, path)
    for functions, result in ((SIZES, c_int64), (KERNELS, None), (SERIAL, None)):
        for name, types in functions.items():
            function = getattr(found, f"tutelage_{name}")
            function.argtypes, function.restype = [_TYPES[letter] for letter in types], result
    return found


def compute(kernel: str, *arguments: Any) -> None:
    """Call one of `KERNELS` on torch's thread pool. Tensors and structs are passed by address."""
    _function(kernel)(byref(thread_pool()), *map(_passed, arguments))


def size_of(function: str, *arguments: Any) -> int:
    """The result of one of `SIZES`."""
    size: int = _function(function)(*map(_passed, arguments))
    return size


@cache
def _function(name: str) -> Any:
    return getattr(library(), f"tutelage_{name}")


def _passed(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    return byref(argument) if isinstance(argument, Structure) else argument


@cache
def is_available() -> bool:
    """Whether the compiled library can be loaded. Logs one warning with the reason if it cannot."""
    try:
        library()
    except TutelageError as error:
        _log.warning("Decoding steps and attention are not compiled for this machine, which takes longer. %s", error)
        return False
    return True


def warn_disabled(reason: str) -> None:
    """Log that a compiled kernel failed its trial and is disabled, with the `reason`."""
    _log.warning("%s Please report this with your CPU and compiler.", reason)


def _check_structs(found: CDLL, path: Path) -> None:
    """Raise TutelageError if the size or alignment of a struct differs between the library and Python."""
    found.tutelage_struct_layout.argtypes = [c_char_p, POINTER(c_int64), POINTER(c_int64)]
    found.tutelage_struct_layout.restype = c_int64
    for struct in STRUCTS:
        compiled, own = _compiled_layout(found, struct), (sizeof(struct), alignment(struct))
        if compiled != own:
            raise TutelageError(
                f"The compiled kernels {path} have a struct {struct.__name__} of {counted(compiled[0], 'byte')}, "
                f"aligned to {compiled[1]}, where Python has one of {counted(own[0], 'byte')}, aligned to {own[1]}. "
                "Delete the file to rebuild it; if that does not help, please report it with the compiler, "
                "and use --engine plain."
            )


def _compiled_layout(found: CDLL, struct: type[Structure]) -> tuple[int, int]:
    """Size and alignment of a struct in the library, in bytes; zeros if the library lacks it."""
    size, aligned = c_int64(0), c_int64(0)
    found.tutelage_struct_layout(struct.__name__.encode(), byref(size), byref(aligned))
    return size.value, aligned.value


def thread_pool() -> ThreadPool:
    """Torch's thread pool, with `torch.get_num_threads()` threads."""
    return _thread_pool(torch.get_num_threads())


@cache
def _thread_pool(threads: int) -> ThreadPool:
    return ThreadPool(*_runtime(), threads)


@cache
def _runtime() -> tuple[int | None, ...]:
    """Addresses of GOMP_parallel and omp_get_thread_num in torch's OpenMP runtime; None without one.

    dlsym searches a library and its dependencies. The runtimes of GCC, LLVM and Intel all export these names.
    """
    names = ("GOMP_parallel", "omp_get_thread_num")
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            loaded = CDLL(str(path))
            return tuple(cast(getattr(loaded, name), c_void_p).value for name in names)
        except (OSError, AttributeError):
            continue
    return (None,) * len(names)

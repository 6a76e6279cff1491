"""The compiled library in Python: its functions, a check of the structs they take, and the threads they run on."""

import logging
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    alignment,
    byref,
    c_char_p,
    c_float,
    c_int64,
    c_void_p,
    cast,
    sizeof,
)
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
"""Floats of a vector of the kernels."""
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
"""The types of arguments: pointers to numbers, integers and floats, then pointers to structs."""
SIZES = {
    "step_workspace": "mlii",
    "float_product_workspace": "F",
    "packed_attention_workspace": "S",
    "parts": "ii",
}
"""The functions that return a number, with the types of their arguments."""
KERNELS = {
    "step": "TmliApppp",
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
    "softmax": "Tiippp",
    "mixed_norm": "Tiipppfppp",
    "mixed_norm_gradients": "Tiipppppppp",
    "mixed_swiglu": "Tiipp",
    "mixed_swiglu_gradients": "Tiipppp",
    "mixed_rotate": "Tiiiipppfpfp",
    "mixed_add": "Tippp",
}
"""The functions that compute something on the threads of a pool, with the types of their arguments."""
SERIAL = {"exponential": "ppi"}
"""The functions that compute something on one thread."""


@cache
def library() -> Any:
    """The loaded library, with the types of its functions.

    Raises TutelageError if it cannot be compiled or loaded, and if a struct has another size than in Python.
    """
    path = built()
    try:
        found = CDLL(str(path))
    except OSError as error:
        raise TutelageError(
            f"The compiled kernels {path} cannot be loaded ({error}): delete the file to have it made anew."
        ) from error
    _check_structs(found, path)
    for functions, result in ((SIZES, c_int64), (KERNELS, None), (SERIAL, None)):
        for name, types in functions.items():
            function = getattr(found, f"tutelage_{name}")
            function.argtypes, function.restype = [_TYPES[letter] for letter in types], result
    return found


def compute(kernel: str, *arguments: Any) -> None:
    """Call one of `KERNELS` on the threads of torch's pool. Tensors and structs are passed by their addresses."""
    function = getattr(library(), f"tutelage_{kernel}")
    function(byref(thread_pool()), *map(_passed, arguments))


def size_of(function: str, *arguments: Any) -> int:
    """The result of one of `SIZES`."""
    size: int = getattr(library(), f"tutelage_{function}")(*map(_passed, arguments))
    return size


def _passed(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    return byref(argument) if isinstance(argument, Structure) else argument


@cache
def is_available() -> bool:
    """Whether the compiled library can be loaded. Logs one warning with the reason where it cannot."""
    try:
        library()
    except TutelageError as error:
        _log.warning(
            "Decoding steps and attention are not compiled for this machine, which takes longer. %s", error
        )
        return False
    return True


def warn_disabled(reason: str) -> None:
    """Log that a compiled kernel failed its trial and is not used, for the `reason` given."""
    _log.warning("%s Please report that, with the processor and the compiler.", reason)


def _check_structs(found: CDLL, path: Path) -> None:
    """Raise TutelageError if a struct has another size or alignment in the library than in Python."""
    found.tutelage_struct_layout.argtypes = [c_char_p, POINTER(c_int64), POINTER(c_int64)]
    found.tutelage_struct_layout.restype = c_int64
    for struct in STRUCTS:
        compiled, own = _compiled_layout(found, struct), (sizeof(struct), alignment(struct))
        if compiled != own:
            raise TutelageError(
                f"The compiled kernels {path} have a struct {struct.__name__} of {counted(compiled[0], 'byte')}, "
                f"aligned to {compiled[1]}, where Python has one of {counted(own[0], 'byte')}, aligned to {own[1]}. "
                "Delete the file to have it made anew; if that does not help, please report it with the compiler, "
                "and use --engine plain."
            )


def _compiled_layout(found: CDLL, struct: type[Structure]) -> tuple[int, int]:
    """Size and alignment of a struct in the library, in bytes; zeros where the library has none of that name."""
    size, aligned = c_int64(0), c_int64(0)
    found.tutelage_struct_layout(struct.__name__.encode(), byref(size), byref(aligned))
    return size.value, aligned.value


def thread_pool() -> ThreadPool:
    """The threads of torch's pool, as many as `torch.get_num_threads()` says now."""
    return ThreadPool(*_runtime(), torch.get_num_threads())


@cache
def _runtime() -> tuple[int | None, ...]:
    """Addresses of GOMP_parallel and omp_get_thread_num in the OpenMP runtime that torch runs on; None without one.

    dlsym looks for a name in a library and in those that it was linked with. The runtimes of GCC, LLVM and Intel all
    have these names.
    """
    names = ("GOMP_parallel", "omp_get_thread_num")
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            loaded = CDLL(str(path))
            return tuple(cast(getattr(loaded, name), c_void_p).value for name in names)
        except (OSError, AttributeError):
            continue
    return (None,) * len(names)

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

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.engines.cpu.native.build import built
from tutelage.engines.cpu.native.structs import (
    STRUCTS,
    ActivationBlocks,
    FloatProduct,
    Lines,
    Matrix,
    Model,
    ThreadPool,
)

LANES = 16
"""Floats of a vector of the kernels."""
_log = logging.getLogger(__name__)


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


@cache
def library() -> Any:
    """The loaded library, with the types of its functions.

    Raises TutelageError where it cannot be compiled or loaded, and where a struct has another size than in `structs`.
    """
    path = built()
    try:
        found = CDLL(str(path))
    except OSError as error:
        raise TutelageError(
            f"The compiled kernels {path} cannot be loaded ({error}): delete the file to have it made anew."
        ) from error
    _check_structs(found, path)
    pool, model, lines, matrix = POINTER(ThreadPool), POINTER(Model), POINTER(Lines), POINTER(Matrix)
    batches: list[Any] = [POINTER(model), POINTER(lines), c_int64]
    found.tutelage_step_workspace.argtypes = [*batches, c_int64]
    found.tutelage_step.argtypes = [pool, *batches, POINTER(ActivationBlocks), *[c_void_p] * 4]
    found.tutelage_product.argtypes = [pool, matrix, c_int64, *[c_void_p] * 3]
    found.tutelage_pack.argtypes = [pool, c_void_p, c_int64, c_int64, c_void_p, c_int64]
    found.tutelage_pack_half.argtypes = found.tutelage_pack.argtypes
    found.tutelage_copy_half.argtypes = found.tutelage_pack.argtypes
    found.tutelage_half_product.argtypes = [pool, matrix, c_int64, *[c_void_p] * 5]
    found.tutelage_float_product_workspace.argtypes = [POINTER(FloatProduct)]
    found.tutelage_float_product.argtypes = [pool, POINTER(FloatProduct), c_void_p]
    found.tutelage_exponential.argtypes = [c_void_p, c_void_p, c_int64]
    found.tutelage_packed_attention_workspace.argtypes = [c_void_p]
    found.tutelage_packed_attention.argtypes = [pool, *[c_void_p] * 5]
    found.tutelage_packed_attention_gradients.argtypes = [pool, *[c_void_p] * 10]
    found.tutelage_half_attention.argtypes = found.tutelage_packed_attention.argtypes
    found.tutelage_half_attention_gradients.argtypes = [pool, *[c_void_p] * 9]
    found.tutelage_rms_norm.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 2, c_float, *[c_void_p] * 2]
    found.tutelage_scale_rows.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 4]
    found.tutelage_norm_gradients.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 7]
    found.tutelage_swiglu.argtypes = [pool, c_int64, *[c_void_p] * 3]
    found.tutelage_gate_gradients.argtypes = [pool, c_int64, *[c_void_p] * 5]
    found.tutelage_rotate.argtypes = [pool, *[c_int64] * 3, *[c_void_p] * 3, c_float, c_void_p]
    found.tutelage_sum_of_squares.argtypes = [pool, c_int64, *[c_void_p] * 2]
    found.tutelage_softmax.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 3]
    found.tutelage_mixed_norm.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 3, c_float, *[c_void_p] * 3]
    found.tutelage_mixed_norm_gradients.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 8]
    found.tutelage_mixed_swiglu.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 2]
    found.tutelage_mixed_swiglu_gradients.argtypes = [pool, c_int64, c_int64, *[c_void_p] * 4]
    norm: list[Any] = [c_void_p, c_float, c_void_p]
    found.tutelage_mixed_rotate.argtypes = [pool, *[c_int64] * 4, *[c_void_p] * 3, c_float, *norm]
    found.tutelage_mixed_add.argtypes = [pool, c_int64, *[c_void_p] * 3]
    found.tutelage_parts.argtypes = [c_int64, c_int64]
    for name in ("step_workspace", "float_product_workspace", "packed_attention_workspace", "parts"):
        getattr(found, f"tutelage_{name}").restype = c_int64
    steps = (
        "step",
        "product",
        "half_product",
        "float_product",
        "pack",
        "pack_half",
        "copy_half",
        "exponential",
    )
    attention = [f"{kind}_attention{part}" for kind in ("packed", "half") for part in ("", "_gradients")]
    norms, sums = ("rms_norm", "scale_rows", "norm_gradients"), ("sum_of_squares", "softmax")
    elementwise = (*norms, "swiglu", "gate_gradients", "rotate", *sums)
    mixed = ("norm", "norm_gradients", "swiglu", "swiglu_gradients", "rotate", "add")
    for name in (*steps, *attention, *elementwise, *(f"mixed_{name}" for name in mixed)):
        getattr(found, f"tutelage_{name}").restype = None
    return found


def _check_structs(found: CDLL, path: Path) -> None:
    """Raise TutelageError where a struct has another size or alignment in the library than in Python."""
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

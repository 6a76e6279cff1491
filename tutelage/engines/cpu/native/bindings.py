"""What was compiled as Python sees it: its functions, the structures of `step.cpp`, and the threads they run on."""

import logging
from ctypes import CDLL, POINTER, Structure, c_float, c_int64, c_void_p, cast
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tutelage.engines.cpu.native.build import built
from tutelage.errors import TutelageError

LANES = 16
"""Numbers of a vector."""
_log = logging.getLogger(__name__)


class Team(Structure):
    """The threads of torch's own pool: functions of the OpenMP runtime that it runs on, or none."""

    _fields_ = [
        ("parallel", c_void_p),
        ("thread", c_void_p),
        ("threads", c_int64),
    ]


class Matrix(Structure):
    """W [out, in] as panels, and b."""

    _fields_ = [("panels", c_void_p), ("bias", c_void_p), ("out", c_int64), ("in_", c_int64)]


class Layer(Structure):
    """The weights of a layer, and where its keys and values are."""

    _fields_ = [
        *((name, Matrix) for name in ("heads", "mixed", "gate_and_up", "down")),
        *((name, c_void_p) for name in ("norm", "query_norm", "key_norm", "gate_norm")),
        *((name, c_float) for name in ("epsilon", "query_epsilon", "key_epsilon", "gate_epsilon", "scale")),
        *((name, c_void_p) for name in ("prompt_keys", "prompt_values", "keys", "values")),
    ]


class Model(Structure):
    """All layers, of one shape, and the norm behind them."""

    _fields_ = [
        ("layers", POINTER(Layer)),
        *((name, c_int64) for name in ("count", "hidden", "heads", "keys", "width", "inner")),
        ("norm", c_void_p),
        ("epsilon", c_float),
    ]


class Lines(Structure):
    """Which lines there are, and the strides of the keys and values."""

    _fields_ = [
        *((name, c_int64) for name in ("count", "prompts", "longest", "written")),
        *((name, c_void_p) for name in ("first", "lengths", "slots")),
        ("prompt_key_steps", c_int64 * 3),
        ("prompt_value_steps", c_int64 * 3),
        ("answer_steps", c_int64 * 4),
    ]


class Kept(Structure):
    """Where what the layers compute is kept (see `activations.Recording`)."""

    _fields_ = [
        ("blocks", POINTER(c_void_p)),
        ("groups", c_int64),
        ("places", POINTER(c_int64)),
        ("group", c_void_p),
        ("first", c_void_p),
    ]


@cache
def is_there() -> bool:
    """Whether `library` is; says what is missing where it is not."""
    try:
        library()
    except TutelageError as error:
        _log.warning(
            "Decoding steps and attention are not compiled for this machine, which takes longer. %s", error
        )
        return False
    return True


def distrust(told: str) -> None:
    """Say that something compiled was tried and is not used."""
    _log.warning("%s Please report that, with the processor and the compiler.", told)


@cache
def library() -> Any:
    """The functions of `step.cpp` and `trees.cpp`. Raises TutelageError where they cannot be compiled."""
    path = built()
    try:
        found = CDLL(str(path))
    except OSError as error:
        raise TutelageError(
            f"The compiled kernels {path} cannot be loaded ({error}): delete the file to have it made anew."
        ) from error
    team, model, lines, matrix = POINTER(Team), POINTER(Model), POINTER(Lines), POINTER(Matrix)
    found.tutelage_room.argtypes, found.tutelage_room.restype = [model, lines, c_int64], c_int64
    found.tutelage_step.argtypes = [team, model, lines, POINTER(Kept), *[c_void_p] * 4]
    found.tutelage_product.argtypes = [team, matrix, c_int64, *[c_void_p] * 3]
    found.tutelage_pack.argtypes = [team, c_void_p, c_int64, c_int64, c_void_p, c_int64]
    found.tutelage_exponential.argtypes = [c_void_p, c_void_p, c_int64]
    found.tutelage_trees_desk.argtypes, found.tutelage_trees_desk.restype = [c_void_p], c_int64
    found.tutelage_trees.argtypes = [team, *[c_void_p] * 5]
    found.tutelage_trees_gradients.argtypes = [team, *[c_void_p] * 10]
    found.tutelage_scale_rows.argtypes = [team, c_int64, c_int64, *[c_void_p] * 4]
    found.tutelage_norm_gradients.argtypes = [team, c_int64, c_int64, *[c_void_p] * 7]
    found.tutelage_gate_gradients.argtypes = [team, c_int64, *[c_void_p] * 5]
    found.tutelage_turn.argtypes = [team, *[c_int64] * 3, *[c_void_p] * 3, c_float, c_void_p]
    found.tutelage_squares.argtypes = [team, c_int64, *[c_void_p] * 2]
    found.tutelage_shares.argtypes = [team, c_int64, c_int64, *[c_void_p] * 3]
    found.tutelage_parts.argtypes, found.tutelage_parts.restype = [c_int64, c_int64], c_int64
    passes = ("scale_rows", "norm_gradients", "gate_gradients", "turn", "squares", "shares")
    for name in ("step", "product", "pack", "exponential", "trees", "trees_gradients", *passes):
        getattr(found, f"tutelage_{name}").restype = None
    return found


def team() -> Team:
    """As many threads as torch has now."""
    return Team(*_runtime(), torch.get_num_threads())


@cache
def _runtime() -> tuple[int | None, ...]:
    """GOMP_parallel and the number of a thread, from the very runtime whose threads wait for torch; none without one.

    A name that is looked for in a library is looked for in those that it was linked with too. GCC's, LLVM's and Intel's
    runtimes all have these names.
    """
    names = ("GOMP_parallel", "omp_get_thread_num")
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            loaded = CDLL(str(path))
            return tuple(cast(getattr(loaded, name), c_void_p).value for name in names)
        except (OSError, AttributeError):
            continue
    return (None,) * len(names)

"""Matrix products in float32, each by the fastest library on this machine.

    output           y = x Wᵀ + b
    input gradient   ∂x = G W
    weight gradient  ∂W = Gᵀ X        G: the gradient of y

The libraries are `own` (`native.matrix_products`), `blas` (used by torch's products; MKL on most machines) and `onednn`
(oneDNN on dense tensors). MKL does not use the wide registers of AMD CPUs. The fastest library is determined by a
benchmark (see `Products.measure`), once per machine, version of torch and number of threads, and stored in a file
beside the compiled kernels. The environment variable `TUTELAGE_PRODUCTS` overrides it.

With `own`, outputs are bit-identical whatever the other rows, and weight gradients are accumulated in place.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.engines.cpu.native import build, matrix_products

Library = Literal["own", "blas", "onednn"]
VARIABLE = "TUTELAGE_PRODUCTS"
"""Environment variable that overrides the benchmark: a library, or `KIND=LIBRARY` pairs separated by commas."""
WIDE = 4096
"""Number of weight rows from which a layer counts as a head."""
MARGIN, OUTPUT_MARGIN = 0.05, 0.25
"""Relative saving in time required to prefer another library to `own`, for gradients and for outputs: a policy without
invariant outputs (`Products.is_invariant`) scores what it has sampled in another forward pass."""
LAYER, HEAD = (512, 576, 1536), (512, 512, 8192)
"""Rows, features and outputs of the benchmarked products."""
BLOCK = 1 << 20
"""Elements of a weight gradient that oneDNN computes at once before accumulation."""


@dataclass(frozen=True)
class Products:
    """The library of each kind of product, for layers and for heads (weights with at least `WIDE` rows)."""

    output: Library = "own"
    input_gradient: Library = "own"
    weight_gradient: Library = "own"
    head_output: Library = "own"
    head_input_gradient: Library = "own"
    head_weight_gradient: Library = "own"

    @classmethod
    def parse(cls, text: str) -> "Products":
        """Parse the value of `VARIABLE`. Raises TutelageError for an unknown kind or library."""
        kinds = [kind.name for kind in fields(cls)]
        choices: dict[str, Any] = {}
        for part in text.split(","):
            kind, _, library = part.strip().rpartition("=")
            if library not in get_args(Library) or kind not in ("", *kinds):
                raise TutelageError(
                    f"{VARIABLE} is {text!r}, and {part.strip()!r} names no product: use a library "
                    f"({', '.join(get_args(Library))}) for all, or KIND=LIBRARY, with KIND one of {', '.join(kinds)}."
                )
            choices |= dict.fromkeys(kinds, library) if not kind else {kind: library}
        return cls(**choices)

    @classmethod
    def measure(cls) -> "Products":
        """Benchmark products of sizes `LAYER` and `HEAD`, and select the fastest library of each kind. Takes about 1
        s."""
        return cls(
            **{
                kind: _fastest(times, OUTPUT_MARGIN if kind.endswith("output") else MARGIN)
                for kind, times in measure().items()
            }
        )

    def on_this_machine(self) -> "Products":
        """A copy with libraries missing on this machine replaced by torch's products."""
        has = available()
        return Products(**{kind: library if library in has else "blas" for kind, library in asdict(self).items()})

    @property
    def is_invariant(self) -> bool:
        """Whether outputs are bit-identical for any other rows and in a decoding step."""
        return self.output == self.head_output == "own"


def output(
    x: Float[Tensor, "N in"],
    weight: Float[Tensor, "out in"],
    bias: Float[Tensor, " out"] | None = None,
    total: Float[Tensor, "N out"] | None = None,
    *,
    library: Library | None = None,
) -> Float[Tensor, "N out"]:
    """x Wᵀ + b, added to `total` in place if given."""
    library = library or _library("output", weight, x)
    if library == "own":
        return matrix_products.multiply(x, weight.T, total, bias=bias, accumulate=total is not None)
    y: Tensor = _onednn(x, weight, bias) if library == "onednn" else torch.nn.functional.linear(x, weight, bias)
    return y if total is None else total.add_(y)


def input_gradient(
    grad: Float[Tensor, "N out"],
    weight: Float[Tensor, "out in"],
    total: Float[Tensor, "N in"] | None = None,
    *,
    accumulate: bool = True,
    library: Library | None = None,
) -> Float[Tensor, "N in"]:
    """G W, added to `total` if given, or written to it without `accumulate`."""
    library = library or _library("input_gradient", weight, grad)
    accumulate = accumulate and total is not None
    if library == "own":
        return matrix_products.multiply(grad, weight, total, accumulate=accumulate)
    if library == "blas":
        return grad @ weight if total is None else total.addmm_(grad, weight, beta=int(accumulate))
    y = _onednn(grad, weight.T)
    if total is None:
        return y
    return total.add_(y) if accumulate else total.copy_(y)


def weight_gradient(
    grad: Float[Tensor, "N out"],
    x: Float[Tensor, "N in"],
    total: Float[Tensor, "out in"] | None = None,
    *,
    accumulate: bool = True,
    library: Library | None = None,
) -> Float[Tensor, "out in"]:
    """Gᵀ X, added to `total` if given, or written to it without `accumulate`."""
    library = library or _library("weight_gradient", grad.T, x)
    accumulate = accumulate and total is not None
    if library == "own":
        return matrix_products.multiply(grad.T, x, total, accumulate=accumulate)
    if total is None:
        total = x.new_empty(grad.shape[1], x.shape[1])
    if library == "blas":
        return total.addmm_(grad.T, x, beta=int(accumulate))
    right = x.T.contiguous()
    rows = max(1, BLOCK // x.shape[1])
    for part, left in zip(total.split(rows), grad.T.split(rows), strict=True):
        term = _onednn(left.contiguous(), right)
        part.add_(term) if accumulate else part.copy_(term)
    return total


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b by oneDNN, which also accepts transposed views."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _library(kind: str, weight: Tensor, x: Tensor) -> Library:
    """The library for a kind of product; torch's for other dtypes and devices, and for empty matrices."""
    float32 = weight.dtype == x.dtype == torch.float32
    if not float32 or x.device.type != "cpu" or not weight.numel() * x.numel():
        return "blas"
    library: Library = getattr(products(), kind if weight.shape[0] < WIDE else f"head_{kind}")
    return library


# The choice -----------------------------------------------------------------------------------------------------------

_chosen: dict[int, Products] = {}  # by the number of threads


def products() -> Products:
    """The libraries in use with the current number of threads.

    Raises TutelageError if the environment variable is invalid.
    """
    threads = torch.get_num_threads()
    if threads not in _chosen:
        text = os.environ.get(VARIABLE)
        _chosen[threads] = (Products.parse(text) if text else _stored_or_measured()).on_this_machine()
    return _chosen[threads]


def forget() -> None:
    """Repeat the choice of libraries at the next product."""
    _chosen.clear()


def state() -> dict[str, object] | None:
    """The libraries in use and the machine for which they were chosen, to be saved in a checkpoint; None if this
    process has computed no product."""
    chosen = _chosen.get(torch.get_num_threads())
    return None if chosen is None else {"machine": _machine(), "products": asdict(chosen)}


def resume(kept: Mapping[str, Any]) -> str:
    """Use the libraries of `kept`, a `state()`, if it is from this machine and `VARIABLE` is not set.

    Returns a warning if other libraries are used, since later steps then differ in rounding from an uninterrupted run;
    "" otherwise.
    """
    if kept["machine"] == _machine():
        choice = Products(**kept["products"])
        if not os.environ.get(VARIABLE):
            _chosen[torch.get_num_threads()] = choice
        if choice == products():
            return ""
    return (
        "The run began with the matrix products of another machine, version of torch, number of threads or "
        f"{VARIABLE}: from here on its numbers are rounded in another way."
    )


def available() -> tuple[Library, ...]:
    """Libraries available on this machine."""
    own: tuple[Library, ...] = ("own",) if matrix_products.multiplies_floats() else ()
    has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return (*own, "blas", *(("onednn",) if has_onednn else ()))


def _stored_or_measured() -> Products:
    """The choice stored for this machine, benchmarked and stored if missing. Among concurrent processes, the first to
    write decides. If the file cannot be written, every process benchmarks."""
    file = choice_file()
    choice = _stored(file)
    if choice is None:
        measured = Products.measure()
        choice = _stored(file) or measured
        with suppress(OSError, TutelageError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(asdict(choice), indent=2) + "\n")
    return choice


def _stored(file: Path) -> Products | None:
    try:
        return Products(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def choice_file() -> Path:
    """Path of the stored choice for this CPU, version of torch, number of threads and version of the kernels."""
    return build.folder() / f"products-{_machine()}.json"


def _machine() -> str:
    """Hash of everything that affects the speed and rounding of products."""
    parts = (build.processor(), torch.__version__, str(torch.get_num_threads()), ",".join(available()))
    return hashlib.sha256("\0".join(parts).encode() + build.content()).hexdigest()[:20]


@torch.no_grad()
def measure() -> dict[str, dict[Library, float]]:
    """Seconds of each kind of product by library: the fastest of several interleaved runs.

    Every run has another number of rows, as every batch has: oneDNN compiles a kernel for each.
    """
    return {
        prefix + kind: _quickest(run)
        for prefix, sizes in (("", LAYER), ("head_", HEAD))
        for kind, run in _trials(*sizes).items()
    }


def _trials(rows: int, features: int, outs: int) -> dict[str, Callable[[Library, int], object]]:
    """One benchmark product of each kind, without the last few rows."""
    x, weight, grad = _wave(rows, features), _wave(outs, features), _wave(rows, outs)
    total = torch.zeros_like(weight)
    return {
        "output": lambda library, fewer: output(x[fewer:], weight, library=library),
        "input_gradient": lambda library, fewer: input_gradient(grad[fewer:], weight, library=library),
        "weight_gradient": lambda library, fewer: weight_gradient(grad[fewer:], x[fewer:], total, library=library),
    }


def _quickest(run: Callable[[Library, int], object], times: int = 10) -> dict[Library, float]:
    quickest = dict.fromkeys(available(), float("inf"))
    for fewer in range(times):
        for library in quickest:
            started = time.perf_counter()
            run(library, fewer)
            quickest[library] = min(quickest[library], time.perf_counter() - started)
    return quickest


def _fastest(seconds: Mapping[Library, float], margin: float) -> Library:
    """The fastest library; `own` unless another saves at least a `margin` of its time."""
    fastest = min(seconds, key=seconds.__getitem__)
    own = seconds.get("own")
    return "own" if own is not None and seconds[fastest] > own * (1 - margin) else fastest


def _wave(rows: int, columns: int) -> Tensor:
    return torch.arange(float(rows * columns)).mul_(0.7).sin_().view(rows, columns)

"""Selection of the engine and the precision of a transformer."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.devices import obstacle
from tutelage.engines.interface import Engine
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.plain import PlainEngine

VARIABLE = "TUTELAGE_ENGINE"
"""Environment variable that overrides `auto`: auto, plain, cpu or gpu."""
_log = logging.getLogger(__name__)

LEAST_FEATURES = 512
"""Smallest hidden size for which `auto` selects bf16 on a CPU; see docs/explanation/numerics.md."""


@dataclass(frozen=True)
class ProcessorEngine:
    """The engine that `auto` selects on this machine's CPU. `kernels` is the path of its compiled kernels: None for
    another engine, or if they cannot be compiled, with the reason in `missing`."""

    name: config.EngineName
    kernels: Path | None = None
    missing: str = ""
    products: Mapping[str, str] = field(default_factory=dict)
    """Library used for each kind of float32 matrix product."""


class LayerProducts(NamedTuple):
    """The products of a linear layer y = x Wᵀ with G, the gradient of y. Gradients are written to `into`."""

    output: Callable[[Tensor, Tensor], Tensor]
    """(x, W) ↦ x Wᵀ"""
    input_gradient: Callable[[Tensor, Tensor, Tensor], object]
    """(G, W, into): G W"""
    weight_gradient: Callable[[Tensor, Tensor, Tensor], object]
    """(G, x, into): Gᵀ x"""


def engine_name(setting: config.EngineName, device: torch.device) -> config.EngineName:
    """The engine of a setting on a device: plain, cpu or gpu.

    `auto` is the CPU engine on a CPU, the GPU engine on an NVIDIA GPU that meets its requirements, and the reference
    engine elsewhere; the environment variable `TUTELAGE_ENGINE` overrides `auto`. Raises TutelageError if the
    environment variable has an invalid value.
    """
    name = setting if setting != "auto" else _from_environment()
    if name != "auto":
        return name
    if device.type == "cpu":
        return "cpu"
    return "plain" if obstacle(device) else "gpu"


def engine_for(backbone: Backbone, head: Head | None = None) -> Engine:
    """The engine of `backbone.engine` (see `engine_name`) for a transformer on its device.

    `head` is the verified output head of a language model, None if only the hidden states of the transformer are used.
    Raises TutelageError if `--engine cpu` is set but the model is on another device or the kernels cannot be compiled,
    if `--engine gpu` is set and supports neither the device nor the model, or if the environment variable has an
    invalid value.
    """
    name, device = engine_name(backbone.engine, backbone.device), backbone.device
    if name == "gpu":
        if reason := obstacle(device):
            raise TutelageError(f"--engine gpu cannot compute on {device}: {reason}. Use --engine plain.")
        from tutelage.engines.gpu.gpu_engine import GpuEngine

        return GpuEngine(backbone, head, insist=backbone.engine == "gpu")
    if name == "cpu" and device.type != "cpu":
        raise TutelageError(
            f"--engine cpu computes on a CPU, but the model is on {device}. Use --engine plain, or --model.device cpu."
        )
    if name == "plain":
        if device.type == "cuda" and backbone.engine == _from_environment() == "auto":
            _warn_of_reference_engine(str(device), obstacle(device))
        return PlainEngine(backbone, head)
    from tutelage.engines.cpu.cpu_engine import CpuEngine

    return CpuEngine(backbone, head, insist=backbone.engine == "cpu")


@cache
def _warn_of_reference_engine(device: str, reason: str) -> None:
    """Warn once per device that `auto` is not the GPU engine there."""
    _log.warning("The reference engine computes on %s, more slowly: %s.", device, reason)


def choose_dtype(name: config.DtypeName, device: torch.device, engine: config.EngineName, hidden: int) -> torch.dtype:
    """The dtype for the setting `name`, for a model of hidden size `hidden` on a device.

    `auto` is bf16 on GPUs that support it, and on a CPU for hidden sizes of at least `LEAST_FEATURES` if the CPU engine
    is used and the CPU multiplies bf16 in hardware. Otherwise it is float32.
    """
    if name != "auto":
        return torch.bfloat16 if name == "bf16" else torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    if device.type != "cpu" or hidden < LEAST_FEATURES or engine_name(engine, device) != "cpu":
        return torch.float32
    from tutelage.engines.cpu.native import matrix_products
    from tutelage.engines.cpu.native.build import multiplies_bf16

    return torch.bfloat16 if multiplies_bf16() and matrix_products.supports(hidden) else torch.float32


def processor_engine() -> ProcessorEngine:
    """The engine that `auto` selects on this machine's CPU.

    Compiles the kernels if necessary (about 30 s) and benchmarks matrix products (about 1 s).

    Raises TutelageError if the environment variable has an invalid value.
    """
    if (name := engine_name("auto", torch.device("cpu"))) != "cpu":
        return ProcessorEngine(name)
    from tutelage.engines.cpu.native.bindings import library
    from tutelage.engines.cpu.native.build import built
    from tutelage.engines.cpu.products import products

    try:
        library()
        return ProcessorEngine("cpu", built(), products=asdict(products()))
    except TutelageError as error:
        return ProcessorEngine("cpu", missing=str(error))


def layer_products(device: torch.device, dtype: torch.dtype) -> LayerProducts:
    """The products of a linear layer and its gradients, as the default engine of a device computes them in that
    precision."""
    if dtype != torch.float32 or device.type != "cpu" or engine_name("auto", device) != "cpu":
        return LayerProducts(
            torch.nn.functional.linear,
            lambda grad, weight, into: torch.mm(grad, weight, out=into),
            lambda grad, x, into: torch.mm(grad.T, x, out=into),
        )
    from tutelage.engines.cpu import products

    return LayerProducts(
        products.output,
        partial(products.input_gradient, accumulate=False),
        partial(products.weight_gradient, accumulate=False),
    )


def release_memory() -> None:
    """Return freed memory that the CPU engine retains between steps to the operating system, and free the memory of
    sampling on GPUs."""
    memory = sys.modules.get("tutelage.engines.cpu.allocator")
    if memory is not None:
        memory.release_freed_memory()
    sampler = sys.modules.get("tutelage.engines.gpu.sampler")
    if sampler is not None:
        sampler.release_slots()


def products_state() -> dict[str, object] | None:
    """The matrix-product libraries of this process, to be saved in a checkpoint; None if the CPU engine has computed no
    product (see `tutelage.engines.cpu.products`)."""
    products = sys.modules.get("tutelage.engines.cpu.products")
    return None if products is None else products.state()


def resume_products(kept: Mapping[str, Any]) -> str:
    """Restore the matrix-product libraries of a checkpoint. Returns a warning if rounding will differ, else ""."""
    from tutelage.engines.cpu import products

    return products.resume(kept)


def _from_environment() -> config.EngineName:
    name = os.environ.get(VARIABLE, "auto")
    if name not in ("auto", "plain", "cpu", "gpu"):
        raise TutelageError(f"{VARIABLE} is {name!r}; use auto, plain, cpu or gpu.")
    return name  # type: ignore[return-value]  # mypy does not narrow a str to a Literal by membership

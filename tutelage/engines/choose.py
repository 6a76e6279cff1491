"""Chooses the engine and the precision of a transformer."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.interface import Engine
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.plain import PlainEngine

VARIABLE = "TUTELAGE_ENGINE"
"""The environment variable that replaces `auto`: auto, plain or cpu."""


LEAST_FEATURES = 512
"""Features of a hidden state from which on `auto` takes bf16 on a CPU: see docs/explanation/numerics.md."""


@dataclass(frozen=True)
class ProcessorEngine:
    """The engine that `auto` is on this machine's CPU. `kernels` is the file of its compiled kernels; None with
    the reason in `missing` where they cannot be compiled, and None without one for the reference engine."""

    name: config.EngineName
    kernels: Path | None = None
    missing: str = ""
    products: Mapping[str, str] = field(default_factory=dict)
    """The library of each kind of matrix product in float32."""


class LayerProducts(NamedTuple):
    """The products of a linear layer y = x Wᵀ with G, the gradient of y. Gradients are written to a third matrix."""

    output: Callable[[Tensor, Tensor], Tensor]
    """(x, W) ↦ x Wᵀ"""
    input_gradient: Callable[[Tensor, Tensor, Tensor], object]
    """(G, W, into): G W"""
    weight_gradient: Callable[[Tensor, Tensor, Tensor], object]
    """(G, x, into): Gᵀ x"""


def engine_for(backbone: Backbone, head: Head | None = None) -> Engine:
    """The engine that `backbone.engine` names, for a transformer on its device.

    `auto` is the CPU engine on a CPU and the reference engine elsewhere; the environment variable
    `TUTELAGE_ENGINE` replaces `auto`. `head` is the verified output head of a language model, None for a transformer of
    which only states are used. Raises TutelageError if `--engine cpu` is set and the model is on another device or
    the kernels cannot be compiled, and if the environment variable has another value.
    """
    name = backbone.engine if backbone.engine != "auto" else _from_environment()
    on_cpu = backbone.device.type == "cpu"
    if name == "cpu" and not on_cpu:
        raise TutelageError(
            f"--engine cpu computes on a CPU, but the model is on {backbone.device}. Use --engine plain, or "
            "--model.device cpu."
        )
    if name == "plain" or not on_cpu:
        return PlainEngine(backbone, head)
    from tutelage.engines.cpu.cpu_engine import CpuEngine

    return CpuEngine(backbone, head, insist=backbone.engine == "cpu")


def choose_dtype(
    name: config.DtypeName, device: torch.device, engine: config.EngineName, hidden: int
) -> torch.dtype:
    """The precision called `name`, for a model with `hidden` features on a device.

    `auto` is bf16 on a GPU that has it. On a CPU it is bf16 for a model of at least `LEAST_FEATURES`, where the
    CPU engine computes and the CPU has products of bf16. Elsewhere it is float32.
    """
    if name != "auto":
        return torch.bfloat16 if name == "bf16" else torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    if device.type != "cpu" or hidden < LEAST_FEATURES:
        return torch.float32
    return torch.bfloat16 if _multiplies_bf16(engine, hidden) else torch.float32


def _multiplies_bf16(engine: config.EngineName, hidden: int) -> bool:
    """Whether an engine has kernels for products of bf16 here that are faster than those of float32."""
    if (engine if engine != "auto" else _from_environment()) == "plain":
        return False
    from tutelage.engines.cpu.native import matrix_products
    from tutelage.engines.cpu.native.build import multiplies_bf16

    return multiplies_bf16() and matrix_products.supports(hidden)


def processor_engine() -> ProcessorEngine:
    """The engine that `auto` is on this machine's CPU.

    Compiles the kernels where they are not there yet, which takes about half a minute, and measures products, a second.

    Raises TutelageError if the environment variable has another value.
    """
    if _from_environment() == "plain":
        return ProcessorEngine("plain")
    from tutelage.engines.cpu.native.bindings import library
    from tutelage.engines.cpu.native.build import built
    from tutelage.engines.cpu.products import products

    try:
        library()
        return ProcessorEngine("cpu", built(), products=asdict(products()))
    except TutelageError as error:
        return ProcessorEngine("cpu", missing=str(error))


def layer_products(device: torch.device, dtype: torch.dtype) -> LayerProducts:
    """The products of a linear layer and its gradients, as the engine of a device computes them in that precision."""
    if device.type != "cpu" or dtype != torch.float32 or _from_environment() == "plain":
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
    """Return the freed memory that the CPU engine keeps for its next step to the system."""
    memory = sys.modules.get("tutelage.engines.cpu.allocator")
    if memory is not None:
        memory.release_freed_memory()


def products_state() -> dict[str, object] | None:
    """The libraries of the matrix products of this process, to be kept with a checkpoint; None if it has computed
    none by the CPU engine (see `tutelage.engines.cpu.products`)."""
    products = sys.modules.get("tutelage.engines.cpu.products")
    return None if products is None else products.state()


def resume_products(kept: Mapping[str, Any]) -> str:
    """Take the libraries of a checkpoint again. Returns a remark where the roundings will be others."""
    from tutelage.engines.cpu import products

    return products.resume(kept)


def _from_environment() -> config.EngineName:
    name = os.environ.get(VARIABLE, "auto")
    if name not in ("auto", "plain", "cpu"):
        raise TutelageError(f"{VARIABLE} is {name!r}; use auto, plain or cpu.")
    return name  # type: ignore[return-value]  # mypy does not narrow a str to a Literal by membership

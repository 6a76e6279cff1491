"""Chooses the engine and the precision of a transformer."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from tutelage import config
from tutelage.engines.engine import Engine
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.plain import PlainEngine
from tutelage.errors import TutelageError

VARIABLE = "TUTELAGE_ENGINE"
"""The environment variable that replaces `auto`: auto, plain or cpu."""


LEAST_FEATURES = 512
"""Features of a hidden state from which on `auto` takes bf16 on a processor: see docs/explanation/numerics.md."""


@dataclass(frozen=True)
class ProcessorEngine:
    """The engine that `auto` is on this machine's processor. `kernels` is the file of its compiled kernels; None with
    the reason in `missing` where they cannot be compiled, and None without one for the reference engine."""

    name: config.EngineName
    kernels: Path | None = None
    missing: str = ""


def engine_for(backbone: Backbone, head: Head | None = None) -> Engine:
    """The engine that `backbone.engine` names, for a transformer on its device.

    `auto` is the CPU engine on a processor and the reference engine elsewhere; the environment variable
    `TUTELAGE_ENGINE` replaces `auto`. `head` is the verified output head of a language model, None for a transformer of
    which only states are used. Raises TutelageError where `--engine cpu` is set and the model is on another device or
    the kernels cannot be compiled, and where the environment variable has another value.
    """
    name = backbone.engine if backbone.engine != "auto" else _from_environment()
    on_processor = backbone.device.type == "cpu"
    if name == "cpu" and not on_processor:
        raise TutelageError(
            f"--engine cpu computes on a processor, but the model is on {backbone.device}. Use --engine plain, or "
            "--model.device cpu."
        )
    if name == "plain" or not on_processor:
        return PlainEngine(backbone, head)
    from tutelage.engines.cpu.engine import CpuEngine

    return CpuEngine(backbone, head, insist=backbone.engine == "cpu")


def choose_dtype(
    name: config.DtypeName, device: torch.device, engine: config.EngineName, hidden: int
) -> torch.dtype:
    """The precision called `name`, for a model with `hidden` features on a device.

    `auto` is bf16 on a GPU that has it. On a processor it is bf16 for a model of at least `LEAST_FEATURES`, where the
    CPU engine computes and the processor has products of bf16. Elsewhere it is float32.
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
    from tutelage.engines.cpu.native import half_products
    from tutelage.engines.cpu.native.build import multiplies_bf16

    return multiplies_bf16() and half_products.supports(hidden)


def processor_engine() -> ProcessorEngine:
    """The engine that `auto` is on this machine's processor.

    Compiles the kernels where they are not there yet, which takes about half a minute.

    Raises TutelageError where the environment variable has another value.
    """
    if _from_environment() == "plain":
        return ProcessorEngine("plain")
    from tutelage.engines.cpu.native.bindings import library
    from tutelage.engines.cpu.native.build import built

    try:
        library()
        return ProcessorEngine("cpu", built())
    except TutelageError as error:
        return ProcessorEngine("cpu", missing=str(error))


def _from_environment() -> config.EngineName:
    name = os.environ.get(VARIABLE, "auto")
    if name not in ("auto", "plain", "cpu"):
        raise TutelageError(f"{VARIABLE} is {name!r}; use auto, plain or cpu.")
    return name  # type: ignore[return-value]  # mypy does not narrow a str to a Literal by membership

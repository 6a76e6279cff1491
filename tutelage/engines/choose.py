"""Chooses the engine of a transformer."""

import os

from tutelage import config
from tutelage.engines.engine import Engine
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.plain import PlainEngine
from tutelage.errors import TutelageError

VARIABLE = "TUTELAGE_ENGINE"
"""The environment variable that replaces `auto`: auto, plain or cpu."""


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


def _from_environment() -> config.EngineName:
    name = os.environ.get(VARIABLE, "auto")
    if name not in ("auto", "plain", "cpu"):
        raise TutelageError(f"{VARIABLE} is {name!r}; use auto, plain or cpu.")
    return name  # type: ignore[return-value]  # mypy does not narrow a str to a Literal by membership

"""Modules of Triton kernels, which are imported where they are launched, since only a GPU needs Triton."""

from importlib import import_module
from types import ModuleType

from tutelage.base.errors import TutelageError


def triton_kernels(module: str) -> ModuleType:
    """The kernels of a module in this folder."""
    try:
        return import_module(f"tutelage.engines.gpu.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "triton":
            raise
        raise TutelageError(
            "the GPU engine needs Triton, which is not installed: install a CUDA build of PyTorch, which brings it, "
            "or use --engine plain"
        ) from error

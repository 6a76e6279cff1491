"""Devices: available memory, requirements of the GPU engine, and the reason for which torch finds no GPU."""

import os
import shutil
import sysconfig
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

from tutelage.base.errors import TutelageError

TORCH = "2.8"
"""Oldest version of torch: its `torch.mm` returns float32 for operands in bf16 (`out_dtype`)."""
CAPABILITY = (8, 0)
"""Lowest compute capability: that of Triton (https://github.com/triton-lang/triton, Compatibility). All such GPUs
multiply bf16."""
MEMINFO = Path("/proc/meminfo")


def available_memory(device: torch.device) -> float:
    """Bytes that can still be allocated on the device; ∞ if the system does not report it."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # reserved by torch, but free
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    try:
        entries = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return 1024.0 * int(entries["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float("inf")


def memory_of_other_programs(device: torch.device) -> float:
    """Bytes of a GPU that other programs hold, the libraries of this one included."""
    free, total = torch.cuda.mem_get_info(device)
    return float(total - free - torch.cuda.memory_reserved(device))


def obstacle(device: torch.device) -> str:
    """The reason for which the GPU engine cannot compute on a device, as a clause; empty if it can.

    On a CPU it can: the same code without kernels and graphs, for tests.
    """
    if device.type == "cpu":
        return ""
    if device.type != "cuda" or torch.version.cuda is None:
        return "the engine is for NVIDIA GPUs"
    if torch.__version__ < TORCH:
        return f"the engine needs torch {TORCH}, and {torch.__version__} is installed"
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        least, own = (".".join(map(str, each)) for each in (CAPABILITY, capability))
        return f"the engine needs compute capability {least}, and {torch.cuda.get_device_name(device)} has {own}"
    return _missing_compiler()


def _missing_compiler() -> str:
    """The missing part of Triton, which compiles kernels, and a launcher in C against the headers of Python."""
    if find_spec("triton") is None:
        return "Triton is not installed: pip install triton (the CUDA builds of torch for Linux require it)"
    if "CC" not in os.environ and not any(map(shutil.which, ("gcc", "clang", "cc"))):
        return "Triton finds no C compiler: install gcc or clang (CC names another)"
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        return f"Triton needs Python.h, which is not in {headers}: install the headers of Python (python3-dev)"
    return ""


def missing_gpu() -> str:
    """The reason for which torch finds no GPU, as a clause."""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is a build without CUDA"
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return f"torch finds no GPU, with CUDA_VISIBLE_DEVICES set to {visible!r}"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"torch finds no GPU: {str(error).partition('. ')[0].strip().rstrip('.')}"
    return "torch finds no GPU"


def triton_kernels(module: str) -> ModuleType:
    """The kernels of a module of the GPU engine. Called where they are launched, since only a GPU needs Triton."""
    try:
        return import_module(f"tutelage.engines.gpu.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "triton":
            raise
        raise TutelageError(
            "the GPU engine needs Triton, which is not installed: install a CUDA build of PyTorch, which brings it, "
            "or use --engine plain"
        ) from error

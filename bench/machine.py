"""What a machine can do at best, now: its processor's or GPU's multiplication of matrices, and reading of memory."""

import json
import platform
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


def describe(device: str, precision: str) -> dict[str, Any]:
    """Name, cores, versions, the highest rate of a matrix product in a precision and of reading, both measured now."""
    if device == "cpu":
        _choose_libraries()
    return {
        "name": name_of(device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "flops": product_rate(device, precision),
        "rate": "best of all libraries",  # until 2026-11-26 it was that of torch's own product
        "bandwidth": _reading(device),
    }


def name_of(device: str) -> str:
    """The name of the processor or of the GPU. A virtual machine may call its processor "AMD EPYC" whatever its
    generation, so the name says where AVX-512 is missing."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    try:
        cpu = dict(re.findall(r"^(model name|flags)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
        name = cpu["model name"]
    except (OSError, KeyError):
        return platform.processor() or platform.machine()
    flags = cpu.get("flags", "").split()  # which x86 has alone
    return f"{name} without AVX-512" if flags and "avx512f" not in flags else name


def product_rate(device: str, precision: str) -> float:
    """Operations per second of a product of two large square matrices in float32 or bf16, by the fastest library."""
    size, dtype = (8192 if device == "cuda" else 2048), DTYPES[precision]
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / min(_quickest(partial(product, a, b), device) for product in _libraries(device, dtype))


def _libraries(device: str, dtype: torch.dtype) -> list[Callable[[torch.Tensor, torch.Tensor], object]]:
    """The products x Wᵀ of all libraries of this machine: torch's own, oneDNN's, and those of the CPU engine."""
    libraries: list[Callable[[torch.Tensor, torch.Tensor], object]] = [torch.nn.functional.linear]
    if device != "cpu":
        return libraries
    from tutelage.engines.cpu import products
    from tutelage.engines.cpu.native import matrix_products

    if "onednn" in products.available():
        pointwise = torch.ops.mkldnn._linear_pointwise
        libraries.append(lambda x, weight: pointwise(x, weight, None, "none", [], ""))
    if dtype == torch.float32 and matrix_products.multiplies_floats():
        libraries.append(lambda x, weight: matrix_products.multiply(x, weight.T))
    return libraries


def _choose_libraries() -> None:
    """Let the CPU engine choose its libraries, once for a version of its kernels, in this process: oneDNN's compiled
    products would count in the memory of a measured one."""
    from tutelage.engines.cpu import products

    products.products()


def _reading(device: str) -> float:
    """Bytes per second at which a matrix larger than any cache is read by a product with a vector, as in decoding."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    matrix = torch.ones(32_768, 8_192, device=device, dtype=dtype)
    vector = torch.ones(8_192, device=device, dtype=dtype)
    return matrix.numel() * matrix.element_size() / _quickest(lambda: matrix @ vector, device)


def _quickest(work: Callable[[], object], device: str) -> float:
    """The middle of the best third of nine runs, in seconds: what is possible, not what was disturbed."""
    times = []
    for _ in range(10):
        started = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(sorted(times[1:])[:3])


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(describe(*sys.argv[1:3])))


def peak_memory(device: str) -> float:
    """MiB at most: of this process on a processor, of the GPU's memory on a GPU."""
    if device == "cuda":
        import torch

        return float(torch.cuda.max_memory_allocated() / 2**20)
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale

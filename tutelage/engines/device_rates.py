"""Compute and memory rates of this machine, measured in about a second."""

import statistics
import time
from collections.abc import Callable

import torch

from tutelage.base.nouns import counted
from tutelage.engines.choose import layer_products
from tutelage.engines.devices import available_memory, obstacle
from tutelage.engines.plans.hardware import GPUS, Device

Clock = Callable[[], float]
"""A clock in seconds, such as `time.perf_counter`."""
ROWS = 1024
"""Rows of the benchmarked products, that is tokens per forward pass."""
SECONDS = 0.25
"""Seconds to repeat each measurement."""
RUNTIME = 410e6
"""Bytes of a process with torch, transformers and this package loaded, but no model."""
CPU_SHARE = 0.85
"""Rate of a training pass on a CPU relative to repeated products; see bench/NOTES.md."""


def this_device(device: torch.device, hidden: int, feed_forward: int, clock: Clock = time.perf_counter) -> Device:
    """A device of this machine: available memory, rate of feed-forward matrix products, and memory bandwidth.

    On a CPU, products are measured with the shapes of the model, since small ones are slower. `clock` returns seconds;
    use CPU time on shared machines.
    """
    gpu = device.type == "cuda"
    if gpu:
        name = torch.cuda.get_device_name(device)
        memory = float(torch.cuda.get_device_properties(device).total_memory)
    else:
        name = f"this machine, {counted(torch.get_num_threads(), 'thread')}"
        memory = available_memory(device)
    matrix, vector = torch.ones(16_384, 4_096, device=device), torch.ones(4_096, device=device)
    seconds = _quickest(lambda: matrix @ vector, device, clock)  # exceeds all caches, as in decoding
    return Device(
        name=name,
        memory=memory,
        bf16=_product_rate(device, torch.bfloat16, hidden, feed_forward, clock),
        float32=_product_rate(device, torch.float32, hidden, feed_forward, clock),
        bandwidth=matrix.numel() * matrix.element_size() / seconds,
        link=GPUS["h100"].link if gpu else 10e9,
        runtime=Device.runtime if gpu else RUNTIME,
        source="measured",
        matrix_share=0.9 if gpu else CPU_SHARE,
        memory_share=1.0,
        is_gpu=gpu,
        gpu_engine=gpu and not obstacle(device),
    )


def _product_rate(device: torch.device, dtype: torch.dtype, hidden: int, feed_forward: int, clock: Clock) -> float:
    """Operations per second of a layer's forward and two backward products."""
    rows = ROWS if device.type == "cpu" else 8 * ROWS
    x = torch.randn(rows, hidden, device=device, dtype=dtype)
    w = torch.randn(feed_forward, hidden, device=device, dtype=dtype)
    products = layer_products(device, dtype)
    back, slopes = torch.empty_like(x), torch.empty_like(w)

    def layer() -> None:
        y = products.output(x, w)
        products.input_gradient(y, w, back)
        products.weight_gradient(y, x, slopes)

    return 3 * 2.0 * rows * hidden * feed_forward / _quickest(layer, device, clock)


def _quickest(work: Callable[[], object], device: torch.device, clock: Clock) -> float:
    """Seconds per call: the median of the fastest third, which is robust to other load on the machine."""
    times: list[float] = []
    while len(times) < 4 or sum(times) < SECONDS:
        started = clock()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - started)
    best = sorted(times[1:])
    return statistics.median(best[: max(1, len(best) // 3)])

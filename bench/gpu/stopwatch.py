"""Seconds and memory on a device: synchronised, after a warm-up, as medians."""

import statistics
import time
from collections.abc import Callable

import torch

from bench.machine import peak_memory

BUFFER = 2**30
"""Bytes of the buffer whose copy gives the rate of memory."""


def synchronise(device: str) -> None:
    """Wait until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def once(work: Callable[[], object], device: str) -> float:
    """Seconds of one run."""
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def middle(work: Callable[[], object], device: str, runs: int = 3, warm: int = 1) -> float:
    """Median seconds of some runs after warm-up."""
    for _ in range(warm):
        work()
    return statistics.median(once(work, device) for _ in range(runs))


def forget_peak(device: str) -> None:
    """Begin to measure the peak of memory again; a CPU keeps that of the whole process."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib(device: str) -> float:
    """Peak memory in GiB since `forget_peak`."""
    return peak_memory(device) / 2**10


def copy_rate(device: str, size: int = BUFFER) -> float:
    """Bytes per second of a copy within the device, read and written ones together."""
    source = torch.empty(size, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    return 2 * size / middle(lambda: target.copy_(source), device, runs=7, warm=2)

"""Available memory of a device."""

from pathlib import Path

import torch

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

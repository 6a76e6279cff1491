"""What a card can do at best: copies within its memory and products of large matrices."""

import subprocess

import torch

from bench.gpu.stopwatch import copy_rate, middle


def measure(device: str, tiny: bool, subject: str) -> dict[str, float | str]:
    """Copy rate of 8 GB, and rates of 8,192³ products of random matrices in bf16 and float32 (without TF32)."""
    figures: dict[str, float | str] = {"copy_tb_s": copy_rate(device, 2**20 if tiny else 8 * 10**9) / 1e12}
    torch.backends.cuda.matmul.allow_tf32 = False
    size = 64 if tiny else 8_192
    for name, dtype in (("bf16", torch.bfloat16), ("float32", torch.float32)):
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        figures[f"{name}_tflop_s"] = 2 * size**3 / middle(lambda a=a, b=b: a @ b, device, runs=7, warm=3) / 1e12  # type: ignore[misc]
    if device == "cuda":
        figures["memory_gib"] = torch.cuda.get_device_properties(0).total_memory / 2**30
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        figures["driver"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return figures

"""Chance, one stream of uniform numbers per row, so that what a row says does not depend on the rows beside it."""

from collections.abc import Sequence

import torch
from torch import Tensor


def row_seed(seed: int, prompt_id: str, number: int) -> int:
    """The seed of one row's random stream: FNV-1a over its names, so that it is the same in every process."""
    state = 0xCBF29CE484222325
    for byte in f"{seed}\0{prompt_id}\0{number}".encode():
        state = ((state ^ byte) * 0x100000001B3) & (2**64 - 1)
    return state >> 1  # torch takes seeds below 2^63


def uniforms(seeds: Sequence[int], length: int) -> Tensor:
    """One uniform number per row and token. Float64[B, length]"""
    generator = torch.Generator()
    return torch.stack(
        [torch.rand(length, generator=generator.manual_seed(seed), dtype=torch.float64) for seed in seeds]
    )

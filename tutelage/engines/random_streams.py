"""One stream of uniform random numbers per row, so that the tokens of a row do not depend on the rows beside it."""

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor


def row_seed(seed: int, prompt_id: str, number: int) -> int:
    """The seed of the random stream of sample `number` of a prompt.

    It is the FNV-1a hash of the three arguments, which is the same in every process.
    """
    state = 0xCBF29CE484222325
    for byte in f"{seed}\0{prompt_id}\0{number}".encode():
        state = ((state ^ byte) * 0x100000001B3) & (2**64 - 1)
    return state >> 1  # torch takes seeds below 2^63


def uniforms(seeds: Sequence[int], length: int) -> Float64[Tensor, "B length"]:
    """Uniform numbers in [0, 1) for each row, given by its seed, and each token."""
    generator = torch.Generator()
    return torch.stack(
        [torch.rand(length, generator=generator.manual_seed(seed), dtype=torch.float64) for seed in seeds]
    )

"""Token sampling: a uniform number per token, temperature, truncation, and the inverse of the cumulative distribution.

    q(v) ∝ π(v)^(1/T) over the tokens that truncation keeps          token = min { v : q(0) + … + q(v) > u }

One uniform number u determines one token, whose log-probability is log q(token). Every row has its own random stream,
so its tokens do not depend on other rows.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.nn.functional import pad

from tutelage.base import config
from tutelage.engines.logprobs import PLAIN_KERNELS, HeadKernels


def row_seed(seed: int, prompt_id: str, number: int) -> int:
    """The seed of the random stream of sample `number` of a prompt.

    The FNV-1a hash of the three arguments, equal in every process.
    """
    state = 0xCBF29CE484222325
    for byte in f"{seed}\0{prompt_id}\0{number}".encode():
        state = ((state ^ byte) * 0x100000001B3) & (2**64 - 1)
    return state >> 1  # torch takes seeds below 2^63


def uniforms(seeds: Sequence[int], length: int) -> Float64[Tensor, "B length"]:
    """Uniform numbers in [0, 1) for each row, identified by its seed, and each token."""
    generator = torch.Generator()
    return torch.stack(
        [torch.rand(length, generator=generator.manual_seed(seed), dtype=torch.float64) for seed in seeds]
    )


BLOCK = 64
"""Block size of neighbouring tokens whose probabilities are summed before the cumulative sum."""
LIKELIEST = 256
"""Number of most likely tokens searched first for a nucleus, which is rarely larger."""


def draw(
    logits: Float[Tensor, "B V"],
    sampling: config.Sampling,
    uniform: Float[Tensor, " B"],
    kernels: HeadKernels = PLAIN_KERNELS,
    *,
    fixed_shape: bool = False,
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Sample one token per row, and return it with its log-probability. At temperature 0: the most likely token, with
    log-probability 0.

    Log-probabilities are computed as in `token_scores`, with the same kernels. With `fixed_shape` the same result is
    computed without waiting for the device, so that it can be captured in a CUDA graph.
    """
    if sampling.temperature == 0:
        token = logits.argmax(-1)
        return token, torch.zeros_like(token, dtype=torch.float32)
    logits, temperature = logits.float(), sampling.temperature
    if sampling.top_k or sampling.top_p < 1 or sampling.min_p:
        logits, temperature = truncated(logits / temperature, sampling, fixed_shape=fixed_shape), 1.0
    if kernels.sample is not None:
        return kernels.sample(logits, uniform, temperature)
    return sample(logits, uniform, temperature, kernels)


def sample(
    logits: Float[Tensor, "B V"],
    uniform: Float64[Tensor, " B"],
    temperature: float = 1.0,
    kernels: HeadKernels = PLAIN_KERNELS,
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """The token of each row at which the cumulative distribution of logits / temperature passes `uniform`, and its
    log-probability."""
    probabilities, maximum, log_sum = kernels.softmax_parts(logits.clone(), temperature)
    token = inverse(probabilities, uniform)
    return token, (logits.gather(-1, token[:, None]).squeeze(-1) / temperature - maximum) - log_sum


def inverse(probabilities: Float[Tensor, "B V"], uniform: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """The token of each row at which the cumulative sum of its `probabilities` passes `uniform`.

    A cumulative sum over the vocabulary in double precision would cost more than the softmax, so the search finds the
    block first, then the token within it. Each search is scaled to its own total, so rounding never exceeds it.
    """
    rows, vocabulary = probabilities.shape
    if vocabulary % BLOCK:
        probabilities = pad(probabilities, (0, -vocabulary % BLOCK))
    blocks = probabilities.view(rows, -1, BLOCK)
    block, rest = _search(blocks.sum(-1), uniform)
    within, _ = _search(blocks[torch.arange(rows, device=block.device), block], rest)
    return block * BLOCK + within


def _search(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The interval of [0, 1), divided in proportion to `weights` [B, n], that contains `uniform` [B], and the relative
    position within it. Int[B], Float[B]"""
    cumulative = weights.double().cumsum(-1)
    total = cumulative[:, -1:]
    target = uniform.to(cumulative)[:, None] * total
    entry = torch.searchsorted(cumulative, target, right=True)
    # a number just below 1 may round to the total; it selects the last entry with positive weight
    entry = torch.minimum(entry, (cumulative < total).sum(-1, keepdim=True))
    share = weights.gather(-1, entry).double()
    fallen = (target - (cumulative.gather(-1, entry) - share)) / share
    return entry.squeeze(-1), fallen.squeeze(-1).clamp(0, 1)


def truncated(
    logits: Float[Tensor, "B V"], sampling: config.Sampling, *, fixed_shape: bool = False
) -> Float[Tensor, "B V"]:
    """Logits with −inf for the tokens excluded by top-k, then top-p, then min-p. For `fixed_shape` see `draw`."""
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if sampling.top_p < 1:
        logits = _nucleus(logits, sampling.top_p, fixed_shape)
    if sampling.min_p > 0:
        least = logits.amax(-1, keepdim=True) + math.log(sampling.min_p)
        logits = logits.masked_fill(logits < least, -torch.inf)
    return logits


def _nucleus(logits: Tensor, top_p: float, fixed_shape: bool) -> Tensor:
    """Keep the most likely tokens until their probabilities sum to `top_p`. Sorts the whole vocabulary of the rows for
    which it is necessary; with `fixed_shape` of all rows, whose result is then ignored where the first tokens suffice,
    since a longer sort may put equal logits in another order."""
    vocabulary = logits.shape[-1]
    total = logits.logsumexp(-1, keepdim=True)
    nucleus, short = _likeliest(logits, total, top_p, min(LIKELIEST, vocabulary))
    if vocabulary <= LIKELIEST:
        return nucleus
    if fixed_shape:
        return torch.where(short[:, None], _likeliest(logits, total, top_p, vocabulary)[0], nucleus)
    rows = short.nonzero().squeeze(-1)
    if len(rows):
        nucleus[rows] = _likeliest(logits[rows], total[rows], top_p, vocabulary)[0]
    return nucleus


def _likeliest(logits: Tensor, total: Tensor, top_p: float, size: int) -> tuple[Tensor, Tensor]:
    """The nucleus among the `size` most likely tokens, and whether their probabilities sum to less than `top_p`."""
    highest, order = logits.topk(size, -1)
    reached = (highest - total).exp().cumsum(-1)
    inside = highest.masked_fill(pad(reached[:, :-1], (1, 0)) >= top_p, -torch.inf)
    return torch.full_like(logits, -torch.inf).scatter(-1, order, inside), reached[:, -1] < top_p

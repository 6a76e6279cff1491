"""From logits to one token: temperature, truncation, and the inverse of the cumulative distribution.

    q(v) ∝ π(v)^(1/T) over the tokens that truncation keeps          token = min { v : q(0) + … + q(v) > u }

One uniform number u makes one token, and `logp` is log q(token).
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from tutelage import config

BLOCK = 64  # neighbouring tokens whose probabilities are summed before anything is accumulated
LIKELIEST = 256  # how many of the likeliest tokens are looked at first for a nucleus; it is rarely larger


def draw(logits: Tensor, sampling: config.Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row from logits [B, V] and uniform numbers [B]: (token, its log-probability), each [B]."""
    if sampling.temperature == 0:
        token = logits.argmax(-1)
        return token, torch.zeros_like(token, dtype=torch.float32)
    logits = logits.float()
    if sampling.temperature != 1:
        logits = logits / sampling.temperature
    probabilities = truncated(logits, sampling).softmax(-1)
    token = inverse(probabilities, uniform)
    return token, probabilities.gather(-1, token[:, None]).log().squeeze(-1)


def inverse(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The tokens at which the cumulative sums of `probabilities` [B, V] pass `uniform` [B]. Int[B]

    To accumulate a whole vocabulary in double precision would cost more than its softmax, so the block is found
    first and the token within it. Each search is scaled to its own total: rounding never leads beyond it.
    """
    rows, vocabulary = probabilities.shape
    if vocabulary % BLOCK:
        probabilities = pad(probabilities, (0, -vocabulary % BLOCK))
    blocks = probabilities.view(rows, -1, BLOCK)
    block, rest = _search(blocks.sum(-1), uniform)
    within, _ = _search(blocks[torch.arange(rows, device=block.device), block], rest)
    return block * BLOCK + within


def _search(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Where `uniform` [B] falls when `weights` [B, n] share [0, 1) between them, and how far into that share."""
    cumulative = weights.double().cumsum(-1)
    total = cumulative[:, -1:]
    target = uniform.to(cumulative)[:, None] * total
    entry = torch.searchsorted(cumulative, target, right=True)
    # a number just below 1 can be rounded to the total; it means the last entry that has any weight
    entry = torch.minimum(entry, (cumulative < total).sum(-1, keepdim=True))
    share = weights.gather(-1, entry).double()
    fallen = (target - (cumulative.gather(-1, entry) - share)) / share
    return entry.squeeze(-1), fallen.squeeze(-1).clamp(0, 1)


def truncated(logits: Tensor, sampling: config.Sampling) -> Tensor:
    """Logits with −inf wherever top-k, then top-p, then min-p leaves a token out."""
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if sampling.top_p < 1:
        logits = _nucleus(logits, sampling.top_p)
    if sampling.min_p > 0:
        least = logits.amax(-1, keepdim=True) + math.log(sampling.min_p)
        logits = logits.masked_fill(logits < least, -torch.inf)
    return logits


def _nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Keep the likeliest tokens until they reach `top_p` together; all are sorted only for rows that need it."""
    kept = torch.full_like(logits, -torch.inf)
    total = logits.logsumexp(-1, keepdim=True)
    rows = torch.arange(len(logits), device=logits.device)
    for size in (min(LIKELIEST, logits.shape[-1]), logits.shape[-1]):
        highest, order = logits[rows].topk(size, -1)
        reached = (highest - total[rows]).exp().cumsum(-1)
        before = reached.roll(1, -1)
        before[:, 0] = 0.0
        inside = highest.masked_fill(before >= top_p, -torch.inf)
        kept[rows] = torch.full_like(kept[rows], -torch.inf).scatter(-1, order, inside)
        rows = rows[reached[:, -1] < top_p]
        if len(rows) == 0:
            break
    return kept

"""The truncation that a sampler must have applied, by what it says about the tokens that it drew.

Where top-k, top-p or min-p keeps the set K of a distribution p, a token v in K has the probability p(v) / p(K). So the
log-probabilities that are reported exceed those of p by −log p(K) ≥ 0, and p(K) says how many of the likeliest tokens
were kept at every position. One setting explains all positions, or none does.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

TOLERANCE = 1e-3
"""How far p(K) may be from the probability of a set of likeliest tokens."""


def truncation(logp: Float[Tensor, " M"], whole: Float[Tensor, "M V"], tokens: Int[Tensor, " M"]) -> str:
    """The settings that explain the reported `logp` of `tokens` drawn from `whole`, the log-probabilities of all
    tokens; "" where none does."""
    mass = (whole.gather(-1, tokens[:, None]).squeeze(-1) - logp).exp()  # p(K)
    p = whole.exp().sort(-1, descending=True).values
    reached = p.cumsum(-1)
    kept = (reached - mass[:, None]).abs().argmin(-1)  # place of the last kept token
    rows = torch.arange(len(kept))
    if ((reached[rows, kept] - mass).abs() > TOLERANCE).any() or (mass > 1 - TOLERANCE).all():
        return ""
    least, after = p[rows, kept], p.roll(-1, -1)
    after[:, -1] = 0.0
    found = []
    if (kept == kept[0]).all():
        found.append(f"top_k {int(kept[0]) + 1}")
    if (highest := float(mass.min())) > float((mass - least).max()):
        found.append(f"top_p {highest:.2f}")
    if (share := float((least / p[:, 0]).min())) > float((after[rows, kept] / p[:, 0]).max()):
        found.append(f"min_p {share:.2f}")
    return " or ".join(found)

"""The sampler against the trainer: the same weights, whose log-probabilities differ where the arithmetic is coarse.

In bfloat16 decoding rounds otherwise than the forward pass that is trained through, so that what was sampled comes from
another distribution than the one whose gradient is taken. So it does, and further from it, where rollouts are written
ahead of the steps that learn from them, by an older policy. Three ways to go on (`Mismatch`):

    none        the old log-probabilities are the sampler's own
    recompute   they are the trainer's, so that the first ratio is that of the trainer to itself
    truncated   the trainer's, and the surrogate of every token is weighed by w = min(π_trainer / π_sampler, C)

The last is truncated importance sampling: where C is never reached, E_sampler[w ∇log π Ψ] is the gradient under the
trainer's own distribution of the token, and C bounds what a single token can do (Yao et al. 2025, "Your efficient RL
framework secretly brings you off-policy RL training"; Ionides 2008 for the truncation).
"""

from typing import Literal

import torch
from torch import Tensor

from tutelage.core.batch import Rollout
from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import masked_mean

Mismatch = Literal["recompute", "truncated", "none"]


def staleness_metrics(rollout: Rollout, version: int) -> dict[str, float]:
    """How many versions behind `version` the weights were that wrote the tokens: staleness/mean per token, and
    staleness/max."""
    if rollout.version is None:
        return {}
    behind = (version - rollout.version).where(rollout.mask, 0).float()
    return {"staleness/mean": float(masked_mean(behind, rollout.mask)), "staleness/max": float(behind.max())}


def mismatch_metrics(sampler: Tensor, trainer: Tensor, mask: Tensor) -> dict[str, float]:
    """The difference of two log-probabilities of the sampled tokens, Float[B, R].

    sampler/mismatch    mean |log π_trainer − log π_sampler| per token
    sampler/kl          KL(sampler‖trainer) per token in nats, by k3
    sampler/ratio_max   the largest π_trainer / π_sampler of a token
    """
    difference = (trainer - sampler).where(mask, 0.0)
    return {
        "sampler/mismatch": float(masked_mean(difference.abs(), mask)),
        "sampler/kl": float(masked_mean(kl_estimate(sampler, trainer, "k3"), mask)),
        "sampler/ratio_max": float(difference.where(mask, -torch.inf).max().exp()),
    }


def truncated_importance(sampler: Tensor, trainer: Tensor, mask: Tensor, cap: float) -> Tensor:
    """w = min(π_trainer / π_sampler, cap) of every token, 1 where there is none. Float[B, R]"""
    return (trainer - sampler).where(mask, 0.0).exp().clamp(max=cap)


def share_truncated(weight: Tensor, mask: Tensor, cap: float) -> float:
    """sampler/truncated: the share of tokens whose weight is held at the cap."""
    return float(masked_mean((weight >= cap).float(), mask))

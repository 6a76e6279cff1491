"""Policies to measure at: the demonstration's own, and those on the straight line between two of them."""

import torch

from tutelage.demo.lab.start import Start
from tutelage.models.policy import Policy


@torch.no_grad()
def between(start: Start, share: float) -> Policy:
    """θ_SFT + share · (θ_PPO − θ_SFT), with the SFT model as its reference: 0 is SFT, 1 the demonstration's policy,
    beyond 1 further along the same line."""
    policy = start.policy("sft")
    policy.freeze_reference()
    for own, other in zip(policy.model.parameters(), start.policy("improve").model.parameters(), strict=True):
        own += share * (other - own)
    return policy

"""Runs on rollouts of a real vLLM, and comparisons of its tokens with the policy's."""

import torch
from tiny_training import World, letters, policy_of, recipe_of

from tutelage.base import config
from tutelage.engines.interface import PromptTokens

STEPS = 5
GREEDY = config.Sampling(temperature=0.0, max_new_tokens=16)
FREE = config.Sampling(temperature=0.7, max_new_tokens=16)
PROMPTS = PromptTokens(((5, 6, 7, 40, 50), (8,), (9, 10, 11)), ("a", "b", "c"))


def world(folder, rank):
    """Five steps of GRPO, with an adapter of a rank or all weights (rank 0)."""
    policy = policy_of(folder, rank=rank)
    recipe = recipe_of("samples=8", "shaping.missing_end=none", name="grpo")
    reward = letters("abcdefghijklmnopqrstuvwxyz")
    return World(policy, recipe, steps=STEPS, lr=1e-2, reward=reward, tokens=16, temperature=0.7)


def farthest(policy, rollout, temperature):
    """The largest difference of a log-probability between the rollout and the policy, in nats."""
    with torch.no_grad():
        ours = policy.scores(rollout, temperature=temperature).logp
    return float((rollout.logp - ours)[rollout.mask].abs().max())


def same_tokens(one, other):
    return torch.equal(one.mask, other.mask) and torch.equal(one.response[one.mask], other.response[other.mask])

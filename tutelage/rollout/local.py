"""A policy in this process as a generator, and a generator whose weights are always the current ones."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens
from tutelage.engines.sampling import answers
from tutelage.models.policy import Policy
from tutelage.rollout.generator import Generator


class LocalGenerator:
    """A generator that samples from `policy` itself, so that it always has the newest weights."""

    def __init__(self, policy: Policy, version: int = 0) -> None:
        self.policy, self.version = policy, version

    def sync(self, version: int) -> None:
        """Call the weights of the policy `version` from here on."""
        self.version = version

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
        on_token: Callable[[Tensor], None] | None = None,
    ) -> Rollout:
        """`n` responses to each prompt, see `Generator`; `on_token` gets the tokens Int[B] of every position as they
        are drawn."""
        rollout = self.policy.generate(
            prompts, n, sampling, seed=seed, scored_first=scored_first, on_token=on_token
        )
        return replace(
            rollout,
            texts=tuple(answers(self.policy, rollout, sampling.stop)),
            version=torch.full_like(rollout.response, self.version),
        )


class CurrentGenerator:
    """Takes over the policy's weights before every rollout of `inner`, for loops in which rollouts are rare."""

    def __init__(self, inner: Generator) -> None:
        self.inner, self._versions = inner, count()

    def sync(self, version: int) -> None:
        """Nothing: every rollout does."""

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
    ) -> Rollout:
        """`n` responses to each prompt, see `Generator`, in a version of its own."""
        self.inner.sync(next(self._versions))
        return self.inner.generate(prompts, n, sampling, seed=seed, scored_first=scored_first)

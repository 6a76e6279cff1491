"""Generators for a policy in this process, and a wrapper that keeps weights current."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens
from tutelage.engines.lines import ENDLESS
from tutelage.engines.sampling import answers, lines_at_once
from tutelage.models.policy import Policy
from tutelage.rollout.continuous_batch import ContinuousBatch
from tutelage.rollout.drafts import Drafts
from tutelage.rollout.generator import Generator


class LocalGenerator:
    """Generator that samples from `policy` itself and always has the newest weights."""

    def __init__(self, policy: Policy, version: int = 0) -> None:
        self.policy, self.version = policy, version
        self.drafts = Drafts(frozenset(policy.end_ids))

    def sync(self, version: int) -> None:
        """Set the version recorded with subsequent rollouts."""
        self.version = version

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        on_token: Callable[[Tensor], None] | None = None,
    ) -> Rollout:
        """`n` completions of each prompt, see `Generator`; `on_token` receives the tokens Int[B] of every position
        as they are sampled."""
        rollout = self.policy.generate(prompts, n, sampling, seed=seed, on_token=on_token)
        return replace(
            rollout,
            texts=tuple(answers(self.policy, rollout, sampling.stop)),
            version=torch.full_like(rollout.response, self.version),
        )

    @contextmanager
    def continuous(
        self, sampling: config.Sampling, *, seed: int, longest: int | None
    ) -> Iterator[ContinuousBatch | None]:
        """Context for turns of episodes that are sampled as they arrive, with contexts of up to `longest` tokens; None
        if the engine cannot extend a context (see `Engine.lines`)."""
        policy = self.policy
        with policy.engine.lines(longest or ENDLESS) as lines:
            if lines is None:
                yield None
                return
            rows, room = lines_at_once(policy.backbone, sampling.max_new_tokens)
            limits = {"rows": rows, "room": room, "version": self.version}
            self.drafts.begin()
            drafts = self.drafts if policy.extends_exactly else None
            yield ContinuousBatch(policy, lines, sampling, seed, **limits, drafts=drafts)


class CurrentGenerator:
    """Synchronises the policy's weights before every rollout of `inner`, for loops with infrequent rollouts."""

    def __init__(self, inner: Generator) -> None:
        self.inner, self._versions = inner, count()

    def sync(self, version: int) -> None:
        """Do nothing: every rollout synchronises."""

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """`n` completions of each prompt, see `Generator`; each call has a new version."""
        self.inner.sync(next(self._versions))
        return self.inner.generate(prompts, n, sampling, seed=seed)

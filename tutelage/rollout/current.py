"""A generator whose weights are always those of the moment."""

from itertools import count

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.generator import Generator


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

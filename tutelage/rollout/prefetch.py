"""Rollouts generated ahead: while the policy trains on one, those of the next steps are sampled.

    version v is synchronised  →  the rollouts of the steps up to v + K may start

Admission control: a rollout starts at most K steps before it is trained on, so every token of step t has a version
of at least t − K. No rollout is discarded, which would favour prompts with short completions.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.generator import Generator


@dataclass(frozen=True)
class RolloutRequest:
    """Arguments of the rollout of a step."""

    prompts: PromptTokens
    n: int
    sampling: config.Sampling
    seed: int


class AheadGenerator:
    """Samples the rollouts of up to `staleness` further steps in the background.

    `plan` returns the rollout request of a step (counted from 0); requests outside the plan are served at once, with
    the newest weights. `inner` must support concurrent calls of `generate` and `sync`.
    """

    def __init__(
        self,
        inner: Generator,
        plan: Callable[[int], RolloutRequest],
        *,
        staleness: int,
        total: int,
        executor: Executor | None = None,
    ) -> None:
        self.inner, self.plan, self.staleness, self.total = inner, plan, staleness, total
        self._executor = executor or ThreadPoolExecutor(staleness + 1, thread_name_prefix="rollouts-ahead")
        self._begun: dict[RolloutRequest, Future[Rollout]] = {}
        self._next = 0

    def sync(self, version: int) -> None:
        """Synchronise the weights, then start the rollouts they admit. `version` is the number of the step."""
        self.inner.sync(version)
        self._next = max(self._next, version)
        while self._next < min(version + self.staleness + 1, self.total):
            request = self.plan(self._next)
            self._begun[request] = self._executor.submit(self._draw, request)
            self._next += 1

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """The rollout started for this request, or a new one. Errors of the background are raised here."""
        request = RolloutRequest(replace(prompts, scored_first=frozenset()), n, sampling, seed)
        future = self._begun.pop(request, None)
        if future is None:
            return self._draw(request)
        try:
            return future.result()
        except BaseException:
            self._executor.shutdown(wait=False, cancel_futures=True)
            raise

    def _draw(self, request: RolloutRequest) -> Rollout:
        return self.inner.generate(request.prompts, request.n, request.sampling, seed=request.seed)


@dataclass(frozen=True)
class Ahead:
    """Plan of rollouts generated up to `staleness` steps ahead, out of `total`."""

    staleness: int = 0
    total: int = 0
    plan: Callable[[int], RolloutRequest] | None = None

    def of(self, generator: Generator) -> Generator:
        """Generator that works ahead with `generator`; `generator` itself if `staleness` is 0."""
        if not self.staleness or self.plan is None:
            return generator
        return AheadGenerator(generator, self.plan, staleness=self.staleness, total=self.total)

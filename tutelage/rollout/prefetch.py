"""Rollouts that are written ahead: while the policy learns from one, those of the next steps are being drawn.

    version v is handed over  →  the rollouts of the steps up to v + K may begin

That is the admission: no rollout begins earlier than K steps before it is learnt from, so every token of step t has a
version of at least t − K, and none is ever thrown away (which would favour prompts with short answers).
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.generator import Generator


@dataclass(frozen=True)
class RolloutRequest:
    """What a step asks a generator for."""

    prompts: PromptTokens
    n: int
    sampling: config.Sampling
    seed: int


class AheadGenerator:
    """Draws the rollouts of up to `staleness` further steps in the background.

    `plan` gives the rollout that a step (counted from 0) will ask for; a request that is not in the plan is answered at
    once, with the newest weights. `inner` has to bear being asked and being handed weights at the same time.
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
        """Hand the weights over, then begin what they admit. `version` is the number of the step."""
        self.inner.sync(version)
        self._next = max(self._next, version)
        while self._next < min(version + self.staleness + 1, self.total):
            request = self.plan(self._next)
            self._begun[request] = self._executor.submit(self._draw, request)
            self._next += 1

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
    ) -> Rollout:
        """The rollout that was begun for this request, or else a new one. An error of the background is raised here."""
        request = RolloutRequest(prompts, n, sampling, seed)
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
    """The rollouts that are written ahead: those of up to `staleness` steps, out of `total`, by their `plan`."""

    staleness: int = 0
    total: int = 0
    plan: Callable[[int], RolloutRequest] | None = None

    def of(self, generator: Generator) -> Generator:
        """A generator that writes ahead with `generator`, or itself where every step waits for its rollout."""
        if not self.staleness or self.plan is None:
            return generator
        return AheadGenerator(generator, self.plan, staleness=self.staleness, total=self.total)

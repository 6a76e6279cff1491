"""Generators of several ranks: each samples for some of the prompts, or the first one for all."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens
from tutelage.engines.ranks.ranks import Ranks, deal
from tutelage.rollout.generator import Generator, concatenate


class DealtGenerator:
    """Every rank generates the responses to some of the prompts, and gets those of all.

    The random stream of a row depends on its prompt and its number alone, so the tokens are those of one process. Where
    rows are scored first, the rollout says in `owner` which rank wrote each: what its engine keeps of the row is there.

    `gathered` is the context in which every rank has all weights, of a policy in shards.
    """

    def __init__(
        self,
        generator: Generator,
        ranks: Ranks,
        gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.generator, self.ranks, self.gathered = generator, ranks, gathered

    def sync(self, version: int) -> None:
        """See `Generator.sync`."""
        self.generator.sync(version)

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
    ) -> Rollout:
        """See `Generator.generate`. Raises `PeerError` where the generator of another rank fails."""
        costs = [len(tokens) + n * sampling.max_new_tokens for tokens in prompts.tokens]
        owners = deal(costs, prompts.tokens, self.ranks.size)
        own = [place for place, owner in enumerate(owners) if owner == self.ranks.rank]
        mine = PromptTokens(tuple(prompts.tokens[i] for i in own), tuple(prompts.ids[i] for i in own))

        def generate() -> Rollout | None:
            if not own:
                return None
            return self.generator.generate(mine, n, sampling, seed=seed, scored_first=scored_first)

        with self.gathered():
            rollout = self.ranks.together(generate)
        parts = self.ranks.gather((own, None if rollout is None else rollout.to("cpu")))
        whole = concatenate([part for _, part in parts if part is not None])
        places = torch.tensor([place for places, _ in parts for place in places])
        rows = (places.argsort()[:, None] * n + torch.arange(n)).flatten()
        device = "cpu" if rollout is None else rollout.response.device
        owner = torch.tensor(owners).repeat_interleave(n) if scored_first else None
        return replace(whole.rows(rows), owner=owner).to(device)


class SharedGenerator:
    """Rank 0 generates the responses, and all ranks get them. `generator` is that of rank 0, None on the others.

    `gathered` is the context in which rank 0 has all weights, of a policy in shards.
    """

    def __init__(
        self,
        generator: Generator | None,
        ranks: Ranks,
        gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.generator, self.ranks, self.gathered = generator, ranks, gathered

    def sync(self, version: int) -> None:
        """See `Generator.sync`. Rank 0 hands the weights over."""
        with self.gathered():
            self.ranks.shared(lambda: self._own.sync(version))

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
    ) -> Rollout:
        """See `Generator.generate`."""
        return self.ranks.shared(
            lambda: self._own.generate(prompts, n, sampling, seed=seed, scored_first=scored_first)
        )

    @property
    def _own(self) -> Generator:
        assert self.generator is not None
        return self.generator


def shared_generator(
    make: Callable[[], Generator],
    ranks: Ranks,
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator:
    """The generator that `make` returns, which is called and asked on rank 0 alone. For `gathered` see
    `SharedGenerator`."""
    if ranks.size == 1:
        return make()
    return SharedGenerator(ranks.together(lambda: make() if ranks.is_first else None), ranks, gathered)


def dealt_generator(
    generator: Generator,
    ranks: Ranks,
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator:
    """The generator with its prompts dealt to the ranks; itself for a single rank. For `gathered` see
    `DealtGenerator`."""
    return generator if ranks.size == 1 else DealtGenerator(generator, ranks, gathered)

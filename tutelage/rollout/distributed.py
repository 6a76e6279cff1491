"""Generators and rewards for several ranks: prompts are split among the ranks, or rank 0 samples for all."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.engines.interface import PromptTokens
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.ranks import Ranks, deal
from tutelage.rewards.reward import Breakdown, Completion, Reward, RewardWrapper, device_of, prompt_ids, selected
from tutelage.rewards.scores import breakdown_of
from tutelage.rollout.generator import Generator, concatenate
from tutelage.rollout.player import Player


class DealtGenerator:
    """Every rank generates the completions of some prompts and receives those of all.

    The random stream of a row depends only on its prompt and its number, so the tokens are those of one process. If
    rows are scored first, `owner` in the rollout is the rank that wrote each row and holds its cache.

    Rollouts are on `device`. `gathered` is the context in which every rank has all weights of a sharded policy.
    """

    def __init__(
        self,
        generator: Generator,
        ranks: Ranks,
        device: torch.device,
        gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.generator, self.ranks, self.device, self.gathered = generator, ranks, device, gathered

    def sync(self, version: int) -> None:
        self.generator.sync(version)

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """See `Generator.generate`. Raises `PeerError` if the generator of another rank fails."""
        costs = [len(tokens) + n * sampling.max_new_tokens for tokens in prompts.tokens]
        owners = deal(costs, prompts.tokens, self.ranks.size)
        own = [place for place, owner in enumerate(owners) if owner == self.ranks.rank]
        mine = prompts.at(own)

        player = self.generator if isinstance(self.generator, Player) else None

        def generate() -> Rollout | None:
            if not own:
                return None
            if player is not None:
                return player.play(mine, n, sampling, seed)
            return self.generator.generate(mine, n, sampling, seed=seed)

        with self.gathered():
            rollout = self.ranks.together(generate)
        parts = self.ranks.gather((own, None if rollout is None else rollout.to("cpu")))
        whole = concatenate([part for _, part in parts if part is not None])
        places = torch.tensor([place for places, _ in parts for place in places])
        rows = (places.argsort()[:, None] * n + torch.arange(n)).flatten()
        owner = torch.tensor(owners).repeat_interleave(n) if prompts.scored_first else None
        whole = replace(whole.rows(rows), owner=owner)
        if player is not None:
            player.check(whole, self.ranks)
        return whole.to(self.device)


class SharedGenerator:
    """Rank 0 generates the completions for all ranks. `generator` is None on the others.

    `gathered` is the context in which rank 0 has all weights of a sharded policy.
    """

    def __init__(
        self,
        generator: Generator | None,
        ranks: Ranks,
        gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.generator, self.ranks, self.gathered = generator, ranks, gathered

    def sync(self, version: int) -> None:
        """See `Generator.sync`. Rank 0 transfers the weights."""
        with self.gathered():
            self.ranks.shared(lambda: self._own.sync(version))

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        return self.ranks.shared(lambda: self._own.generate(prompts, n, sampling, seed=seed))

    @property
    def _own(self) -> Generator:
        assert self.generator is not None
        return self.generator


def shared_generator(
    make: Callable[[], Generator], ranks: Ranks, gathered: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Generator:
    """Generator created by `make` and called on rank 0 only. `gathered`: see `SharedGenerator`."""
    if ranks.size == 1:
        return make()
    return SharedGenerator(ranks.together(lambda: make() if ranks.is_first else None), ranks, gathered)


def dealt_generator(
    generator: Generator,
    ranks: Ranks,
    device: torch.device,
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator:
    """Generator with its prompts split among the ranks; unchanged for a single rank. `device` and `gathered`: see
    `DealtGenerator`."""
    return generator if ranks.size == 1 else DealtGenerator(generator, ranks, device, gathered)


TOTAL = ""
"""Name of the total score next to those of its components."""


@dataclass(frozen=True)
class DealtReward(RewardWrapper):
    """Every rank scores the completions of some prompts and receives the scores of all.

    All completions of a prompt are scored by one rank, in one call. `passes` are those through sharded reward
    models, in which all ranks take part.
    """

    reward: Reward
    ranks: Ranks
    passes: Passes | None = None

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The scores, and those of the components. Raises `PeerError` if the reward of another rank fails."""
        ids = prompt_ids(completions)
        counts = Counter(ids)
        rank_of = dict(zip(counts, deal(list(counts.values()), list(counts), self.ranks.size), strict=True))
        own = [place for place, name in enumerate(ids) if rank_of[name] == self.ranks.rank]
        mine = selected(completions, own)
        together = self.ranks.together if self.passes is None else self.passes.together
        breakdown = together(lambda: breakdown_of(self.reward, mine) if own else None)
        columns = {} if breakdown is None else {TOTAL: breakdown.total} | dict(breakdown.parts)
        credit = None if breakdown is None or breakdown.credit is None else breakdown.credit.tolist()
        gathered = self.ranks.gather((own, {name: values.tolist() for name, values in columns.items()}, credit))
        device = device_of(completions)
        whole = {name: torch.zeros(len(completions)) for _, part, _ in gathered for name in part}
        for places, part, _ in gathered:
            for name, values in part.items():
                whole[name][places] = torch.tensor(values)
        rows = {place: row for places, _, some in gathered for place, row in zip(places, some or (), strict=False)}
        parts = {name: values.to(device) for name, values in whole.items()}
        none = [0.0] * len(next(iter(rows.values()), ()))  # for ranks whose completions have no turn
        paid = torch.tensor([rows.get(place, none) for place in range(len(ids))], device=device) if rows else None
        return Breakdown(parts.pop(TOTAL), parts, paid)


def dealt_reward(reward: Reward, ranks: Ranks, passes: Passes | None = None) -> Reward:
    """Distribute a reward over the ranks; unchanged for a single rank. `passes`: see `DealtReward`."""
    return reward if ranks.size == 1 else DealtReward(reward, ranks, passes)

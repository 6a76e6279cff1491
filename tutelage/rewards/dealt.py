"""A reward whose completions are dealt to the ranks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tutelage.engines.ranks.dealing import deal
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.ranks import Ranks
from tutelage.rewards.completions import device_of, prompt_ids, selected
from tutelage.rewards.reward import Breakdown, Completion, Reward, RewardWrapper
from tutelage.rewards.scores import breakdown_of

TOTAL = ""
"""The name of the whole score beside those of its parts."""


@dataclass(frozen=True)
class DealtReward(RewardWrapper):
    """Every rank scores the completions of some prompts, and gets the scores of all.

    The completions of a prompt are scored by one rank, in one call. `passes` are those through reward models in shards,
    which all ranks take together.
    """

    reward: Reward
    ranks: Ranks
    passes: Passes | None = None

    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The scores, and those of the parts. Raises `PeerError` where the reward of another rank fails."""
        owners = _owners(prompt_ids(completions), self.ranks.size)
        own = [place for place, owner in enumerate(owners) if owner == self.ranks.rank]
        mine = selected(completions, own)
        together = self.ranks.together if self.passes is None else self.passes.together
        found = together(lambda: breakdown_of(self.reward, mine) if own else None)
        columns = {} if found is None else {TOTAL: found.total} | dict(found.parts)
        gathered = self.ranks.gather((own, {name: values.tolist() for name, values in columns.items()}))
        device = device_of(completions)
        whole = {name: torch.zeros(len(completions)) for _, part in gathered for name in part}
        for places, part in gathered:
            for name, values in part.items():
                whole[name][places] = torch.tensor(values)
        parts = {name: values.to(device) for name, values in whole.items()}
        return Breakdown(parts.pop(TOTAL), parts)


def dealt_reward(reward: Reward, ranks: Ranks, passes: Passes | None = None) -> Reward:
    """The reward with its completions dealt to the ranks; itself for a single rank. For `passes` see `DealtReward`."""
    return reward if ranks.size == 1 else DealtReward(reward, ranks, passes)


def _owners(names: Sequence[str], size: int) -> list[int]:
    """The rank of each completion: those of a prompt stay together."""
    counts = Counter(names)
    rank_of = dict(zip(counts, deal(list(counts.values()), list(counts), size), strict=True))
    return [rank_of[name] for name in names]

"""Rewards of which every rank scores the completions of some prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from tutelage.data.records import user
from tutelage.engines.ranks.ranks import Ranks
from tutelage.rewards.reward import Breakdown, BreakdownReward, Completion
from tutelage.rollout.distributed import DealtReward


@dataclass
class TwoRanks:
    """One of two ranks; `gather` adds to what the other sent."""

    rank: int
    sent: list[object]
    size = 2

    def together(self, work: Callable[[], object]) -> object:
        return work()

    def gather(self, own: object) -> list[object]:
        self.sent.append(own)
        return list(self.sent)


def test_turns_of_one_rank_are_credited_beside_another_rank_without_a_turn() -> None:
    class Paid(BreakdownReward):
        def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
            credit = None if completions[0].prompt_id == "x" else torch.tensor([[0.5, -0.5]] * len(completions))
            return Breakdown(torch.ones(len(completions)), credit=credit)

    answers = [Completion(name, user("Why?"), "a", {}) for name in ("x", "y", "y")]
    sent: list[object] = []
    for rank in range(2):
        found = DealtReward(Paid(), cast(Ranks, TwoRanks(rank, sent))).breakdown(answers)
    assert found.credit is not None
    assert found.credit.tolist() == [[0.0, 0.0], [0.5, -0.5], [0.5, -0.5]]

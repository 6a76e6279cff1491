"""Best of n: sample n completions and keep the one with the highest reward. No weights change.

KL(best-of-n‖π) is at most log n − (n − 1)/n nats for any score (Stiennon et al. 2020; a bound by Beirami et al.
2024, arXiv 2401.01879, exact without ties).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.records import Prompt
from tutelage.rewards.reward import Completions, Reward
from tutelage.rewards.scores import scores_of
from tutelage.rollout.samplers import Sampler


def best_of_n_kl(n: int) -> float:
    """Upper bound of KL(best-of-n‖π) in nats per completion: log n − (n − 1)/n."""
    if n < 1:
        raise ValueError(f"the best of {counted(n, 'answer')} is none")
    return math.log(n) - (n - 1) / n


@dataclass(frozen=True)
class ScoredReply:
    """Reply with its score. `round` is the search round in which it was written, 0 for plain samples."""

    text: str
    score: float
    finished: bool = True
    round: int = 0


class ScoredAnswer(Protocol):
    """Completion with its score; `finished` is false if it was truncated at the length limit."""

    @property
    def score(self) -> float: ...

    @property
    def finished(self) -> bool: ...


Scored = TypeVar("Scored", bound=ScoredAnswer)


def best_first(answers: Iterable[Scored]) -> list[Scored]:
    """Sort completions from best to worst. Truncated ones rank below all that terminated, because their score is
    that of an incomplete text. Ties keep their order."""
    return sorted(answers, key=lambda one: (not one.finished, -one.score))


def best_of_n(
    sampler: Sampler, reward: Reward, prompts: Sequence[Prompt], n: int, sampling: config.Sampling, *, seed: int
) -> list[list[ScoredReply]]:
    """`n` scored completions of each prompt, best first. Raises TutelageError without prompts."""
    if not prompts:
        raise TutelageError("There is no prompt to answer.")
    replies = sampler([prompt.messages for prompt in prompts], n, sampling, seed=seed)
    repeated = [prompt for prompt in prompts for _ in range(n)]
    flat = [reply for group in replies for reply in group]
    answers, ended = [reply.text for reply in flat], [reply.finished for reply in flat]
    scores = scores_of(reward, Completions(repeated, answers, terminated=ended)).tolist()
    scored = [ScoredReply(reply.text, value, reply.finished) for reply, value in zip(flat, scores, strict=True)]
    return [best_first(scored[start : start + n]) for start in range(0, len(scored), n)]

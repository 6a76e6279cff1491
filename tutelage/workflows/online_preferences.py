"""Preferences made as the policy learns: its own answers, compared by a reward or a judge (online, or iterative, DPO).

After Guo et al. 2024 (arXiv 2402.04792) and Xiong et al. 2024 (arXiv 2312.11456); the reference stays the policy as it
was at the start.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tutelage.core.batch import Rows
from tutelage.core.preferences import PreferenceLoss
from tutelage.data.records import Prompt
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.models.rewards import Reward, make_reward
from tutelage.people.judging import Compare, EndpointJudge
from tutelage.train.run.folder import Run
from tutelage.train.supervised.own_answers import InRounds, best_against_worst, statistics
from tutelage.train.supervised.preference_training import DRIFT, ReferencePair, paired_job, refer
from tutelage.workflows.own_answers import answer_source, longest, score_look, steps_per_round
from tutelage.workflows.preference_files import PreferenceJob, reference_of
from tutelage.workflows.settings.dpo import DpoSettings
from tutelage.workflows.settings.endpoint import KEY

AT_ONCE = 8
"""Pairs that are sent to a judge at the same time."""


def online_job(
    settings: DpoSettings,
    run: Run,
    policy: Policy,
    loss: PreferenceLoss,
    prompts: Sequence[Prompt],
    budget: Budget,
) -> PreferenceJob:
    """The job of learning from the policy's own answers, compared round by round."""
    policy.freeze_reference()
    named = reference_of(settings, policy)
    reward: Reward = (
        _judge(settings) if settings.judge else make_reward(settings.reward, policy, settings.model)
    )
    share = settings.held_out if settings.reward else 0.0
    source = answer_source(settings, run, policy, reward, prompts, share)
    answers = source.answers
    drift = DRIFT in getattr(loss, "needs", ())

    def pairs_of(round: int) -> list[ReferencePair]:
        pairs = best_against_worst(answers.of(round))
        with policy.reference() if named is policy else nullcontext():
            return refer(named, pairs, budget, drift=drift, max_length=longest(settings, policy))

    steps = steps_per_round(settings, answers, 1)

    def tell(step: int) -> Mapping[str, float]:
        if step % steps:
            return {}
        groups = answers.of(step // steps)
        pairs = len(best_against_worst(groups))
        scores = statistics(groups, [group[0] for group in groups])
        return scores | {"kept": float(pairs), "round": float(step // steps + 1)}

    items = InRounds(pairs_of, steps, settings.batch_size, settings.seed)
    job = paired_job(policy, loss, items, steps * settings.rounds, budget=budget, tell=tell)
    job = replace(job, show=("loss", "accuracy", "margin", "score/mean", "held_out/score"))
    if source.held_out:
        job = replace(job, look=score_look(settings, policy, reward, source.held_out))
    return PreferenceJob(job, source.counts)


def _judge(settings: DpoSettings) -> Reward:
    key = os.environ.get(KEY, "")
    return PairwiseJudge(
        EndpointJudge(settings.judge, settings.judge_model, settings.judge_question, key=key)
    )


@dataclass(frozen=True)
class PairwiseJudge:
    """A judge as a reward of answers that come in twos: 1 for the one that it prefers in both orders, 0 for the other,
    and 1/2 for both where its preference turns with the order."""

    compare: Compare

    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        """Float[B]. Raises TutelageError where the judge fails."""
        pairs = list(zip(prompts[::2], texts[::2], texts[1::2], strict=True))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            won = list(pool.map(lambda pair: self._first(*pair), pairs))
        return torch.tensor(
            [score for first in won for score in (first, 1.0 - first)], device=rows.prompt.device
        )

    def _first(self, prompt: Prompt, one: str, other: str) -> float:
        if one == other:
            return 0.5
        shown = self.compare(prompt.messages, one, other).preferred
        turned = self.compare(prompt.messages, other, one).preferred
        return {("first", "second"): 1.0, ("second", "first"): 0.0}.get((shown, turned), 0.5)

"""Preferences made as the policy learns: its own answers, compared by a reward or a judge (online, or iterative, DPO).

After Guo et al. 2024 (arXiv 2402.04792) and Xiong et al. 2024 (arXiv 2312.11456); the reference stays the policy as it
was at the start.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tutelage.commands.dpo import Settings
from tutelage.commands.own_answers import longest, look_at_scores, own_answers, steps_of_a_round
from tutelage.commands.preferring.given import reference_of
from tutelage.commands.sample import KEY
from tutelage.core.preferences import PreferenceLoss
from tutelage.data.records import Prompt
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.named import make_reward
from tutelage.rewards.reward import Reward
from tutelage.train.supervised.job import Job
from tutelage.train.supervised.own_answers import InRounds, best_against_worst, described
from tutelage.train.supervised.preference_training import DRIFT, Referred, paired_job, refer

if TYPE_CHECKING:
    from tutelage.train.run.folder import Run


def from_own_answers(
    settings: Settings,
    run: "Run",
    policy: Policy,
    loss: PreferenceLoss,
    prompts: Sequence[Prompt],
    budget: Budget,
) -> tuple[Job, Mapping[str, Any]]:
    """The job of learning from the policy's own answers, compared round by round, and how many prompts there are."""
    policy.freeze_reference()
    named = reference_of(settings, policy)
    reward: Reward = (
        _judge(settings) if settings.judge else make_reward(settings.reward, policy, settings.model)
    )
    share = settings.held_out if settings.reward else 0.0
    own, aside = own_answers(settings, run, policy, reward, prompts, share)
    drift = DRIFT in getattr(loss, "needs", ())

    def of_round(number: int) -> list[Referred]:
        pairs = best_against_worst(own.of(number))
        with policy.reference() if named is policy else nullcontext():
            return refer(named, pairs, budget, drift=drift, max_length=longest(settings, policy))

    steps = steps_of_a_round(settings, own, 1, settings.epochs, settings.batch_size)

    def tell(step: int) -> Mapping[str, float]:
        if step % steps:
            return {}
        groups = own.of(step // steps)
        pairs = len(best_against_worst(groups))
        told = described(groups, [group[0] for group in groups])
        return told | {"kept": float(pairs), "round": float(step // steps + 1)}

    items = InRounds(of_round, steps, settings.batch_size, settings.seed)
    job = paired_job(policy, loss, items, steps * settings.rounds, budget=budget, tell=tell)
    job = replace(job, show=("loss", "accuracy", "margin", "score/mean", "held_out/score"))
    if aside:
        job = replace(job, look=look_at_scores(settings, policy, reward, aside))
    return job, {"prompts": len(own.questions.items), "held_out_prompts": len(aside)}


def _judge(settings: Settings) -> Reward:
    from tutelage.people.judging import EndpointJudge

    key = os.environ.get(KEY, "")
    return PairwiseJudgeReward(
        EndpointJudge(settings.judge, settings.judge_model, settings.judge_question, key=key)
    )

"""Online preferences: the policy's own completions, compared by a reward or a judge (online, or iterative, DPO).

After Guo et al. 2024 (arXiv 2402.04792) and Xiong et al. 2024 (arXiv 2312.11456); the reference is the initial policy.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from tutelage.commands.dpo.pairs import PreferenceJob, reference_of
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.layout import reward_beside
from tutelage.commands.own_completions import answer_source, longest, score_look, steps_per_round
from tutelage.commands.runs import remark
from tutelage.commands.trust import Record, measure_first, trusted
from tutelage.core.preferences import PreferenceLoss
from tutelage.data.chat_endpoint import KEY, Endpoint, PaidEndpoint
from tutelage.data.llm_judge import EndpointPairJudge
from tutelage.data.records import Prompt
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.factory import make_reward
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.reward import Reward
from tutelage.rewards.scores import reward_metrics
from tutelage.train.run.folder import Run
from tutelage.train.supervised.completion_rounds import InRounds, best_and_worst, mostly_cut, pair_up, statistics
from tutelage.train.supervised.preference_job import DRIFT, ReferencePair, paired_job, refer

CUT = (
    "more than half of the completions were cut at the length limit, so only the scores say which is better. To let "
    "completions end, allow longer ones (--sampling.max-new-tokens)."
)


def online_job(
    settings: DpoSettings,
    run: Run,
    policy: Policy,
    loss: PreferenceLoss,
    prompts: Sequence[Prompt],
    budget: Budget,
    trust: Record,
) -> PreferenceJob:
    """Return the job that trains on the policy's own completions, compared round by round. The policy has its
    reference."""
    reference = reference_of(settings, policy)
    reward: Reward = _judge(settings) if settings.judge else reward_beside(policy, settings.reward, settings.model)
    reward = trusted(reward, trust, run)
    share = settings.held_out if settings.reward else 0.0
    source = answer_source(settings, run, policy, reward, prompts, share)
    answers = source.answers
    drift = DRIFT in getattr(loss, "needs", ())

    def pairs_of(round: int) -> Sequence[ReferencePair]:
        groups = answers.of(round)
        if mostly_cut(groups):
            remark(f"Round {round + 1}: {CUT}")
        pairs = pair_up(best_and_worst(groups))
        with policy.reference() if reference is policy else nullcontext():
            return refer(reference, pairs, budget, drift=drift, max_length=longest(settings, policy))

    steps = steps_per_round(settings, answers, 1)

    def tell(step: int) -> Mapping[str, float]:
        if step % steps:
            return {}
        groups = answers.of(step // steps)
        scores = statistics(groups, [best for best, _ in best_and_worst(groups)])
        return scores | reward_metrics(reward) | {"round": float(step // steps + 1)}

    items = InRounds(pairs_of, steps, settings.batch_size, settings.seed)
    job = paired_job(policy, loss, items, steps * settings.rounds, budget=budget, tell=tell)
    job = replace(job, show=("loss", "accuracy", "margin", "score/mean", "held_out/score"))
    if source.held_out:
        job = replace(job, look=score_look(settings, source, reward))
    return PreferenceJob(job, source.counts)


def measured_first(settings: DpoSettings) -> Record:
    """Check the reward or the judge against --trust before a run begins; the record is empty without --trust."""
    return measure_first(
        settings, lambda: _judge(settings) if settings.judge else make_reward(settings.reward, None, settings.model)
    )


def _judge(settings: DpoSettings) -> Reward:
    key = os.environ.get(KEY, "")
    endpoint = PaidEndpoint(Endpoint(settings.judge, settings.judge_model, key))
    return PairwiseJudgeReward(EndpointPairJudge(endpoint, settings.judge_question))

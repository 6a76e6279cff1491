"""Direct preference optimisation: training a policy on preferences, without a reward model.

The preferences are those of a data set, or, in online (iterative) DPO, of the policy's own completions, compared by a
reward or a judge round by round (Guo et al. 2024, arXiv 2402.04792; Xiong et al. 2024, arXiv 2312.11456). The reference
is the initial policy.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tutelage.base.errors import TutelageError
from tutelage.commands.calls import workflow
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.layout import policy_beside, reward_beside, trained_policy
from tutelage.commands.own_completions import answer_source, longest, score_look, steps_per_round
from tutelage.commands.results import DpoResult
from tutelage.commands.runs import (
    announce,
    announce_judging,
    check_weights,
    conclusion,
    evaluation_rows,
    open_training,
    remark,
    remark_batch,
    token_budget,
)
from tutelage.commands.study import refuse_inert_study, study_address
from tutelage.commands.trust import Record, measure_first, trusted
from tutelage.core.preferences import Kto, PreferenceLoss
from tutelage.data.chat_endpoint import KEY, Endpoint, PaidEndpoint
from tutelage.data.formats import load_preferences, load_prompts, load_unpaired
from tutelage.data.llm_judge import EndpointPairJudge
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Preference, Prompt, UnpairedAnswer
from tutelage.engines.ranks.processes import join
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.factory import make_reward, require_columns
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.reward import Reward
from tutelage.rewards.scores import reward_metrics
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Training
from tutelage.train.supervised.batches import Order, encode_preferences
from tutelage.train.supervised.completion_rounds import InRounds, best_and_worst, mostly_cut, pair_up, statistics
from tutelage.train.supervised.job import Job, job_loop
from tutelage.train.supervised.preference_job import DRIFT, ReferencePair, paired_job, preference_loss, refer
from tutelage.train.supervised.unpaired_job import encode_unpaired, label, labels_of, unpaired_job

if TYPE_CHECKING:
    from tutelage.commands.study_data import StudySnapshot


CUT = (
    "more than half of the completions were cut at the length limit, so only the scores say which is better. To let "
    "completions end, allow longer ones (--sampling.max-new-tokens)."
)


def reference_of(settings: DpoSettings, policy: Policy) -> Policy:
    """Return the reference model of the settings, by default the policy, which is still untrained."""
    if not settings.reference:
        return policy
    return policy_beside(policy, replace(settings.model, path=settings.reference), "reference")


def pairs_job(
    settings: DpoSettings,
    policy: Policy,
    loss: PreferenceLoss,
    pairs: tuple[Sequence[Preference], Sequence[Preference]],
    budget: Budget,
) -> tuple[Job, Mapping[str, int]]:
    """Return the job that trains on pairs, the training and the held-out ones, and the counts of its data."""
    training, aside = pairs
    check_weights([*training, *aside], settings.data)
    max_length = min(settings.max_length, policy.context or settings.max_length)
    train, cuts = encode_preferences(training, policy.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_preferences(aside, policy.tokenizer, max_length)[0] if aside else []
    reference, drift = reference_of(settings, policy), DRIFT in getattr(loss, "needs", ())
    evaluation = evaluation_rows(held_out, settings.evaluate_rows)
    train_pairs, held_out_pairs = (
        refer(reference, part, budget, drift=drift, max_length=max_length) for part in (train, evaluation)
    )
    remark_batch(settings.batch_size, len(train_pairs), "pairs")
    order = Order(train_pairs, settings.batch_size, settings.seed)
    steps = order.steps(settings.epochs)
    job = paired_job(policy, loss, order, steps, budget=budget, held_out=held_out_pairs)
    counts = {"pairs": len(train), "held_out_pairs": len(held_out), "dropped": len(cuts.dropped)}
    return job, counts


def single_answers_job(
    settings: DpoSettings, policy: Policy, loss: Kto, records: Sequence[UnpairedAnswer], budget: Budget
) -> tuple[Job, Mapping[str, int]]:
    """Return the job that trains on single answers labelled good or bad, and the counts of its data."""
    max_length = min(settings.max_length, policy.context or settings.max_length)
    prompts = [Prompt(str(number), record.messages) for number, record in enumerate(records)]
    training, aside = (
        [records[int(prompt.id)] for prompt in part]
        for part in split_by_prompt(prompts, settings.held_out, settings.seed)
    )
    train, cuts = encode_unpaired(training, policy.tokenizer, max_length)
    remark(cuts.describe(max_length))
    held_out = encode_unpaired(aside, policy.tokenizer, max_length)[0] if aside else []
    good = sum(labels_of(train))
    remark(_balance(good, len(train) - good, loss))
    reference = reference_of(settings, policy)
    evaluation = evaluation_rows(held_out, settings.evaluate_rows)
    train_answers, held_out_answers = (
        label(reference, answers, budget, max_length=max_length) for answers in (train, evaluation)
    )
    remark_batch(settings.batch_size, len(train_answers), "answers")
    order = Order(train_answers, settings.batch_size, settings.seed)
    steps = order.steps(settings.epochs)
    job = unpaired_job(policy, loss, order, steps, budget=budget, held_out=held_out_answers)
    counts = {"good": good, "bad": len(train) - good, "held_out_answers": len(held_out)}
    return job, counts | {"dropped": len(cuts.dropped)}


def _balance(good: int, bad: int, loss: Kto) -> str:
    """Return a remark if one label outweighs the other: the paper keeps λ_d n_d / (λ_u n_u) between 1 and 4/3."""
    weight = loss.desirable * good / max(1e-12, loss.undesirable * bad)
    if 1 <= weight <= 4 / 3 or not bad or not good:
        return ""
    return (
        f"The good answers weigh {weight:.2f} times the bad ones; KTO's authors advise 1 to 1.33. "
        f"--set desirable={loss.desirable / weight:.3g} would balance them."
    )


def online_job(
    settings: DpoSettings,
    run: Run,
    policy: Policy,
    loss: PreferenceLoss,
    prompts: Sequence[Prompt],
    budget: Budget,
    trust: Record,
) -> tuple[Job, Mapping[str, int]]:
    """Return the job that trains on the policy's own completions, compared round by round, and the counts of its data.
    The policy has its reference."""
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
    return job, source.counts


def _judge(settings: DpoSettings) -> Reward:
    key = os.environ.get(KEY, "")
    endpoint = PaidEndpoint(Endpoint(settings.judge, settings.judge_model, key))
    return PairwiseJudgeReward(EndpointPairJudge(endpoint, settings.judge_question))


@workflow(DpoSettings)
def dpo(settings: DpoSettings) -> DpoResult:
    """Train a policy on preferences directly, by DPO or another loss over pairs (KTO: also over single answers).

    The preferences come from a file, or are made during training: a reward or a judge compares the policy's own
    completions. Writes a run directory at `settings.out`, with the final model in `model/`. With `resume=True` an
    unfinished run continues from its latest checkpoint, and a finished one returns its result.

    Raises:
        TutelageError: the settings, the preferences or the model cannot be used.
    """
    with prepare_dpo(settings) as training:
        return training.finish()


@workflow(DpoSettings)
def prepare_dpo(settings: DpoSettings) -> AbstractContextManager[Training[DpoResult]]:
    """Open a preference run for iteration step by step; `dpo` runs it to its end."""
    loss = _loss(settings)
    address = study_address(settings.data) if settings.data else None
    if address is not None:
        study = join().shared(lambda: _study(settings, address))  # read once: it may change meanwhile
        for line in study.remarks:
            remark(line)
        start = partial(_training, settings, loss, [], {}, study)
        return open_training(settings, DpoResult, start, study.train, study.held_out)
    refuse_inert_study(settings, settings.data)
    read = load_prompts if settings.prompts else load_unpaired if settings.unpaired else load_preferences
    loaded = announce(read(settings.prompts or settings.data))
    if settings.prompts:
        require_columns(settings.reward, loaded)
        prompts = [record for record in loaded.records if isinstance(record, Prompt)]
        announce_judging(settings.reward, prompts, settings.samples)
    make = partial(_judge, settings) if settings.judge else partial(make_reward, settings.reward, None, settings.model)
    trust = measure_first(settings, settings.out, make)
    start = partial(_training, settings, loss, loaded.records, trust, None)
    return open_training(settings, DpoResult, start, loaded.records)


def _study(settings: DpoSettings, address: str) -> "StudySnapshot":
    from tutelage.commands.study_data import read_study
    from tutelage.people import Selection  # imported here: other runs need no database

    return read_study(
        address,
        settings.study,
        Selection(kinds=settings.kinds),
        rows=settings.study_rows,
        held_out=settings.held_out,
        seed=settings.seed,
        run=settings.out,
    )


def _training(
    settings: DpoSettings,
    loss: PreferenceLoss,
    records: Sequence[Any],
    trust: Record,
    study: "StudySnapshot | None",
    run: Run,
) -> Training[DpoResult]:
    if study is not None and run.ranks.is_first:
        from tutelage.commands.study_data import record_study

        record_study(study, run.path)
    with_reference = bool(settings.prompts and not settings.reference)
    policy = trained_policy(settings, run, with_reference=with_reference)
    budget = token_budget(settings, run, policy)
    if study is not None:
        job, counts = pairs_job(settings, policy, loss, (study.train, study.held_out), budget)
    else:
        job, counts = _job(settings, run, policy, loss, records, budget, trust)
    loop = job_loop(run, policy, job, settings, budget)
    return Training(loop, conclusion(run, policy, DpoResult, lambda: counts))


def _job(
    settings: DpoSettings,
    run: Run,
    policy: Policy,
    loss: PreferenceLoss,
    records: Sequence[Any],
    budget: Budget,
    trust: Record,
) -> tuple[Job, Mapping[str, int]]:
    """Return the job for prompts, for single answers or for pairs, by the settings."""
    if settings.prompts:
        return online_job(settings, run, policy, loss, records, budget, trust)
    if settings.unpaired:
        assert isinstance(loss, Kto)
        return single_answers_job(settings, policy, loss, records, budget)
    divided = split_by_prompt(records, settings.held_out, settings.seed)
    return pairs_job(settings, policy, loss, divided, budget)


def _loss(settings: DpoSettings) -> PreferenceLoss:
    loss = preference_loss(settings.loss, settings.set)
    if settings.unpaired and not isinstance(loss, Kto):
        raise TutelageError(
            f"--loss {settings.loss} compares two answers to one prompt; only kto trains on single labelled answers."
        )
    return loss

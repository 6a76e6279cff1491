"""Rejection-sampling fine-tuning: a policy is trained on the best of its own completions."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

from tutelage.commands.calls import workflow
from tutelage.commands.layout import reward_beside, trained_policy
from tutelage.commands.own_completions import AnswerSource, answer_source, score_look, steps_per_round
from tutelage.commands.rejection.settings import RejectionSettings
from tutelage.commands.results import RejectionResult
from tutelage.commands.runs import announce, announce_judging, conclusion, open_training, remark, token_budget
from tutelage.commands.trust import Record, measure_first, trusted
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.formats import load_prompts
from tutelage.data.records import Prompt
from tutelage.models.policy import Policy
from tutelage.rewards.factory import make_reward, require_columns
from tutelage.rewards.reward import Reward
from tutelage.rewards.scores import reward_metrics
from tutelage.rollout.inference.best_of_n import best_of_n_kl
from tutelage.train.run.folder import Run
from tutelage.train.run.loop import Training
from tutelage.train.supervised.completion_rounds import InRounds, keep_best, statistics
from tutelage.train.supervised.fit import WeightedRows, imitate
from tutelage.train.supervised.job import Job, job_loop

MOST = 0.5
"""Maximum share of a round's prompts whose completions have equal scores, without a remark."""


@workflow(RejectionSettings)
def rejection(settings: RejectionSettings) -> RejectionResult:
    """Sample completions of each prompt, keep the best, and fine-tune on them, round by round.

    Writes a run directory at `settings.out`, with the final model in `model/`. With `resume=True` an unfinished run
    continues from its latest checkpoint, and a finished one returns its result.

    Raises:
        TutelageError: the settings, the prompts, the reward or the model cannot be used.
    """
    with prepare_rejection(settings) as training:
        return training.finish()


@workflow(RejectionSettings)
def prepare_rejection(settings: RejectionSettings) -> AbstractContextManager[Training[RejectionResult]]:
    """Open a rejection-sampling run for iteration step by step; `rejection` runs it to its end."""
    loaded = announce(load_prompts(settings.prompts))
    require_columns(settings.reward, loaded)
    announce_judging(settings.reward, loaded.records, settings.samples)
    if not settings.overall and settings.keep == 1:
        nats = best_of_n_kl(settings.samples)
        remark(f"Best of {settings.samples}: a round targets a KL of at most {nats:.2f} nats from its start.")
    trust = measure_first(settings, settings.out, lambda: make_reward(settings.reward, None, settings.model))
    start = partial(_training, settings, loaded.records, trust)
    return open_training(settings, RejectionResult, start, loaded.records)


def _training(
    settings: RejectionSettings, prompts: Sequence[Prompt], trust: Record, run: Run
) -> Training[RejectionResult]:
    policy = trained_policy(settings, run)
    reward = trusted(reward_beside(policy, settings.reward, settings.model), trust, run)
    source = answer_source(settings, run, policy, reward, prompts, settings.held_out)
    job = _job(settings, run, policy, reward, source)
    budget = token_budget(settings, run, policy)
    loop = job_loop(run, policy, job, settings, budget)

    return Training(loop, conclusion(run, policy, RejectionResult, lambda: source.counts))


def _job(settings: RejectionSettings, run: Run, policy: Policy, reward: Reward, source: AnswerSource) -> Job:
    """Return the job that imitates the best completions of every round."""
    share = settings.overall * settings.samples if settings.overall else settings.keep
    steps = steps_per_round(settings, source.answers, share)

    def rows_of(round: int) -> list[EncodedRow]:
        return [one.row for one in keep_best(source.answers.of(round), settings.keep, settings.overall)]

    def tell(step: int) -> Mapping[str, float]:
        if step % steps:
            return {}
        groups = source.answers.of(step // steps)
        best = keep_best(groups, settings.keep, settings.overall)
        shown = [(one.prompt.messages[-1].content, one.text, one.score) for one in best[:4]]
        run.samples(step + 1, [{"prompt": p, "completion": text, "score": score} for p, text, score in shown])
        round, figures = step // steps + 1, statistics(groups, best)
        if figures["groups/dead"] > MOST:
            remark(_told_nothing_apart(round, figures["groups/dead"]))
        return figures | reward_metrics(reward) | {"round": float(round)}

    items = InRounds(rows_of, steps, settings.batch_size, settings.seed)
    pad = pad_token_id(policy.tokenizer)
    return Job(
        label="rejection",
        steps=steps * settings.rounds,
        batch=lambda step: WeightedRows.of(collate(items(step), pad, policy.device)),
        objective=lambda rows: imitate(policy, rows),
        look=score_look(settings, source, reward) if source.held_out else None,
        tell=tell,
        show=("loss", "score/mean", "score/kept", "held_out/score"),
    )


def _told_nothing_apart(round: int, share: float) -> str:
    return (
        f"Round {round}: for {share:.0%} of the prompts all completions got the same score, so the kept ones are no "
        "better than the others. Check the reward on a few completions. A finer reward, more completions (--samples) "
        "or a higher --sampling.temperature may distinguish them."
    )

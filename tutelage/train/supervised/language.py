"""Training a language model on given responses, which pretraining and fine-tuning share."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, RunSettings
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.core.rows import EncodedRow, RowList, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner, Step
from tutelage.train.run.drive import Loop, Watch, load_state
from tutelage.train.run.folder import Run
from tutelage.train.supervised.batches import Order
from tutelage.train.supervised.fit import fit
from tutelage.train.supervised.objectives import WeightedRows, imitate


@dataclass(frozen=True)
class LanguageJob:
    """The rows to learn and those to judge by; `epochs` passes, a look at the latter every `look_every` steps."""

    train: Sequence[EncodedRow]
    held_out: Sequence[EncodedRow]
    epochs: float
    look_every: int
    label: str
    at_end: Callable[[int], None] = lambda step: None
    """Called after the last step, before its checkpoint: what it logs is there exactly once, whatever happens."""


def language_loop(
    run: Run,
    policy: Policy,
    job: LanguageJob,
    settings: RunSettings,
    batches: BatchSettings,
    optimiser: config.Optimiser,
    budget: Budget,
) -> Loop:
    """The loop that minimises the token-mean negative log-likelihood of the responses, weighted by row. It logs
    held_out/loss and held_out/perplexity, which are not weighted."""
    pad = pad_token_id(policy.tokenizer)
    order = Order(job.train, batches.batch_size, settings.seed)
    total = max(1, round(job.epochs * order.steps_per_epoch))
    learner = Learner(
        {"policy": policy.parameters()}, optimiser, total, policy.total_norm, ranks=budget.ranks
    )
    load_state(run, learner)

    def batch(step: int) -> WeightedRows:
        rows = order(step)
        return WeightedRows.of(collate(rows, pad, policy.device), [row.weight for row in rows])

    def objective(part: WeightedRows) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return imitate(policy, part)

    def look(step: Step) -> Mapping[str, float]:
        if step.index == total:
            job.at_end(step.index)
        if not job.held_out or (step.index % max(1, job.look_every) and step.index != total):
            return {}
        return held_out_metrics(policy, job.held_out, budget)

    return Loop(
        run=run,
        learner=learner,
        steps=fit(learner, policy, batch, objective, budget=budget, seed=settings.seed),
        label=job.label,
        save=policy.save,
        gathered=policy.gathered_to_save,
        checkpoints=settings.checkpoints,
        show=("loss", "held_out/loss", "tokens_per_second"),
        watch=Watch(look, metric="held_out/loss"),
    )


@phase("evaluate")
@torch.no_grad()
def mean_loss(policy: Policy, rows: Sequence[EncodedRow], budget: int | Budget) -> float:
    """Negative log-likelihood per response token over all rows, in nats."""
    budget = Budget.of(budget)
    return budget.spend(_mean_loss, policy, rows, budget)


def _mean_loss(policy: Policy, rows: Sequence[EncodedRow], budget: Budget) -> float:
    total = torch.zeros(2, dtype=torch.float64)  # log-likelihood, tokens
    pad = pad_token_id(policy.tokenizer)
    for index in budget.parts(policy.split, RowList(rows)):
        batch = collate([rows[i] for i in index.tolist()], pad, policy.device)
        total[0] += float(policy.scores(batch).logp.double().sum())
        total[1] += int(batch.mask.sum())
    budget.ranks.sum_([total])
    return -float(total[0] / total[1].clamp(min=1))


def held_out_metrics(policy: Policy, rows: Sequence[EncodedRow], budget: int | Budget) -> dict[str, float]:
    """held_out/loss, nats per response token, and held_out/perplexity, its exponential."""
    loss = mean_loss(policy, rows, budget)
    return {"held_out/loss": loss, "held_out/perplexity": math.exp(min(loss, 700.0))}


def divide(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices of the rows to train on and of those to hold out: a random `share` of them, by seed.

    Raises TutelageError where none would be left to train on.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    held = round(share * count) if count > 1 else 0
    if count and held == count:
        raise TutelageError(
            f"--held-out {share:g} of {counted(count, 'row')} leaves none to train on: hold out fewer."
        )
    return sorted(order[held:]), sorted(order[:held])

"""Language-model training on the completions of a data set, for pretraining, fine-tuning, and beside an objective."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from tutelage.base.config.bases import BatchSettings
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.learner import LossTerms
from tutelage.train.supervised.batches import Order, read_parts
from tutelage.train.supervised.fit import WeightedRows, imitate
from tutelage.train.supervised.job import Job


def language_job(
    policy: Policy,
    train: Sequence[EncodedRow],
    held_out: Sequence[EncodedRow],
    settings: BatchSettings,
    *,
    label: str,
    budget: Budget,
    looks_first: bool,
    at_end: Callable[[int], None] = lambda step: None,
) -> Job:
    """Job that minimises the token-mean negative log-likelihood of the completions, weighted by row. Held-out metrics
    are unweighted.

    `at_end` is called after the last step and before its checkpoint, so that its metrics are logged exactly once.
    """
    pad = pad_token_id(policy.tokenizer)
    order = Order(train, settings.batch_size, settings.seed)
    total = order.steps(settings.epochs)

    def batch(step: int) -> WeightedRows:
        rows = order(step)
        return WeightedRows.of(collate(rows, pad, policy.device), [row.weight for row in rows])

    def tell(step: int) -> Mapping[str, float]:
        if step + 1 == total:
            at_end(total)
        return {}

    return Job(
        label=label,
        steps=total,
        batch=batch,
        objective=lambda part: imitate(policy, part),
        look=(lambda: language_figures(policy, held_out, budget)) if held_out else None,
        looks_first=looks_first,
        tell=tell,
        show=("loss", "held_out/loss", "tokens_per_second"),
    )


@phase("evaluate")
@torch.no_grad()
def mean_loss(policy: Policy, rows: Sequence[EncodedRow], budget: int | Budget) -> float:
    """Negative log-likelihood per response token over all rows, in nats."""
    shared = Budget.of(budget)

    def compute() -> float:
        total = torch.zeros(2, dtype=torch.float64)  # log-likelihood, tokens
        for _, batch in read_parts(policy, rows, shared):
            total[0] += float(policy.scores(batch).logp.double().sum())
            total[1] += int(batch.mask.sum())
        shared.ranks.sum_([total])
        return -float(total[0] / total[1].clamp(min=1))

    return shared.spend(compute)


def language_figures(policy: Policy, rows: Sequence[EncodedRow], budget: int | Budget) -> dict[str, float]:
    """loss in nats per response token, and its exponential perplexity."""
    loss = mean_loss(policy, rows, budget)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def divide(count: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Random split into training and held-out indices; `share` is the held-out fraction.

    Raises TutelageError if no training rows would remain.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    held = round(share * count) if count > 1 else 0
    if count and held == count:
        raise TutelageError(f"--held-out {share:g} of {counted(count, 'row')} leaves none to train on: hold out fewer.")
    return sorted(order[held:]), sorted(order[:held])


class PretrainingMix:
    """Pretraining loss in the objective of a policy (PPO-ptx, Ouyang et al. 2022), to preserve language modelling: adds
    `coef` · (negative log-likelihood of text) to the loss of every optimiser step."""

    def __init__(self, policy: Policy, rows: Sequence[EncodedRow], batch: int, coef: float, seed: int) -> None:
        self.policy, self.coef = policy, coef
        self.order = Order(rows, batch, seed)

    def __call__(self, step: int, budget: Budget) -> Tensor:
        """Mean loss per token of one batch of text. Accumulates its gradient if gradients are enabled."""
        rows = collate(self.order(step), pad_token_id(self.policy.tokenizer), self.policy.device)
        batch = WeightedRows.of(rows)
        total = torch.zeros((), device=self.policy.device)
        terms = LossTerms(step + 1)
        for index in budget.parts(self.policy.split, batch, terms.refuse_not_finite):
            loss, _ = imitate(self.policy, batch.rows(index))
            terms.note({"ptx/loss": loss}, "of the pretraining text")
            if torch.is_grad_enabled():
                self.policy.backward(self.coef * loss)
            total = total + loss.detach()
        budget.ranks.sum_([total])
        return total

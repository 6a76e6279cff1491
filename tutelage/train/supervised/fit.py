"""Supervised training loop and losses: pretraining, fine-tuning, reward models, preference losses.

Losses take a part of a batch whose weights sum to 1 over the whole batch.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from tutelage.base.progress.phases import phase
from tutelage.core.batch import Pairs, Rows, extended
from tutelage.core.reduce import token_weights
from tutelage.models.backbone import adapter_dropout
from tutelage.models.budget import Budget
from tutelage.models.engine_model import EngineModel
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner, LossTerms, Step, seed_step


@dataclass(frozen=True, kw_only=True)
class WeightedRows(Rows):
    """Rows with the weight of every response token in the loss of the whole batch."""

    weight: Tensor  # Float[B, R], sums to 1 over the batch

    @classmethod
    def of(cls, rows: Rows, weights: Sequence[float] | None = None) -> Self:
        """Weight every response token equally, or in proportion to the row's `weights`: w_it = w_i m_it / Σ_jt w_j
        m_jt."""
        weight = token_weights(rows.mask, "token_mean", rows.mask.shape[1])
        if weights is not None:
            weight = rows.mask * torch.tensor(weights, device=rows.mask.device)[:, None]
            weight = weight / weight.sum().clamp(min=1e-12)
        return extended(rows, cls, weight=weight)


@dataclass(frozen=True, kw_only=True)
class WeightedPairs(Pairs):
    """Pairs whose weights sum to 1 over the batch."""

    @classmethod
    def of(cls, pairs: Pairs) -> Self:
        """Normalise the weights of a whole batch."""
        return extended(pairs, cls, weight=pairs.weight / pairs.weight.sum().clamp(min=1e-12))


def imitate(policy: Policy, rows: WeightedRows) -> tuple[Tensor, dict[str, Tensor]]:
    """Negative log-likelihood of the completions: − Σ w log π(token | prompt, previous tokens)."""
    rows = rows.trimmed()
    return -(rows.weight * policy.scores(rows).logp).sum(), {}


Splittable = Rows | Pairs
"""Batch with weights normalised over the whole, so that sums over any split are equal."""

Objective = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""batch → (loss, metrics), both summed with weights that sum to 1 over the whole batch."""


def fit(
    learner: Learner,
    model: EngineModel,
    batches: Callable[[int], Splittable],
    objective: Objective,
    *,
    budget: int | Budget,
    seed: int,
) -> Iterator[Step]:
    """Minimise `objective`, one optimiser step per item. Adapter dropout in `model` is active only within a step.

    `batches(step)` returns the batch of a step (counted from 0) and depends on the step alone. `budget` bounds the
    tokens of one forward pass; it only affects memory, and is lowered if it is too large. Steps are complete when
    yielded: the caller may save, evaluate or stop.

    Metrics, in addition to those of `objective` and of the learner: tokens_per_second, and tokens_at_once, the
    budget.
    """
    budget = Budget.of(budget)
    while learner.step < learner.total:
        started = time.perf_counter()
        seed_step(seed, learner.step)
        batch = batches(learner.step)
        with phase("update"):
            metrics = budget.spend(_take_step, learner, model, batch, objective, budget)
        metrics["tokens_per_second"] = int(batch.lengths().sum()) / (time.perf_counter() - started)
        metrics["tokens_at_once"] = float(budget.tokens)
        learner.step += 1
        yield Step(learner.step, metrics | budget.ranks.totals(model.metrics()))


def _take_step(
    learner: Learner, model: EngineModel, batch: Splittable, objective: Objective, budget: Budget
) -> dict[str, float]:
    """Take one optimiser step on a batch. Returns its metrics. If memory runs out, no weight has changed (see
    `Budget.spend`)."""
    learner.clear()
    totals: defaultdict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
    adapter_dropout(model.model, True)
    terms = LossTerms(learner.step + 1)
    for index in budget.parts(model.split, batch, terms.refuse_not_finite):
        loss, metrics = objective(batch.rows(index))
        terms.note({"loss": loss}, _named(index))
        model.backward(loss)
        for name, value in ({"loss": loss} | metrics).items():
            totals[name] = totals[name] + value.detach()
    adapter_dropout(model.model, False)
    averages = {name: float(total) for name, total in totals.items()}
    return budget.ranks.totals(averages) | learner.update()


def _named(index: Tensor) -> str:
    numbers = ", ".join(str(i) for i in index[:8].tolist())
    return numbers + (f" and {len(index) - 8} more" if len(index) > 8 else "") + " of the batch"

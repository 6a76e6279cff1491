"""The supervised loop: pretraining, fine-tuning, reward models, preference losses, rejection sampling."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from tutelage.core.batch import Pairs, Rows
from tutelage.engines.cpu.states import micro_batches
from tutelage.models.backbone import adapter_dropout
from tutelage.models.budget import Budget
from tutelage.train.learner import Learner, Step, refuse_not_finite, seed_step

Splittable = Rows | Pairs
"""A batch whose weights were computed over all of it, so that sums over any split add up."""

Objective = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""batch → (loss, metrics), both summed with weights that add up to 1 over the whole batch."""


def fit(
    learner: Learner,
    model: nn.Module,
    batches: Callable[[int], Splittable],
    objective: Objective,
    *,
    budget: int | Budget,
    seed: int,
) -> Iterator[Step]:
    """Minimise `objective`, one optimiser step per item. The dropout of adapters in `model` is on only within a step.

    `batches(step)` gives the batch of a step (counted from 0) as a function of the step alone, and `budget` bounds
    the tokens of one forward pass; it changes the memory needed and nothing else, and is lowered where it turns out too
    large. The step that is yielded is done: whoever iterates may save, evaluate or stop.

    Metrics, beside those of `objective` and of the learner: tokens_per_second, and tokens_at_once, the budget.
    """
    budget = Budget.of(budget)
    while learner.step < learner.total:
        started = time.perf_counter()
        seed_step(seed, learner.step)
        batch = batches(learner.step)
        adapter_dropout(model, True)
        totals = learner.accumulate(
            budget, partial(_gradients, model, batch, objective, budget, learner.step + 1)
        )
        adapter_dropout(model, False)
        moved = learner.update()
        learner.step += 1
        rate = int(batch.lengths().sum()) / (time.perf_counter() - started)
        told = {"tokens_per_second": rate, "tokens_at_once": float(budget.tokens)}
        yield Step(learner.step, {k: float(v) for k, v in totals.items()} | moved | told)


def _gradients(
    model: nn.Module, batch: Splittable, objective: Objective, budget: Budget, step: int
) -> dict[str, Tensor]:
    """Accumulate the gradient of a batch. Returns its loss and metrics."""
    totals: defaultdict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
    for index in budget.parts(partial(micro_batches, model, batch)):
        loss, metrics = objective(batch.rows(index))
        refuse_not_finite({"loss": loss}, step, _named(index))
        loss.backward()
        for name, value in ({"loss": loss} | metrics).items():
            totals[name] = totals[name] + value.detach().cpu()
    return totals


def _named(index: Tensor) -> str:
    shown = ", ".join(str(i) for i in index[:8].tolist())
    return shown + (f" and {len(index) - 8} more" if len(index) > 8 else "") + " of the batch"

"""Training a reward model on preferences: a loss of Bradley–Terry's family on the score at the last token."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, RunSettings
from tutelage.base.progress.phases import phase
from tutelage.core.rows import EncodedRow, numbered
from tutelage.core.scoring_losses import Margin, ScoringLoss
from tutelage.data.chat_tokens import pad_token_id
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel
from tutelage.train.learner import Learner, Step
from tutelage.train.run.drive import STATE, Loop, Watch, load_state
from tutelage.train.run.folder import Run
from tutelage.train.supervised.batches import EncodedPair, Order, collate_pairs, of_each_row
from tutelage.train.supervised.fit import fit
from tutelage.train.supervised.objectives import WeightedPairs

AS_LABELLED: ScoringLoss = Margin()
"""Bradley–Terry with the labels and the margins of the pairs."""
HEAD_RATE = 1e-2
"""Learning rate of what a loss itself learns: a number or two, whatever the size of the model."""


@dataclass(frozen=True)
class RewardJob:
    """The pairs to learn and those to judge by. `patience` looks at the held-out pairs without a better loss end the
    run; 0 never does. A `loss` that is a module is trained along with the model."""

    train: Sequence[EncodedPair]
    held_out: Sequence[EncodedPair]
    epochs: float
    look_every: int
    patience: int
    loss: ScoringLoss = AS_LABELLED


def prefer(
    model: ScalarModel, pairs: WeightedPairs, loss_of: ScoringLoss = AS_LABELLED
) -> tuple[Tensor, dict[str, Tensor]]:
    """Σ w loss(r_chosen, r_rejected): by default
    − Σ w [ p log σ(d − margin) + (1 − p) log σ(−d − margin) ] with d = r_chosen − r_rejected.

    Metrics: `accuracy`, the weighted share of pairs scored in the order that the label calls likelier (ties half),
    and `margin`, the mean score difference.
    """
    chosen, rejected = model.scores(pairs.both().trimmed()).chunk(2)
    loss = (pairs.weight * loss_of(chosen, rejected, pairs.p_chosen, pairs.margin)).sum()
    difference = (chosen - rejected).detach()
    right = torch.sign(difference) * torch.sign(pairs.p_chosen - 0.5)
    return loss, {
        "accuracy": (pairs.weight * (right + 1) / 2).sum(),
        "margin": (pairs.weight * difference).sum(),
    }


def reward_loop(
    run: Run,
    model: ScalarModel,
    job: RewardJob,
    settings: RunSettings,
    batches: BatchSettings,
    optimiser: config.Optimiser,
    budget: Budget,
) -> Loop:
    """The loop that minimises `prefer` and measures the held-out pairs now and then.

    It ends early after `job.patience` looks without a better held-out loss; `restore_best` then takes the weights back
    to those of the best look.
    """
    pad = pad_token_id(model.tokenizer)
    order = Order(job.train, batches.batch_size, settings.seed, together=lambda pair: pair.chosen.prompt)
    learned = list(job.loss.to(model.device).parameters()) if isinstance(job.loss, nn.Module) else []
    learner = Learner(
        {"model": model.parameters(), "loss": learned},
        optimiser,
        max(1, round(job.epochs * order.steps_per_epoch)),
        model.total_norm,
        ranks=budget.ranks,
        loss=HEAD_RATE,
    )
    looks = _Looks(job, **load_state(run, learner))

    def look(step: Step) -> Mapping[str, float]:
        if not job.held_out or (step.index % max(1, job.look_every) and step.index != learner.total):
            return {}
        metrics = held_out_preferences(model, job.held_out, budget, job.loss)
        looks.record(metrics["held_out/loss"])
        return metrics

    return Loop(
        run=run,
        learner=learner,
        steps=fit(
            learner,
            model,
            lambda step: WeightedPairs.of(collate_pairs(order(step), pad, model.device)),
            lambda pairs: prefer(model, pairs, job.loss),
            budget=budget,
            seed=settings.seed,
        ),
        label="reward model",
        save=model.save,
        gathered=model.gathered_to_save,
        extra_state=lambda step: looks.state(),
        checkpoints=settings.checkpoints,
        show=("loss", "accuracy", "held_out/loss", "held_out/accuracy"),
        watch=Watch(look, metric="held_out/loss", keep_best=True, enough=looks.enough),
    )


def restore_best(loop: Loop) -> None:
    """Put the weights back to those of the checkpoint with the lowest held-out loss, if any was measured."""
    run = loop.run
    best = run.ranks.shared(run.best)
    if best is not None:
        loop.learner.load(best / STATE)


class _Looks:
    """The history of the held-out loss, for early stopping."""

    def __init__(self, job: RewardJob, best: float = math.inf, since: int = 0) -> None:
        self.patience, self.best, self.since = job.patience, best, since

    def record(self, loss: float) -> None:
        """Another look."""
        better = loss < self.best
        self.best, self.since = min(loss, self.best), 0 if better else self.since + 1

    def enough(self) -> bool:
        """Whether the last evaluations brought no improvement."""
        return 0 < self.patience <= self.since

    def state(self) -> dict[str, float]:
        """For the checkpoint."""
        return {"best": self.best, "since": self.since}


@torch.no_grad()
def pair_scores(
    model: ScalarModel, pairs: Sequence[EncodedPair], budget: int | Budget
) -> tuple[Tensor, Tensor]:
    """The scores of both sides of every pair, in order. Each Float[N]"""
    rows = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    scores = row_scores(model, rows, budget)
    return scores[: len(pairs)], scores[len(pairs) :]


@torch.no_grad()
def row_scores(model: ScalarModel, rows: Sequence[EncodedRow], budget: int | Budget) -> Tensor:
    """The score of every row, in order, each distinct one computed once. Float[N]"""
    kept, place = numbered(rows)
    return of_each_row(model, kept, model.scores, Budget.of(budget))[place]


@torch.no_grad()
def row_states(model: ScalarModel, rows: Sequence[EncodedRow], budget: int | Budget) -> Tensor:
    """The hidden state at the last token of every row, in order, each distinct one computed once. Float[N, d]"""
    kept, place = numbered(rows)
    shape = (model.head.weight.shape[1],)
    return of_each_row(model, kept, model.last_states, Budget.of(budget), shape)[place]


@phase("evaluate")
@torch.no_grad()
def held_out_preferences(
    model: ScalarModel, pairs: Sequence[EncodedPair], budget: int | Budget, loss: ScoringLoss = AS_LABELLED
) -> dict[str, float]:
    """held_out/loss, held_out/accuracy (against the likelier side; equal scores and even labels half) and
    held_out/margin."""
    chosen, rejected = pair_scores(model, pairs, budget)
    p = torch.tensor([pair.source.p_chosen for pair in pairs])
    margin = torch.tensor([pair.source.margin for pair in pairs])
    right = (torch.sign(chosen - rejected) * torch.sign(p - 0.5) + 1) / 2
    return {
        "held_out/loss": float(loss(chosen, rejected, p, margin).mean()),
        "held_out/accuracy": float(right.mean()),
        "held_out/margin": float((chosen - rejected).mean()),
    }

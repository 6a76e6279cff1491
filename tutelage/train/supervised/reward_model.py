"""Training a reward model on preferences, with a Bradley–Terry-type loss on the score at the last token."""

from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor, nn

from tutelage.base.config.bases import BatchSettings
from tutelage.base.progress.phases import phase
from tutelage.core.rows import EncodedRow, numbered
from tutelage.core.scoring_losses import Margin, ScoringLoss
from tutelage.data.chat_tokens import pad_token_id
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel
from tutelage.train.supervised.batches import EncodedPair, Order, collate_pairs, of_each_row, prompts_of, sources
from tutelage.train.supervised.fit import WeightedPairs
from tutelage.train.supervised.job import Job

AS_LABELLED: ScoringLoss = Margin()
"""Bradley–Terry loss with the labels and margins of the pairs."""


def prefer(
    model: ScalarModel, pairs: WeightedPairs, loss_of: ScoringLoss = AS_LABELLED
) -> tuple[Tensor, dict[str, Tensor]]:
    """Σ w loss(r_chosen, r_rejected): by default
    − Σ w [ p log σ(d − margin) + (1 − p) log σ(−d − margin) ] with d = r_chosen − r_rejected.

    Metrics: `accuracy`, the weighted fraction of pairs ranked as the label prefers (ties count half), and `margin`,
    the mean score difference.
    """
    chosen, rejected = model.scores(pairs.both().trimmed()).chunk(2)
    loss = (pairs.weight * loss_of(chosen, rejected, pairs.p_chosen, pairs.margin)).sum()
    difference = (chosen - rejected).detach()
    right = torch.sign(difference) * torch.sign(pairs.p_chosen - 0.5)
    return loss, {"accuracy": (pairs.weight * (right + 1) / 2).sum(), "margin": (pairs.weight * difference).sum()}


def reward_job(
    model: ScalarModel,
    train: Sequence[EncodedPair],
    held_out: Sequence[EncodedPair],
    settings: BatchSettings,
    *,
    patience: int,
    budget: Budget,
    loss: ScoringLoss = AS_LABELLED,
) -> Job:
    """Job that minimises `prefer` on the pairs. A `loss` that is a module is trained along with the model."""
    pad = pad_token_id(model.tokenizer)
    order = Order(train, settings.batch_size, settings.seed, together=prompts_of(train, attrgetter("chosen")))
    return Job(
        label="reward model",
        steps=order.steps(settings.epochs),
        batch=lambda step: WeightedPairs.of(collate_pairs(order(step), pad, model.device)),
        objective=lambda pairs: prefer(model, pairs, loss),
        look=(lambda: preference_figures(model, held_out, budget, loss)) if held_out else None,
        looks_first=False,
        patience=patience,
        show=("loss", "accuracy", "held_out/loss", "held_out/accuracy"),
        learned=list(loss.to(model.device).parameters()) if isinstance(loss, nn.Module) else [],
    )


@torch.no_grad()
def pair_scores(model: ScalarModel, pairs: Sequence[EncodedPair], budget: int | Budget) -> tuple[Tensor, Tensor]:
    """Scores of both sides of every pair, in order. Each Float[N]"""
    rows = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    scores = row_scores(model, rows, budget)
    return scores[: len(pairs)], scores[len(pairs) :]


@torch.no_grad()
def row_scores(model: ScalarModel, rows: Sequence[EncodedRow], budget: int | Budget) -> Tensor:
    """Score of every row, in order; duplicate rows are computed once. Float[N]"""
    unique, place = numbered(rows)
    return of_each_row(model, unique, model.scores, Budget.of(budget))[place]


@torch.no_grad()
def row_states(model: ScalarModel, rows: Sequence[EncodedRow], budget: int | Budget) -> Tensor:
    """Hidden state at the last token of every row, in order; duplicate rows are computed once. Float[N, d]"""
    unique, place = numbered(rows)
    shape = (model.head.weight.shape[1],)
    return of_each_row(model, unique, model.last_states, Budget.of(budget), shape)[place]


@phase("evaluate")
@torch.no_grad()
def preference_figures(
    model: ScalarModel, pairs: Sequence[EncodedPair], budget: int | Budget, loss: ScoringLoss = AS_LABELLED
) -> dict[str, float]:
    """loss, accuracy (equal scores and even labels count half) and margin of pairs."""
    chosen, rejected = pair_scores(model, pairs, budget)
    p = torch.tensor([source.p_chosen for source in sources(pairs)])
    margin = torch.tensor([source.margin for source in sources(pairs)])
    right = (torch.sign(chosen - rejected) * torch.sign(p - 0.5) + 1) / 2
    return {
        "loss": float(loss(chosen, rejected, p, margin).mean()),
        "accuracy": float(right.mean()),
        "margin": float((chosen - rejected).mean()),
    }

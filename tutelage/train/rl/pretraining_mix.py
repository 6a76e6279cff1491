"""Pretraining loss added to the objective (PPO-ptx, Ouyang et al. 2022), to preserve language modelling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.learner import LossTerms
from tutelage.train.supervised.batches import Order
from tutelage.train.supervised.fit import WeightedRows, imitate


class PretrainingMix:
    """Adds `coef` · (negative log-likelihood of pretraining text) to the loss of every optimiser step."""

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

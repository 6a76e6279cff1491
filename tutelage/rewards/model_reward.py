"""Reward from a reward model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from tutelage.core.batch import Rows
from tutelage.core.rows import EncodedRow, collate, with_end
from tutelage.data.chat_tokens import encode, end_token_ids, pad_token_id
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel
from tutelage.rewards.reward import Completion, rows_of


@dataclass(frozen=True)
class ModelReward:
    """Scores of a reward model.

    With `same_tokens`, the model has the policy's vocabulary and reads the sampled tokens if they are known. Otherwise
    it reads the conversation and the completion as text, with its own tokenizer.

    The score is read at the end token, as in training. Completions truncated at the length limit get an end token
    too, because scores at other tokens are untrained.
    """

    model: ScalarModel
    same_tokens: bool
    budget: Budget = field(default_factory=lambda: Budget(16_384))
    name: str = "model"
    """Name in logs."""

    @torch.no_grad()
    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B], on the device of the model."""
        sampled = rows_of(completions) if self.same_tokens else None
        if sampled is None:
            rows = self._encoded(completions)
        else:
            rows = with_end(sampled, self._ends, longest=self.model.context)
        return self.budget.spend(self._scores, rows.to(self.model.device))

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """End tokens; the score is read at the first of them."""
        return end_token_ids(self.model.tokenizer)

    def _scores(self, rows: Rows) -> Tensor:
        scores = torch.zeros(len(rows), device=self.model.device)
        for index in self.budget.parts(self.model.split, rows):
            scores[index] = self.model.scores(Rows.trimmed(rows.rows(index)))
        return scores

    def _encoded(self, completions: Sequence[Completion]) -> Rows:
        tokenizer = self.model.tokenizer
        pairs = (encode(one.messages, one.answer, tokenizer) for one in completions)
        encoded = [EncodedRow(tuple(prompt), tuple(response)) for prompt, response in pairs]
        return collate(encoded, pad_token_id(tokenizer), self.model.device)

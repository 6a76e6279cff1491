"""Rewards from reward models: the score of a whole completion, and, of a process reward model, the scores of its steps
as one score or as credit of turns."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout, Rows
from tutelage.core.returns import turn_ends
from tutelage.core.rows import EncodedRow, collate, with_end
from tutelage.core.turns import shaping_rewards
from tutelage.data.chat_tokens import encode, end_token_ids, pad_token_id
from tutelage.data.records import Message, Messages
from tutelage.data.traces import split_trace
from tutelage.data.transcripts import after_prompt
from tutelage.models.budget import Budget, token_values
from tutelage.models.heads import ScalarModel
from tutelage.models.step_scores import EncodedSteps, encode_steps, step_rows, turn_rows
from tutelage.rewards.reward import Breakdown, Completion, Completions, device_of, rows_of, selected


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


_RUNNING: Mapping[str, Callable[[Tensor], Tensor]] = {
    "last": lambda good: good,
    "min": lambda good: good.cummin(1).values,
    "product": lambda good: good.cumprod(1),
    "mean": lambda good: good.cumsum(1) / torch.arange(1, good.shape[1] + 1, device=good.device),
    "sum": lambda good: good.cumsum(1),
}
"""The fold of the first k steps for every k, by the names of `FOLDS`. Float[B, S] -> Float[B, S]"""


@dataclass(frozen=True)
class StepReward(ModelReward):
    """Scores of a process reward model.

    With p the probabilities that the steps of a completion are good, its score is the `fold` of all of them:

        last     p of the last step: of the end, given all that was said before
        min      the smallest p                              (Wang et al. 2024, Math-Shepherd)
        product  Πp, the probability that no step is wrong   (Lightman et al. 2023)
        mean     the mean of p
        sum      Σp: it pays for every step, so that more steps, not better ones, score higher

    In episodes of several turns the fold Φₖ of the first k turns is a potential: turn k is paid Φₖ − Φₖ₋₁ (see
    `core.turns.shaping_rewards`), which sums to the score, so that a turn is credited for what it changed, and the best
    policy is that of the score alone.

    A step is a turn of the policy, or for a model of steps of text a part of a single turn between separators, which is
    read as text; blank parts are none.
    """

    fold: str = "last"

    def __call__(self, completions: Sequence[Completion]) -> Tensor:
        """Float[B], on the device of the model."""
        return self.breakdown(completions).total

    @torch.no_grad()
    def breakdown(self, completions: Sequence[Completion]) -> Breakdown:
        """The score of each completion, NaN for an episode without a turn, and the credit of turns."""
        spoken = _with_turns(completions)
        if len(spoken) < len(completions):
            return self._of_some(completions, spoken)
        rows = self._rows(completions).to(self.model.device)
        values = token_values(self.model.split, self.model.values, rows, self.budget)
        running = _RUNNING[self.fold](values.sigmoid().where(rows.mask, 1.0))
        total = running.gather(1, rows.mask.sum(1, keepdim=True) - 1).squeeze(1)
        credit = None if self.model.separator else self._credit(completions, running, rows.mask)
        return Breakdown(total, credit=credit)

    def _of_some(self, completions: Sequence[Completion], spoken: Sequence[int]) -> Breakdown:
        """The breakdown if only some completions have a turn."""
        device = device_of(completions)
        total = torch.full((len(completions),), math.nan, device=device)
        if not spoken:
            return Breakdown(total)
        breakdown = self.breakdown(selected(completions, spoken))
        total[list(spoken)] = breakdown.total.to(total)
        if breakdown.credit is None:
            return Breakdown(total)
        credit = breakdown.credit.new_zeros(len(completions), breakdown.credit.shape[1])
        credit[list(spoken)] = breakdown.credit
        return Breakdown(total, credit=credit)

    def _rows(self, completions: Sequence[Completion]) -> Rows:
        """Rows whose columns are the steps of each completion."""
        rollout = completions.rows if isinstance(completions, Completions) else None
        if not self.model.separator and self.same_tokens and isinstance(rollout, Rollout):
            return turn_rows(rollout, self._ends, self.model.context)
        encoded = [self._encoded_steps(*one) for one in _conversations(completions)]
        pad = pad_token_id(self.model.tokenizer)
        return step_rows(encoded, pad, self.model.device, longest=self.model.context)

    def _encoded_steps(self, messages: Messages, transcript: Messages) -> EncodedSteps:
        separator, tokenizer = cast(str, self.model.separator), self.model.tokenizer
        if not separator:
            return encode_steps(messages, split_trace(transcript)[1], separator, tokenizer)
        if len(transcript) > 1:
            raise TutelageError(
                f"The reward {self.name} was trained on steps of text, and an episode has several turns: train one on "
                "steps of messages."
            )
        steps = [part for part in transcript[0].content.split(separator) if part.strip()]
        return encode_steps(messages, steps or [""], separator, tokenizer)

    def _credit(self, completions: Sequence[Completion], potential: Tensor, present: Tensor) -> Tensor | None:
        """Rewards of the turns of episodes, on the last token of each; None for single turns. Float[B, R]"""
        rows = completions.rows if isinstance(completions, Completions) else None
        if not isinstance(rows, Rollout) or rows.turn is None:
            return None
        credit = torch.zeros(rows.mask.shape, device=potential.device)
        ends = turn_ends(rows.turn, rows.mask).to(potential.device)
        if not torch.equal(ends.sum(1), present.sum(1)):
            raise TutelageError(
                f"The reward {self.name} reads the last conversation of an episode as text, and one has turns in "
                "another conversation: use a process reward model with the tokenizer of the policy."
            )
        return credit.masked_scatter(ends, shaping_rewards(potential, present)[present])


def _with_turns(completions: Sequence[Completion]) -> Sequence[int]:
    """Completions with a turn of the policy."""
    rows = completions.rows if isinstance(completions, Completions) else None
    return range(len(completions)) if rows is None else rows.mask.any(1).nonzero().flatten().tolist()


def _conversations(completions: Sequence[Completion]) -> list[tuple[Messages, Messages]]:
    """(conversation before the first turn of the policy, the messages from it on) of each completion."""
    rows = completions.rows if isinstance(completions, Completions) else None
    if not isinstance(completions, Completions) or not (isinstance(rows, Rollout) and rows.transcripts):
        return [(one.messages, (Message("assistant", one.answer),)) for one in completions]
    conversations = []
    for prompt, transcript in zip(completions.prompts, rows.transcripts, strict=True):
        rest = after_prompt(transcript, prompt.messages)
        before = len(transcript) - len(rest)
        first = before + next((place for place, message in enumerate(rest) if message.role == "assistant"), len(rest))
        conversations.append((transcript[:first], transcript[first:]))
    return conversations

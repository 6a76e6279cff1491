"""Reward from a process reward model: the scores of steps as the score of a completion, and as credit of turns."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout, Rows
from tutelage.core.returns import turn_ends
from tutelage.core.turns import shaping_rewards
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.records import Message, Messages
from tutelage.data.traces import split_trace
from tutelage.data.transcripts import after_prompt
from tutelage.models.budget import token_values
from tutelage.models.step_scores import EncodedSteps, encode_steps, step_rows, turn_rows
from tutelage.rewards.model_reward import ModelReward
from tutelage.rewards.reward import Breakdown, Completion, Completions, device_of, selected

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
        found = self.breakdown(selected(completions, spoken))
        total[list(spoken)] = found.total.to(total)
        if found.credit is None:
            return Breakdown(total)
        credit = found.credit.new_zeros(len(completions), found.credit.shape[1])
        credit[list(spoken)] = found.credit
        return Breakdown(total, credit=credit)

    def _rows(self, completions: Sequence[Completion]) -> Rows:
        """Rows whose columns are the steps of each completion."""
        rollout = completions.rows if isinstance(completions, Completions) else None
        if not self.model.separator and self.same_tokens and isinstance(rollout, Rollout):
            return turn_rows(rollout, self._ends, self.model.context)
        encoded = [self._encoded_steps(*one) for one in _conversations(completions)]
        pad = pad_token_id(self.model.tokenizer)
        return step_rows(encoded, pad, self.model.device, longest=self.model.context)

    def _encoded_steps(self, messages: Messages, said: Messages) -> EncodedSteps:
        separator, tokenizer = cast(str, self.model.separator), self.model.tokenizer
        if not separator:
            return encode_steps(messages, split_trace(said)[1], separator, tokenizer)
        if len(said) > 1:
            raise TutelageError(
                f"The reward {self.name} was trained on steps of text, and an episode has several turns: train one on "
                "steps of messages."
            )
        steps = [part for part in said[0].content.split(separator) if part.strip()]
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
    for prompt, said in zip(completions.prompts, rows.transcripts, strict=True):
        rest = after_prompt(said, prompt.messages)
        before = len(said) - len(rest)
        first = before + next((place for place, message in enumerate(rest) if message.role == "assistant"), len(rest))
        conversations.append((said[:first], said[first:]))
    return conversations

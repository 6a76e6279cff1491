"""KTO on single completions labelled good or bad (Ethayarajh et al. 2024, arXiv 2402.01306)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tutelage.core.batch import Rows, extended
from tutelage.core.preferences import Kto
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.records import UnpairedAnswer
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.supervised.batches import Cuts, EncodedWhenRead, encode_records, in_memory_if_few, prompts_of
from tutelage.train.supervised.job import Job
from tutelage.train.supervised.preference_job import completion_logps, mean_drift, reference_job, unrelated


@dataclass(frozen=True)
class LabelledCompletion:
    """Labelled completion as token ids, an unrelated completion of its prompt, and the reference's log-probabilities
    of both."""

    row: EncodedRow
    good: bool
    ref_logp: float
    unrelated: EncodedRow
    ref_unrelated: float

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, kw_only=True)
class LabelledRows(Rows):
    """Batch of labelled completions. `share` sums to 1 over the batch, `good_share` over its good completions."""

    good: Tensor  # Bool[B]
    ref_logp: Tensor  # Float[B]
    drift: Tensor  # Float[B], one number for all rows
    share: Tensor  # Float[B]
    good_share: Tensor  # Float[B], 0 for bad completions
    bad_share: Tensor  # Float[B], 0 for good completions


EncodedAnswer: TypeAlias = tuple[EncodedRow, bool]
"""Completion as token ids, and its label."""


def encode_unpaired(
    records: Sequence[UnpairedAnswer], tokenizer: Any, max_length: int
) -> tuple[Sequence[EncodedAnswer], Cuts]:
    """Labelled completions as token ids, and the truncation counts. Many of them are encoded when they are read."""
    return encode_records(
        "completion",
        records,
        lambda record: [(record.messages, record.completion)],
        lambda record, rows: (rows[0], record.label),
        tokenizer,
        max_length,
    )


def labels_of(answers: Sequence[EncodedAnswer]) -> list[bool]:
    """The label of each completion, which is not encoded for it."""
    if isinstance(answers, EncodedWhenRead):
        return [record.label for record in answers.items]
    return [good for _, good in answers]


def label(
    reference: Policy, answers: Sequence[EncodedAnswer], budget: int | Budget, *, max_length: int
) -> Sequence[LabelledCompletion]:
    """Add the reference's log-probabilities of each completion and of an unrelated one of the same prompt."""
    rows: Sequence[EncodedRow] = EncodedWhenRead(answers, itemgetter(0))
    others = unrelated(rows, prompts_of(answers, itemgetter(0)), max_length)
    own, foreign = (completion_logps(reference, some, budget).tolist() for some in (rows, others))

    def labelled(i: int) -> LabelledCompletion:
        row, good = answers[i]
        return LabelledCompletion(row, good, own[i], others[i], foreign[i])

    return in_memory_if_few(EncodedWhenRead(range(len(answers)), labelled))


def single_loss(policy: Policy, loss: Kto, rows: LabelledRows) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean over completions of λ_d σ(β (z − h)) if good and λ_u σ(β (h − z)) if bad, with h = log π − log π_ref.

    Metrics: `accuracy`, the fraction of completions whose h is on the side of z that their label predicts; `margin`,
    β (mean h of good − mean h of bad); `kl/chosen` and `kl/rejected`, −h of good and of bad completions.
    """
    rows = rows.trimmed()
    h = policy.scores(rows).logp.sum(1) - rows.ref_logp
    drift = rows.drift[0]
    each = torch.where(rows.good, loss.one(h, True, drift), loss.one(h, False, drift))
    with torch.no_grad():
        right = torch.sign(h - drift.clamp(min=0)) * torch.where(rows.good, 1.0, -1.0)
        good, bad = (rows.good_share * h).sum(), (rows.bad_share * h).sum()
        metrics = {
            "accuracy": (rows.share * (right + 1) / 2).sum(),
            "margin": loss.beta * (good - bad),
            "kl/chosen": -good,
            "kl/rejected": -bad,
        }
    return (rows.share * each).sum(), metrics


def labelled_batch(policy: Policy, items: Sequence[LabelledCompletion], drift: float) -> LabelledRows:
    rows = collate([item.row for item in items], pad_token_id(policy.tokenizer), policy.device)
    good = torch.tensor([item.good for item in items], device=policy.device)
    every = torch.ones(len(items), device=policy.device)
    return extended(
        rows,
        LabelledRows,
        good=good,
        ref_logp=torch.tensor([item.ref_logp for item in items], device=policy.device),
        drift=every * drift,
        share=every / len(items),
        good_share=good / good.sum().clamp(min=1),
        bad_share=~good / (~good).sum().clamp(min=1),
    )


def unpaired_job(
    policy: Policy,
    loss: Kto,
    items: Callable[[int], Sequence[LabelledCompletion]],
    steps: int,
    *,
    budget: int | Budget,
    held_out: Sequence[LabelledCompletion] = (),
) -> Job:
    """Job of training on labelled completions; `items` returns those of a step (counted from 0)."""

    def batch(items: Sequence[LabelledCompletion]) -> LabelledRows:
        rows, ref_logps = [item.unrelated for item in items], [item.ref_unrelated for item in items]
        return labelled_batch(policy, items, mean_drift(policy, rows, ref_logps, budget))

    return reference_job("kto", policy, items, batch, partial(single_loss, policy, loss), steps, held_out, budget)

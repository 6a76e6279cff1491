"""Training a process reward model on rated steps, by the cross-entropy of the score at the end of each step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from tutelage.base.config.bases import BatchSettings
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Rows, extended
from tutelage.core.rows import spread
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.records import RatedSteps
from tutelage.data.tokenizer import SpelledTokens
from tutelage.models.budget import Budget, token_values
from tutelage.models.heads import ScalarModel
from tutelage.models.step_scores import EncodedSteps, encode_steps, step_rows
from tutelage.train.supervised.batches import MOST_IN_MEMORY, READ_AT_ONCE, Cuts, EncodedWhenRead, Order
from tutelage.train.supervised.job import Job


@dataclass(frozen=True)
class LabelledSteps:
    """The rated steps of a completion as token ids, with the probability that each is good."""

    steps: EncodedSteps
    labels: tuple[float, ...]
    source: RatedSteps

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, kw_only=True)
class LabelledStepRows(Rows):
    """Rows whose columns are rated steps. Their weights sum to 1 over the batch."""

    label: Tensor  # Float[B, S]
    weight: Tensor  # Float[B, S]


def encode_rated(
    records: Sequence[RatedSteps], separator: str, tokenizer: Any, max_length: int
) -> tuple[Sequence[LabelledSteps], Cuts]:
    """Rated steps as token ids, and the truncation counts: steps that end beyond `max_length` tokens are cut off, and a
    completion without a rated step within them is dropped. Many of them are encoded when they are read."""
    cuts, spelled = Cuts(), SpelledTokens(tokenizer)
    encoded_one = partial(_labelled, separator=separator, tokenizer=tokenizer, max_length=max_length)
    encoded, left = list[LabelledSteps](), list[RatedSteps]()
    for number, record in enumerate(records, 1):
        spelled.add([message.content for message in record.messages] + [_text(step) for step in record.steps])
        one = encoded_one(record)
        if one is None:
            cuts.dropped.append(f"row {number}: no rated step within the limit")
            continue
        cuts.responses += len(one.labels) < sum(label is not None for label in record.labels)
        left.append(record)
        if len(records) <= MOST_IN_MEMORY:
            encoded.append(one)
    cuts.spelled = spelled.describe()
    if not left:
        raise TutelageError(f"No rated step ends within {counted(max_length, 'token')}: {'; '.join(cuts.dropped[:3])}.")
    if len(records) <= MOST_IN_MEMORY:
        return encoded, cuts
    return EncodedWhenRead(left, lambda record: cast(LabelledSteps, encoded_one(record))), cuts


def _text(step: object) -> str:
    return step if isinstance(step, str) else "".join(message.content for message in step)  # type: ignore[attr-defined]


def _labelled(record: RatedSteps, separator: str, tokenizer: Any, max_length: int) -> LabelledSteps | None:
    """The rated steps that fit; None if none does."""
    steps = encode_steps(record.messages, record.steps, separator, tokenizer)
    fits = steps.fitting(max_length)
    which = [label is not None and fit for label, fit in zip(record.labels, fits, strict=True)]
    labels = tuple(label for label, chosen in zip(record.labels, which, strict=True) if chosen and label is not None)
    return LabelledSteps(steps.only(which), labels, record) if labels else None


def rated_sources(items: Sequence[LabelledSteps]) -> Sequence[RatedSteps]:
    """The records of rated steps, which are not encoded for it."""
    return items.items if isinstance(items, EncodedWhenRead) else [item.source for item in items]


def labelled_rows(items: Sequence[LabelledSteps], pad: int, device: torch.device) -> LabelledStepRows:
    """Padded batch, in which every rated step has the same weight."""
    rows = step_rows([item.steps for item in items], pad, device)
    label = spread(torch.tensor([label for item in items for label in item.labels], device=device), rows.mask)
    return extended(rows, LabelledStepRows, label=label, weight=rows.mask / rows.mask.sum())


def rate(model: ScalarModel, rows: LabelledStepRows) -> tuple[Tensor, dict[str, Tensor]]:
    """− Σ w [ p log σ(s) + (1 − p) log σ(−s) ] over the steps, with score s and label p of each.

    Metrics: `accuracy`, the share of steps whose score has the sign that the label predicts (0 and even labels count
    half).
    """
    rows = rows.trimmed()
    score = model.values(rows)
    loss = binary_cross_entropy_with_logits(score, rows.label, reduction="none")
    right = (torch.sign(score.detach()) * torch.sign(rows.label - 0.5) + 1) / 2
    return (rows.weight * loss).sum(), {"accuracy": (rows.weight * right).sum()}


def step_job(
    model: ScalarModel,
    train: Sequence[LabelledSteps],
    held_out: Sequence[LabelledSteps],
    settings: BatchSettings,
    *,
    patience: int,
    budget: Budget,
) -> Job:
    """Job that minimises `rate` on the rated steps."""
    pad = pad_token_id(model.tokenizer)
    together = [record.messages for record in rated_sources(train)]
    order = Order(train, settings.batch_size, settings.seed, together=together)
    return Job(
        label="process reward model",
        steps=order.steps(settings.epochs),
        batch=lambda step: labelled_rows(order(step), pad, model.device),
        objective=lambda rows: rate(model, rows),
        look=(lambda: step_figures(model, held_out, budget)) if held_out else None,
        looks_first=False,
        patience=patience,
        show=("loss", "accuracy", "held_out/loss", "held_out/accuracy"),
    )


def rated_scores(model: ScalarModel, items: Sequence[LabelledSteps], budget: int | Budget) -> list[list[float]]:
    """The scores of the rated steps of each completion, in order."""
    pad, scores = pad_token_id(model.tokenizer), list[list[float]]()
    for start in range(0, len(items), READ_AT_ONCE):
        some = items[start : start + READ_AT_ONCE]
        rows = step_rows([item.steps for item in some], pad, model.device)
        values = token_values(model.split, model.values, rows, Budget.of(budget)).tolist()
        scores += [row[: len(item.labels)] for row, item in zip(values, some, strict=True)]
    return scores


@phase("evaluate")
def step_figures(model: ScalarModel, items: Sequence[LabelledSteps], budget: int | Budget) -> dict[str, float]:
    """loss and accuracy of rated steps (scores of 0 and even labels count half)."""
    scores = torch.tensor([score for row in rated_scores(model, items, budget) for score in row])
    label = torch.tensor([label for item in items for label in item.labels])
    right = (torch.sign(scores) * torch.sign(label - 0.5) + 1) / 2
    return {"loss": float(binary_cross_entropy_with_logits(scores, label)), "accuracy": float(right.mean())}

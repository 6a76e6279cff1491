"""Training on preferences without sampling: DPO and related losses, by name.

The reference is the initial policy or another model. Its log-probabilities are computed once, before the first step,
and stored as a number per completion, so that no second model is held in memory during training.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from operator import attrgetter
from typing import TypeVar

import torch
from torch import Tensor

from tutelage.base.config import from_mapping, to_mapping
from tutelage.base.errors import TutelageError, did_you_mean
from tutelage.base.modules import value_named
from tutelage.core.batch import extended
from tutelage.core.preferences import PREFERENCE_LOSSES, AnswerPairs, Answers, PreferenceLoss
from tutelage.core.rows import EncodedRow
from tutelage.data.chat_tokens import pad_token_id
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.train.supervised.batches import (
    EncodedPair,
    EncodedWhenRead,
    collate_pairs,
    in_memory_if_few,
    of_each_row,
    prompts_of,
)
from tutelage.train.supervised.fit import Objective, Splittable, WeightedPairs
from tutelage.train.supervised.job import Job

T = TypeVar("T")


def preference_loss(name: str, assignments: Sequence[str] = ()) -> PreferenceLoss:
    """Preference loss by name, or a custom one as `module:NAME`, with `setting=value` assignments applied.

    Raises TutelageError for an unknown name or setting, listing the known ones, and for an invalid value.
    """
    loss = _named(name)
    if not assignments:
        return loss
    piece: object = loss
    if not is_dataclass(piece):
        raise TutelageError(f"The loss {name} has no settings, so {', '.join(assignments)} would do nothing.")
    settings = to_mapping(piece)
    for assignment in assignments:
        setting, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not setting or not text:
            raise TutelageError(f"{assignment!r} is not an assignment; write it as beta=0.1.")
        try:
            settings[setting] = json.loads(text)
        except json.JSONDecodeError:
            settings[setting] = text
    try:
        return from_mapping(type(loss), settings, source=f"--loss {name}")
    except ValueError as error:
        raise TutelageError(f"--loss {name}: {error}") from error


def _named(name: str) -> PreferenceLoss:
    if ":" in name:
        loss_or_type = value_named(name)
        loss = loss_or_type() if isinstance(loss_or_type, type) else loss_or_type
        if not callable(loss):
            raise TutelageError(f"{name} is a {type(loss).__name__}, which cannot be called with pairs.")
        return loss
    if name in PREFERENCE_LOSSES:
        return PREFERENCE_LOSSES[name]
    known, guess = ", ".join(PREFERENCE_LOSSES), did_you_mean(name.lower(), PREFERENCE_LOSSES)
    raise TutelageError(f"There is no loss {name!r}{guess} Known are {known}, and your own as module:NAME.")


ROUNDING = 1e-4
"""Numerical tolerance in nats between two passes over a completion: before the first step, |h| is below it."""
DRIFT = "drift"
"""Entry in the `needs` of losses that measure against the drift of unrelated completions (KTO)."""


@dataclass(frozen=True)
class ReferencePair:
    """Preference with the reference's log-probabilities of both completions and of an unrelated completion."""

    pair: EncodedPair
    ref_chosen: float
    ref_rejected: float
    unrelated: EncodedRow
    ref_unrelated: float

    def __len__(self) -> int:
        return len(self.pair)


@dataclass(frozen=True, kw_only=True)
class ReferencePairs(WeightedPairs):
    """Weighted pairs with the log-probabilities of the reference."""

    ref_chosen: Tensor  # Float[B], log π_ref of the whole completion
    ref_rejected: Tensor  # Float[B]
    drift: Tensor  # Float[B], one number for all rows


def compare(policy: Policy, loss: PreferenceLoss, pairs: ReferencePairs) -> tuple[Tensor, dict[str, Tensor]]:
    """Σ w · loss over the pairs. Margins of the data are in the units that the loss documents.

    Metrics, weighted means, with h = log π − log π_ref of a completion: `accuracy`, the fraction of pairs in which h
    is larger for the preferred completion (ties, up to `ROUNDING`, count half); `margin` of the implied reward, β (h
    of the chosen − h of the rejected); `kl/chosen` and `kl/rejected`, −h: the decrease in log-probability in nats,
    which estimates KL(ref‖π) for completions of the reference. β is 1 for a loss without.
    """
    rows = pairs.both().trimmed()
    logp = policy.scores(rows).logp.sum(1)
    count, length = len(pairs), rows.mask.sum(1)
    chosen = Answers(logp=logp[:count], length=length[:count], ref_logp=pairs.ref_chosen)
    rejected = Answers(logp=logp[count:], length=length[count:], ref_logp=pairs.ref_rejected)
    answers = AnswerPairs(
        chosen=chosen, rejected=rejected, p_chosen=pairs.p_chosen, margin=pairs.margin, drift=pairs.drift[0]
    )
    value = (pairs.weight * loss(answers)).sum()
    ahead, behind = chosen.log_ratio().detach(), rejected.log_ratio().detach()
    difference = ahead - behind
    difference = difference.where(difference.abs() > ROUNDING, 0.0)
    right = torch.sign(difference) * torch.sign(pairs.p_chosen - 0.5)
    metrics = {
        "accuracy": (right + 1) / 2,
        "margin": getattr(loss, "beta", 1.0) * (ahead - behind),
        "kl/chosen": -ahead,
        "kl/rejected": -behind,
    }
    return value, {name: (pairs.weight * x).sum() for name, x in metrics.items()}


@torch.no_grad()
def completion_logps(policy: Policy, rows: Sequence[EncodedRow], budget: int | Budget) -> Tensor:
    """log π(completion | prompt), summed over tokens, of every row in order. Float[N]"""
    return of_each_row(policy, rows, lambda batch: policy.scores(batch).logp.sum(1), Budget.of(budget))


def refer(
    reference: Policy, pairs: Sequence[EncodedPair], budget: int | Budget, *, drift: bool, max_length: int
) -> Sequence[ReferencePair]:
    """Add the reference's log-probabilities to pairs; unrelated completions and theirs only with `drift`, otherwise 0
    and the chosen one."""
    places = range(len(pairs))
    chosen, rejected = (
        completion_logps(reference, EncodedWhenRead(pairs, attrgetter(side)), budget).tolist()
        for side in ("chosen", "rejected")
    )
    others: Sequence[EncodedRow] = EncodedWhenRead(pairs, attrgetter("chosen"))
    ref_others = [0.0] * len(pairs)
    if drift:
        answers = EncodedWhenRead(places, lambda i: pairs[i].chosen if i % 2 == 0 else pairs[i].rejected)
        others = unrelated(answers, prompts_of(pairs, attrgetter("chosen")), max_length)
        ref_others = completion_logps(reference, others, budget).tolist()

    def referred(i: int) -> ReferencePair:
        return ReferencePair(pairs[i], chosen[i], rejected[i], others[i], ref_others[i])

    return in_memory_if_few(EncodedWhenRead(places, referred))


def unrelated(rows: Sequence[EncodedRow], prompts: Sequence[Hashable], max_length: int) -> Sequence[EncodedRow]:
    """Each prompt with the completion of the next different prompt (its own if there is no other)."""
    count, following = len(rows), list(range(len(rows)))
    for number in reversed(range(2 * count)):
        after = (number + 1) % count
        following[number % count] = after if prompts[after] != prompts[number % count] else following[after]
    if len(set(prompts)) < 2:
        following = list(range(count))

    def other(number: int) -> EncodedRow:
        prompt = rows[number].prompt
        return EncodedRow(prompt, rows[following[number]].response[: max(1, max_length - len(prompt))])

    return in_memory_if_few(EncodedWhenRead(range(count), other))


def mean_drift(policy: Policy, rows: Sequence[EncodedRow], ref_logps: Sequence[float], budget: int | Budget) -> float:
    """Mean of log π − log π_ref over completions unrelated to their prompts."""
    ratio = completion_logps(policy, rows, budget).double() - torch.tensor(ref_logps, dtype=torch.float64)
    return float(ratio.mean())


def referred_batch(policy: Policy, items: Sequence[ReferencePair], drift: float) -> ReferencePairs:
    """Padded batch whose weights sum to 1."""
    pairs = collate_pairs([item.pair for item in items], pad_token_id(policy.tokenizer), policy.device)

    def column(name: str) -> Tensor:
        return torch.tensor([getattr(item, name) for item in items], device=policy.device)

    return extended(
        WeightedPairs.of(pairs),
        ReferencePairs,
        ref_chosen=column("ref_chosen"),
        ref_rejected=column("ref_rejected"),
        drift=torch.full((len(items),), drift, device=policy.device),
    )


def paired_job(
    policy: Policy,
    loss: PreferenceLoss,
    items: Callable[[int], Sequence[ReferencePair]],
    steps: int,
    *,
    budget: int | Budget,
    held_out: Sequence[ReferencePair] = (),
    tell: Callable[[int], Mapping[str, float]] = lambda step: {},
) -> Job:
    """Job of training on pairs; `items` returns those of a step (counted from 0)."""

    def batch(items: Sequence[ReferencePair]) -> ReferencePairs:
        drift = 0.0
        if DRIFT in getattr(loss, "needs", ()):
            ref_logps = [item.ref_unrelated for item in items]
            drift = mean_drift(policy, [item.unrelated for item in items], ref_logps, budget)
        return referred_batch(policy, items, drift)

    label, objective = type(loss).__name__.lower(), partial(compare, policy, loss)
    return reference_job(label, policy, items, batch, objective, steps, held_out, budget, tell)


def reference_job(
    label: str,
    policy: Policy,
    items: Callable[[int], Sequence[T]],
    batch: Callable[[Sequence[T]], Splittable],
    objective: Objective,
    steps: int,
    held_out: Sequence[T],
    budget: int | Budget,
    tell: Callable[[int], Mapping[str, float]] = lambda step: {},
) -> Job:
    """Job of an objective relative to a reference; `items` returns those of a step (counted from 0)."""
    return Job(
        label=label,
        steps=steps,
        batch=lambda step: batch(items(step)),
        objective=objective,
        look=(lambda: summed(policy, objective, batch(held_out), budget)) if held_out else None,
        tell=tell,
        show=("loss", "accuracy", "margin", "held_out/loss", "held_out/accuracy"),
    )


@torch.no_grad()
def summed(policy: Policy, objective: Objective, whole: Splittable, budget: int | Budget) -> dict[str, float]:
    """Loss and metrics of a batch of any size."""
    budget = Budget.of(budget)
    return budget.spend(_summed, policy, objective, whole, budget)


def _summed(policy: Policy, objective: Objective, whole: Splittable, budget: Budget) -> dict[str, float]:
    totals: dict[str, float] = {}
    for index in budget.parts(policy.split, whole):
        loss, metrics = objective(whole.rows(index))
        for name, value in ({"loss": loss} | metrics).items():
            totals[name] = totals.get(name, 0.0) + float(value)
    return budget.ranks.totals(totals)

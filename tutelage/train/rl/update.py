"""Gradient-step updates: epochs over minibatches of one rollout, with gradient accumulation."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor

from tutelage.algorithms.recipe import (
    GradientSteps,
    clipped_tokens,
    critic_loss,
    critic_only,
    needs_kl_old,
    objective,
    zero_gradient_rows,
)
from tutelage.algorithms.recipe_state import RecipeState
from tutelage.core.batch import Batch, TokenScores
from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import masked_mean, token_weights
from tutelage.engines.ranks.ranks import Ranks
from tutelage.train.learner import LossTerms
from tutelage.train.rl.batch_scores import (
    UpdateResult,
    critic_backward,
    cut,
    distance,
    named,
    policy_scores,
    refuse_disagreement,
    score_rows,
)
from tutelage.train.rl.setup import Setup


@dataclass(frozen=True)
class MinibatchResult:
    """Result of one optimiser step: KL(old‖policy) before it, the largest |log π − log π_old| of a token, and
    metrics."""

    kl_old: float
    distance: float
    metrics: dict[str, float]


def gradient_update(setup: Setup, batch: Batch, state: RecipeState) -> UpdateResult:
    """Epochs × minibatches of optimiser steps on one batch.

    During the critic's warm-up only the critic is updated. A minibatch whose KL(old‖π) exceeds the recipe's limit is
    skipped and ends the update.

    Metrics, means over the optimiser steps: policy/objective (the maximised quantity), value/loss, entropy/full
    (nats per token, if the objective has an entropy bonus), divergence (from the reference, nats per token over the
    whole vocabulary, if the penalty is exact), clip_fraction (fraction of tokens with a clipped gradient), kl/old
    (KL(old‖π) per token, k3), skipped (fraction of completions without a gradient, see `zero_gradient_rows`),
    grad_norm; ratio/max is the largest factor between π and π_old on a token, in either direction, and updates
    counts the optimiser steps. With a controller: the surrogate/coef of this update, and kl/update, KL(old‖π) after
    all steps.
    """
    steps = list(_minibatch_steps(setup, batch, state))
    kl_old = fmean(step.kl_old for step in steps)
    metrics = _means([step.metrics for step in steps]) | {
        "kl/old": kl_old,
        "ratio/max": math.exp(max(step.distance for step in steps)),
        "updates": float(len(steps)),
    }
    if needs_kl_old(setup.recipe):
        kl_old = metrics["kl/update"] = _kl_after(setup, batch)
    if state.surrogate_coef is not None:
        metrics["surrogate/coef"] = state.surrogate_coef
    return UpdateResult(kl_old, metrics)


def _minibatch_steps(setup: Setup, batch: Batch, state: RecipeState) -> Iterator[MinibatchResult]:
    """Optimiser steps of an update, one by one."""
    update = setup.recipe.update
    assert isinstance(update, GradientSteps)
    generator, first = _minibatch_generator(), True
    for _ in range(update.epochs):
        for index in minibatches(batch.ids, update.minibatches, generator):
            step = setup.settings.budget.spend(minibatch_step, setup, batch.rows(index), state, first)
            if step is None:
                return
            yield step
            first = False


def minibatches(ids: Sequence[str], count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Shuffle rows into `count` minibatches of similar size. Yields Int[b].

    If every minibatch can have a prompt, the completions of a prompt share one minibatch, so that their prompt is
    read once.
    """
    number = {name: i for i, name in enumerate(dict.fromkeys(ids))}
    together = torch.tensor([number[name] for name in ids] if len(number) >= count else range(len(ids)))
    order = torch.randperm(int(together.max()) + 1, generator=generator)
    for part in order.tensor_split(min(count, len(order))):
        yield torch.isin(together, part).nonzero().squeeze(1)


def first_minibatch(ids: Sequence[str], count: int) -> frozenset[str]:
    """Ids of which all rows are in the first of `count` minibatches, under the current random state."""
    index = next(minibatches(ids, count, _minibatch_generator()))
    own, every = Counter(ids[row] for row in index.tolist()), Counter(ids)
    return frozenset(name for name, rows in own.items() if rows == every[name])


def _minibatch_generator() -> torch.Generator:
    """Random stream of the minibatches of the current step."""
    return torch.Generator().manual_seed(torch.initial_seed() ^ 0x5EED)


def minibatch_step(setup: Setup, rows: Batch, state: RecipeState, first: bool) -> MinibatchResult | None:
    """Take one optimiser step on a minibatch with gradient accumulation. Returns None if the KL exceeds the limit.

    The step depends only on weights, rows, random state and budget, and starts by clearing gradients: if a part runs
    out of memory, no weight has changed, and `Budget.spend` repeats the step with smaller parts.
    """
    recipe, policy, learner, settings = setup.recipe, setup.policy, setup.learner, setup.settings
    assert isinstance(recipe.update, GradientSteps)
    learner.clear()
    warming = critic_only(recipe, state)
    moving = ~zero_gradient_rows(recipe, rows, state)
    used, weight = rows, token_weights(rows.mask, recipe.reduce, settings.longest)
    if not moving.all():
        used, weight = rows.rows(moving), weight[moving]
    terms = _MinibatchTerms(learner.step + 1, used)
    for index in settings.budget.parts(policy.split, used, terms.refuse_not_finite):
        part, part_weight = cut(used, weight, index)
        with torch.set_grad_enabled(not warming):
            scores = policy_scores(setup, part, with_values=not warming)
        value = objective(recipe, part, scores.logp, scores.entropy, part_weight, state, divergence=scores.divergence)
        losses, loss = {"policy/objective": value}, -value
        if scores.value is not None and recipe.critic is not None:
            losses["value/loss"] = critic_loss(recipe, part, scores.value, part_weight)
            loss = loss + recipe.critic.coef * losses["value/loss"]
        terms.note(losses, named(part))
        if not warming:
            policy.backward(loss)
        if setup.critic is not None and scores.value is None:
            critic_backward(setup, part, part_weight, terms)
        terms.note_scores(setup, part, scores, state)
    result = terms.over(settings.budget.ranks)
    if first and setup.is_exact:
        refuse_disagreement(result.distance)
    limit = recipe.update.max_kl
    if not first and limit is not None and result.kl_old > limit:
        learner.clear()
        return None
    metrics = result.metrics | {"skipped": 1.0 - float(moving.float().mean())}
    if settings.mix is not None and not warming:
        metrics["ptx/loss"] = float(settings.mix(learner.step, settings.budget))
    if not moving.any():
        learner.add_zeros()
    return replace(result, metrics=metrics | learner.update())


class _MinibatchTerms(LossTerms):
    """Loss terms of the parts of a minibatch, already weighted over the whole minibatch, and statistics of the
    scores."""

    def __init__(self, step: int, rows: Batch) -> None:
        super().__init__(step)
        self._tokens = rows.mask.sum().clamp(min=1)
        zero = torch.zeros((), device=rows.mask.device)
        self._shares: defaultdict[str, Tensor] = defaultdict(lambda: zero)  # per token
        self._kl = self._distance = zero

    @torch.no_grad()
    def note_scores(self, setup: Setup, part: Batch, scores: TokenScores, state: RecipeState) -> None:
        """Add the scores of a part to the statistics of the policy's distance from the sampler."""
        self._kl = self._kl + (kl_estimate(part.logp, scores.logp, "k3") * part.mask).sum() / self._tokens
        self._distance = torch.maximum(self._distance, distance(part, scores.logp))
        clipped = clipped_tokens(setup.recipe, part, scores.logp, state)
        if clipped is not None:
            self._add_share("clip_fraction", clipped.float().sum())
        if scores.divergence is not None:
            self._add_share("divergence", (scores.divergence * part.mask).sum())
        if scores.entropy is not None:
            self._add_share("entropy/full", (scores.entropy * part.mask).sum())

    def _add_share(self, name: str, total: Tensor) -> None:
        self._shares[name] = self._shares[name] + total / self._tokens

    def over(self, ranks: Ranks) -> MinibatchResult:
        """Sums over all parts and ranks. Metrics are the loss terms, and means over tokens."""
        own = {name: float(value) for name, value in (self.totals() | self._shares).items()}
        metrics = ranks.totals({"policy/objective": 0.0} | own | {"kl": float(self._kl)})
        return MinibatchResult(metrics.pop("kl"), ranks.largest(float(self._distance)), metrics)


@torch.no_grad()
def _kl_after(setup: Setup, batch: Batch) -> float:
    """KL(old‖policy) in nats per token, by k3; costs one forward pass."""
    settings = setup.settings
    scores = score_rows(setup.policy, batch, temperature=settings.sampling.temperature, budget=settings.budget)
    return float(masked_mean(kl_estimate(batch.logp, scores.logp, "k3"), batch.mask))


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of every metric over the steps that report it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: fmean(row[name] for row in rows if name in row) for name in names}

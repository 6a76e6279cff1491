"""How a prepared batch moves the weights: epochs of gradient steps, with every sum taken over the whole batch."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tutelage.algorithms.recipe import (
    GradientSteps,
    Recipe,
    RecipeState,
    critic_loss,
    needs_entropy,
    needs_exact_kl,
    objective,
)
from tutelage.core.batch import Batch, TokenScores
from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import masked_mean, token_weights
from tutelage.core.surrogates import Driven
from tutelage.engines.cpu import states
from tutelage.errors import TutelageError
from tutelage.models.budget import Budget
from tutelage.train.learner import Learner, refuse_not_finite
from tutelage.train.rl.actor import Actor

RATIO_TOLERANCE = 1e-3
"""How far log π − log π_old may be from 0 before the first step in float32: 7e-6 is usual, large logits round to more
than 1e-4, and every real fault is above 0.01."""


@dataclass(frozen=True)
class Update:
    """What every update needs beside the recipe and the batch."""

    temperature: float
    max_length: int
    """The limit of a response in tokens, for the reduction over a fixed length."""
    budget: Budget
    """Tokens of one forward pass."""
    exact: bool
    """Whether the sampler's log-probabilities are those of the trainer, so that the first ratio is 1."""
    mix: Callable[[int, Budget], Tensor] | None = None
    """The PPO-ptx stream: the loss on its text in a step, whose gradient it accumulates."""


def gradient_steps(
    recipe: Recipe,
    actor: Actor,
    learner: Learner,
    batch: Batch,
    state: RecipeState,
    how: Update,
    *,
    warming: bool,
) -> dict[str, float]:
    """Epochs × minibatches of optimiser steps on one batch.

    With `warming` only the critic moves. A minibatch on which KL(old‖π) is above the recipe's limit is not stepped on,
    and ends the update.

    Metrics, means over the optimiser steps: policy/objective (what was maximised), value/loss, entropy/full (nats per
    token, where the objective has an entropy bonus), clip_fraction (share of tokens whose gradient the surrogate cut),
    kl/old (KL(old‖π) per token, k3), ratio/max (largest factor between π and π_old on a token, either way), skipped
    (share of responses that had nothing to teach, see `silent`), grad_norm; updates counts the optimiser steps taken.
    Where the surrogate has a coefficient that is driven: surrogate/coef, as it was used, and kl/update, KL(old‖π) once
    all steps are taken, which drives it.
    """
    assert isinstance(recipe.update, GradientSteps)
    means: defaultdict[str, list[float]] = defaultdict(list)
    generator = torch.Generator().manual_seed(torch.initial_seed() ^ 0x5EED)
    for _ in range(recipe.update.epochs):
        for index in minibatches(batch.ids, recipe.update.minibatches, generator):
            metrics = _one_step(
                recipe, actor, learner, batch.rows(index), state, how, warming, first=not means
            )
            if metrics is None:
                return _averaged(means) | _driven(recipe, actor, batch, state, how)
            for name, value in metrics.items():
                means[name].append(value)
    return _averaged(means) | _driven(recipe, actor, batch, state, how)


@torch.no_grad()
def _driven(recipe: Recipe, actor: Actor, batch: Batch, state: RecipeState, how: Update) -> dict[str, float]:
    """What the controller of the surrogate is driven by, at the price of one forward pass; nothing without one."""
    if not isinstance(recipe.surrogate, Driven):
        return {}
    bare = Actor(actor.policy)
    logp, _ = bare.scores_of_all(batch, temperature=how.temperature, budget=how.budget)
    apart = masked_mean(kl_estimate(batch.logp, logp, "k3"), batch.mask)
    return {"surrogate/coef": state.surrogate_coef, "kl/update": float(apart)}


def minibatches(ids: Sequence[str], count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows in `count` parts at random, as equal as can be. Yields Int[b].

    Where every part can have a prompt, the responses to one stay in one part, which then reads their prompt once.
    """
    number = {name: i for i, name in enumerate(dict.fromkeys(ids))}
    together = torch.tensor([number[name] for name in ids] if len(number) >= count else range(len(ids)))
    order = torch.randperm(int(together.max()) + 1, generator=generator)
    for part in order.tensor_split(min(count, len(order))):
        yield torch.isin(together, part).nonzero().squeeze(1)


def _averaged(values: dict[str, list[float]]) -> dict[str, float]:
    count = len(values["kl/old"])
    largest = max(values.pop("ratio/max"))
    return {k: sum(v) / len(v) for k, v in values.items()} | {"ratio/max": largest, "updates": float(count)}


def _one_step(
    recipe: Recipe,
    actor: Actor,
    learner: Learner,
    rows: Batch,
    state: RecipeState,
    how: Update,
    warming: bool,
    first: bool,
) -> dict[str, float] | None:
    """One optimiser step on one minibatch, accumulated over micro-batches; None where the policy is too far for it."""
    assert isinstance(recipe.update, GradientSteps)
    loud = ~silent(recipe, rows)
    limit = None if first else recipe.update.max_kl

    def accumulate() -> tuple[dict[str, Tensor], Tensor] | None:
        totals, farthest = _gradients(recipe, actor, rows, loud, state, how, warming, learner.step + 1)
        if first and how.exact:
            refuse_disagreement(float(farthest))
        if limit is not None and float(totals["kl/old"]) > limit:
            return None
        if how.mix is not None and not warming:
            totals["ptx/loss"] = how.mix(learner.step, how.budget)
        return totals, farthest

    found = learner.accumulate(how.budget, accumulate)
    if found is None:
        learner.forget()
        return None
    totals, farthest = found
    if not loud.any():
        learner.add_zeros()
    moved = learner.update()
    return (
        {name: float(value) for name, value in totals.items()}
        | moved
        | {"ratio/max": float(farthest.exp()), "skipped": 1.0 - float(loud.float().mean())}
    )


def _gradients(
    recipe: Recipe,
    actor: Actor,
    rows: Batch,
    loud: Tensor,
    state: RecipeState,
    how: Update,
    warming: bool,
    step: int,
) -> tuple[dict[str, Tensor], Tensor]:
    """Accumulate the gradient over the `loud` rows. Returns the metrics, and the largest |log π − log π_old|."""
    tokens = rows.mask[loud].sum().clamp(min=1)
    totals: defaultdict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=rows.mask.device))
    totals["policy/objective"], totals["kl/old"], farthest = (totals[""].clone() for _ in range(3))
    del totals[""]
    for part, weight in micro_batches(recipe, actor, rows, how, loud):
        gain, scores = gain_of(recipe, actor, part, weight, state, how, critic_only=warming)
        terms = {"policy/objective": gain}
        losses = [] if warming else [-gain]
        if recipe.critic is not None and scores.value is not None:
            terms["value/loss"] = critic_loss(recipe, part, scores.value, weight)
            losses.append(recipe.critic.coef * terms["value/loss"])
        _pull(terms, losses, part, step)
        if recipe.critic is not None and scores.value is None:
            # a network of its own, asked when the backward pass has emptied the policy's graph
            terms["value/loss"] = critic_loss(recipe, part, actor.values(part), weight)
            _pull(terms, [recipe.critic.coef * terms["value/loss"]], part, step)
        with torch.no_grad():
            shares = _token_sums(recipe, part, scores.logp, scores.entropy)
            farthest = torch.maximum(farthest, distance(part, scores.logp))
            for name, value in ({k: v.detach() for k, v in terms.items()} | shares).items():
                totals[name] = totals[name] + (value if name in terms else value / tokens)
    return totals, farthest


def _pull(terms: Mapping[str, Tensor], losses: Sequence[Tensor], part: Batch, step: int) -> None:
    """Add the gradient of the losses to what has been accumulated; refuse what is not finite before."""
    refuse_not_finite(terms, step, ", ".join(part.ids[:4]))
    if losses:
        torch.stack(tuple(losses)).sum().backward()


def micro_batches(
    recipe: Recipe, actor: Actor, rows: Batch, how: Update, which: Tensor | None = None
) -> Iterator[tuple[Batch, Tensor]]:
    """The rows (or `which` of them, Bool[B]) cut by the budget of tokens, with the weight of every token among all."""
    weight = token_weights(rows.mask, recipe.reduce, how.max_length)
    if which is not None and not which.all():
        rows, weight = rows.rows(which), weight[which]
    for index in how.budget.parts(partial(states.micro_batches, actor.policy.model, rows)):
        part = rows.rows(index).trimmed()
        yield part, weight[index.to(weight.device)][:, : part.mask.shape[1]]


def gain_of(
    recipe: Recipe,
    actor: Actor,
    part: Batch,
    weight: Tensor,
    state: RecipeState,
    how: Update,
    *,
    critic_only: bool = False,
) -> tuple[Tensor, TokenScores]:
    """What the policy maximises on a micro-batch, and the scores that it was computed from."""
    scores = actor.scores(
        part,
        temperature=how.temperature,
        entropy=needs_entropy(recipe),
        exact_kl=needs_exact_kl(recipe),
        critic_only=critic_only,
    )
    gain = objective(recipe, part, scores.logp, scores.entropy, weight, state, exact_kl=scores.exact_kl)
    return gain, scores


def silent(recipe: Recipe, rows: Batch) -> Tensor:
    """Rows that cannot move anything, so that no forward pass need be spent on them. Bool[B]

    Their advantage is 0, and the objective has no other term: a group whose responses all scored the same, for
    instance, where the KL is not in the loss.
    """
    other_terms = (
        recipe.critic is not None
        or needs_entropy(recipe)
        or (recipe.penalty is not None and recipe.penalty.where == "loss")
    )
    if other_terms:
        return torch.zeros(len(rows), dtype=torch.bool, device=rows.mask.device)
    elsewhere = recipe.surrogate(rows.logp + 1.0, rows.logp, rows.advantage, rows.mask)
    nothing = (rows.advantage == 0) & (elsewhere == 0)
    return (nothing | ~rows.mask).all(-1)


def distance(part: Batch, logp: Tensor) -> Tensor:
    """The largest |log π − log π_old| on a token. []"""
    return (logp - part.logp).abs().where(part.mask, 0.0).max()


def refuse_disagreement(nats: float) -> None:
    """Raise TutelageError where policy and sampler are apart although their weights are the same."""
    if nats > RATIO_TOLERANCE:
        raise TutelageError(
            f"Before the first step the policy and the sampler disagree by {nats:.2g} nats on a token, where "
            "they are the same weights. The usual causes are dropout that is still on, a truncated sampling "
            "distribution, or a model that depends on padding."
        )


def _token_sums(recipe: Recipe, part: Batch, logp: Tensor, entropy: Tensor | None) -> dict[str, Tensor]:
    """Sums over the tokens of a micro-batch, to be divided by the tokens of the whole minibatch."""
    shares = {"kl/old": (kl_estimate(part.logp, logp, "k3") * part.mask).sum()}
    clipped = getattr(recipe.surrogate, "clipped", None)
    if clipped is not None:
        shares["clip_fraction"] = clipped(logp, part.logp, part.advantage, part.mask).float().sum()
    if entropy is not None:
        shares["entropy/full"] = (entropy * part.mask).sum()
    return shares

"""The update by one natural-gradient step: TRPO with its line search, the natural gradient without."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tutelage.algorithms.recipe import NaturalStep, Recipe, RecipeState, critic_loss
from tutelage.core.batch import Batch
from tutelage.core.natural import Accepted, line_search, natural_direction
from tutelage.train.learner import Learner, NotFinite, refuse_not_finite
from tutelage.train.rl.actor import Actor
from tutelage.train.rl.fisher import Fisher, flat, mean_kl, put
from tutelage.train.rl.updates import Update, distance, gain_of, micro_batches, refuse_disagreement


def natural_step(
    recipe: Recipe,
    actor: Actor,
    learner: Learner,
    batch: Batch,
    state: RecipeState,
    how: Update,
    *,
    warming: bool,
) -> dict[str, float]:
    """d = √(2δ / xᵀ(F + λ)x) x with (F + λ) x = g, shortened until the objective rises and the KL holds.

    g is the gradient of everything that the recipe maximises, and F the Fisher matrix of the policy's distributions at
    the tokens of the batch. The optimiser and its learning rate are the critic's alone; with `warming` only it moves.

    Metrics: policy/objective (at the sampler), step/gain (its rise), step/share (of the whole step that was taken; 0
    where the search refused all), kl/old (exact, nats per token), ratio/max, grad_norm (of g), value/loss (mean over
    the critic's steps), updates (0 or 1).
    """
    assert isinstance(recipe.update, NaturalStep)
    metrics = {"kl/old": 0.0, "updates": 0.0}
    if not warming:
        metrics |= _Move(recipe, recipe.update, actor, batch, state, how, learner.step).take()
    if recipe.critic is not None:
        metrics |= _fit_critic(recipe, recipe.update, actor, learner, batch, how)
    return metrics


@dataclass
class _Move:
    """One step of the policy from where it is."""

    recipe: Recipe
    update: NaturalStep
    actor: Actor
    batch: Batch
    state: RecipeState
    how: Update
    step: int
    farthest: float = 0.0  # largest |log π − log π_old| on a token where the objective was last taken

    def take(self) -> dict[str, float]:
        """Find the step, take what the search leaves of it, and tell about it."""
        policy, how = self.actor.policy, self.how
        parameters = policy.parameters()
        start = flat(parameters)
        if True:
            before = self.gain()
        if how.exact:
            refuse_disagreement(self.farthest)
        g = -flat(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters)
        policy.model.zero_grad(set_to_none=True)
        self._refuse_not_finite(float(g.norm()), "gradient")
        direction = how.budget.spend(partial(self._direction, g))

        @torch.no_grad()
        def evaluate(share: float) -> tuple[float, float]:
            here = start + share * direction
            measure = partial(
                mean_kl,
                policy,
                self.batch,
                to_old=lambda: put(parameters, start),
                to_new=lambda: put(parameters, here),
                temperature=how.temperature,
                budget=how.budget,
            )
            apart = how.budget.spend(measure)
            return self.gain() - before, apart

        taken = self._search(evaluate)
        if taken.share == 0 or not math.isfinite(taken.gain + taken.kl):
            put(parameters, start)
            self.farthest = 0.0
        self._refuse_not_finite(taken.gain + taken.kl, "objective after")
        return {
            "policy/objective": before,
            "step/gain": taken.gain,
            "step/share": taken.share,
            "kl/old": taken.kl,
            "ratio/max": float(torch.tensor(self.farthest).exp()),
            "grad_norm": float(g.norm()),
            "updates": float(taken.share > 0),
        }

    def _direction(self, g: Tensor) -> Tensor:
        update, how = self.update, self.how
        fisher = Fisher(self.actor.policy, self.batch, temperature=how.temperature, budget=how.budget)
        return natural_direction(
            fisher, g, max_kl=update.max_kl, damping=update.damping, iterations=update.cg
        )

    def _search(self, evaluate: Callable[[float], tuple[float, float]]) -> Accepted:
        update = self.update
        if not update.search:
            return Accepted(1.0, *evaluate(1.0), 1)
        return line_search(evaluate, max_kl=update.max_kl, backtracks=update.backtracks, decay=update.decay)

    def _refuse_not_finite(self, number: float, what: str) -> None:
        if not math.isfinite(number):
            raise NotFinite(f"The {what} of step {self.step + 1} is not finite. Nothing was changed by it.")

    def gain(self) -> float:
        """What the policy maximises over the batch; its gradient is accumulated where gradients are recorded."""
        return self.how.budget.spend(self._gain, partial(self.actor.policy.model.zero_grad, set_to_none=True))

    def _gain(self) -> float:
        bare = Actor(self.actor.policy)
        total = torch.zeros((), device=self.batch.mask.device)
        self.farthest = 0.0
        for part, weight in micro_batches(self.recipe, bare, self.batch, self.how):
            gain, scores = gain_of(self.recipe, bare, part, weight, self.state, self.how)
            if torch.is_grad_enabled():
                refuse_not_finite({"policy/objective": gain}, self.step + 1, ", ".join(part.ids[:4]))
                (-gain).backward()
            total += gain.detach()
            self.farthest = max(self.farthest, float(distance(part, scores.logp.detach())))
        if self.how.mix is not None:
            total -= self.recipe.ptx * self.how.mix(self.step, self.how.budget)
        return float(total)


def _fit_critic(
    recipe: Recipe, update: NaturalStep, actor: Actor, learner: Learner, batch: Batch, how: Update
) -> dict[str, float]:
    """`critic_steps` optimiser steps of the critic on the whole batch; nothing else moves."""
    assert recipe.critic is not None
    losses: list[Tensor] = []
    moved: dict[str, float] = {}
    for _ in range(update.critic_steps):
        step = partial(_critic_gradients, recipe, actor, batch, how, learner.step + 1)
        losses.append(learner.accumulate(how.budget, step))
        moved = learner.update()
    return {"value/loss": float(torch.stack(losses).mean()), "lr": moved["lr"]}


def _critic_gradients(recipe: Recipe, actor: Actor, batch: Batch, how: Update, step: int) -> Tensor:
    """Accumulate the gradient of the critic's loss on the whole batch. Returns that loss. []"""
    assert recipe.critic is not None
    total = torch.zeros((), device=batch.mask.device)
    for part, weight in micro_batches(recipe, actor, batch, how):
        loss = critic_loss(recipe, part, actor.values(part), weight)
        refuse_not_finite({"value/loss": loss}, step, ", ".join(part.ids[:4]))
        (recipe.critic.coef * loss).backward()
        total += loss.detach()
    return total

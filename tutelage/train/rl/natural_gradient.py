"""Natural-gradient updates: TRPO with its line search, and a plain natural-gradient step.

The curvature is available as Fisher-vector products (`Fisher`); parameters are flattened to one vector.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tutelage.algorithms.recipe import NaturalStep, critic_only, objective
from tutelage.algorithms.recipe_state import RecipeState
from tutelage.core.batch import Batch, Rows
from tutelage.core.kl import exact_kl
from tutelage.core.natural import LineSearchResult, line_search, natural_direction
from tutelage.core.reduce import token_weights
from tutelage.core.rows import split_by_length
from tutelage.engines.plans.token_budget import CHUNK_ELEMENTS
from tutelage.models.budget import Budget
from tutelage.train.learner import LossTerms, NotFinite
from tutelage.train.rl.batch_scores import (
    UpdateResult,
    critic_backward,
    cut,
    distance,
    named,
    policy_scores,
    refuse_disagreement,
)
from tutelage.train.rl.setup import PolicyModel, Setup

LOGITS_AT_ONCE = 4 * CHUNK_ELEMENTS
"""Maximum number of logits in one part: they are part of a graph and cannot be chunked."""


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Concatenate tensors of any shape into one vector. Float[N]"""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def put(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Copy one vector into the parameters, in order. Float[N]"""
    for parameter, values in zip(parameters, vector.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(values.view_as(parameter))


def parts_by_logits(rows: Rows, vocabulary: int, budget: Budget) -> Iterator[Rows]:
    """Split rows into parts of at most `budget` padded tokens and `LOGITS_AT_ONCE` logits."""
    most = max(1, LOGITS_AT_ONCE // vocabulary)
    for index in budget.parts(lambda batch, tokens: split_by_length(batch, min(tokens, most)), rows):
        yield rows.rows(index).trimmed()


@dataclass(frozen=True)
class _Linear:
    """Logits [n, V] of some tokens, and the function u ↦ Jᵀu for their Jacobian J."""

    logits: Tensor
    u: Tensor
    pulled: Sequence[Tensor]


class Fisher:
    """v ↦ F v, with F = mean over tokens of Jᵀ (diag p − p pᵀ) J, the Hessian of the mean KL(π_old‖π) at π = π_old.

    J is the Jacobian of a token's logits in the parameters and p its distribution. F is never formed: J v is the
    derivative of uᵀJv in u, which costs one more backward pass (Pearlmutter 1994). A product costs about two
    gradients, or one if a single part holds all rows, whose graph is then reused.
    """

    def __init__(self, policy: PolicyModel, rows: Rows, *, temperature: float, budget: Budget) -> None:
        self.policy, self.rows, self.temperature, self.budget = policy, rows, temperature, budget
        self.parameters = policy.parameters()
        self.tokens = max(1, int(rows.mask.sum()))
        self._kept: _Linear | None = None

    def __call__(self, v: Tensor) -> Tensor:
        """F v. Float[N] -> Float[N]"""
        direction = [
            piece.view_as(p)
            for piece, p in zip(v.split([p.numel() for p in self.parameters]), self.parameters, strict=True)
        ]
        total = torch.zeros_like(v)
        for part in parts_by_logits(self.rows, self.policy.vocabulary, self.budget):
            at = self._kept or self._linear(part)
            if len(part) == len(self.rows):
                self._kept = at
            total += self._product(at, direction)
        self.budget.ranks.sum_([total])
        return total / self.tokens

    def _linear(self, part: Rows) -> _Linear:
        logits = self.policy.logits(part, temperature=self.temperature)
        u = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(logits, self.parameters, u, create_graph=True, materialize_grads=True)
        return _Linear(logits, u, pulled)

    def _product(self, at: _Linear, direction: Sequence[Tensor]) -> Tensor:
        along = torch.stack([(a * b).sum() for a, b in zip(at.pulled, direction, strict=True)]).sum()
        (moved,) = torch.autograd.grad(along, at.u, retain_graph=True)
        p = at.logits.detach().softmax(-1)
        curved = p * (moved - (p * moved).sum(-1, keepdim=True))
        keep = self._kept is not None
        return flat(torch.autograd.grad(at.logits, self.parameters, curved, retain_graph=keep, materialize_grads=True))


@torch.no_grad()
def mean_kl(policy: PolicyModel, rows: Rows, old: Tensor, new: Tensor, *, temperature: float, budget: Budget) -> float:
    """Exact KL(old‖new) of the next-token distributions, averaged over the response tokens. Nats per token.

    `old` and `new` are parameter vectors Float[N]; the policy ends with the parameters `new`.
    """
    parameters = policy.parameters()
    total = torch.zeros((), dtype=torch.float64)
    for part in parts_by_logits(rows, policy.vocabulary, budget):
        put(parameters, old)
        before = policy.logits(part, temperature=temperature)
        put(parameters, new)
        after = policy.logits(part, temperature=temperature)
        total += exact_kl(before, after).sum().double().cpu()
    put(parameters, new)  # a rank may have no rows
    budget.ranks.sum_([total])
    return float(total) / max(1, int(rows.mask.sum()))


def natural_update(setup: Setup, batch: Batch, state: RecipeState) -> UpdateResult:
    """d = √(2δ / xᵀ(F + λ)x) x with (F + λ) x = g, shortened until the objective rises and the KL is within δ.

    g is the gradient of the recipe's objective, and F the Fisher matrix of the policy's distributions at the tokens of
    the batch. The optimiser and its learning rate apply to the critic only, which alone is updated in the warm-up.

    Metrics: policy/objective (at the sampler), step/gain (its rise), step/share (accepted fraction of the full step;
    0 if the search rejected all), kl/old (exact, nats per token), ratio/max, grad_norm (of g), value/loss (mean over
    the critic's steps), updates (0 or 1).
    """
    result = UpdateResult(0.0, {"kl/old": 0.0, "updates": 0.0})
    if not critic_only(setup.recipe, state):
        result = _move_policy(setup, batch, state)
    if setup.recipe.critic is None:
        return result
    return replace(result, metrics=result.metrics | _fit_critic(setup, batch))


@dataclass(frozen=True)
class _Objective:
    """Objective over a batch, and the largest |log π − log π_old| of a token."""

    value: float
    distance: float


def _move_policy(setup: Setup, batch: Batch, state: RecipeState) -> UpdateResult:
    """Take the accepted fraction of the natural step, or restore the policy."""
    policy, settings, learner = setup.policy, setup.settings, setup.learner
    temperature, budget = settings.sampling.temperature, settings.budget
    update, parameters = setup.recipe.update, policy.parameters()
    assert isinstance(update, NaturalStep)
    start = flat(parameters)
    with torch.enable_grad():
        here = budget.spend(_objective, setup, batch, state)
    if setup.is_exact:
        refuse_disagreement(here.distance)
    learner.sum_gradients()
    g = -flat(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters)
    learner.clear()
    _refuse_not_finite(float(g.norm()), "gradient", learner.step)

    def whole_step() -> Tensor:
        fisher = Fisher(policy, batch, temperature=temperature, budget=budget)
        return natural_direction(fisher, g, max_kl=update.max_kl, damping=update.damping, iterations=update.cg)

    direction = budget.spend(whole_step)
    farthest = 0.0

    @torch.no_grad()
    def evaluate(share: float) -> tuple[float, float]:
        """Rise of the objective and KL(old‖new) after a fraction of the step."""
        nonlocal farthest
        kl = budget.spend(
            mean_kl, policy, batch, start, start + share * direction, temperature=temperature, budget=budget
        )
        there = budget.spend(_objective, setup, batch, state)
        farthest = there.distance
        return there.value - here.value, kl

    if update.search:
        taken = line_search(evaluate, max_kl=update.max_kl, backtracks=update.backtracks, decay=update.decay)
    else:
        taken = LineSearchResult(1.0, *evaluate(1.0), 1)
    if taken.share == 0 or not math.isfinite(taken.improvement + taken.kl):
        put(parameters, start)
        farthest = 0.0
    _refuse_not_finite(taken.improvement + taken.kl, "objective after", learner.step)
    metrics = {
        "policy/objective": here.value,
        "step/gain": taken.improvement,
        "step/share": taken.share,
        "kl/old": taken.kl,
        "ratio/max": math.exp(farthest),
        "grad_norm": float(g.norm()),
        "updates": float(taken.share > 0),
    }
    return UpdateResult(taken.kl, metrics)


def _objective(setup: Setup, batch: Batch, state: RecipeState) -> _Objective:
    """Objective of the policy over the batch. Accumulates its gradient if gradients are enabled."""
    recipe, policy, settings, learner = setup.recipe, setup.policy, setup.settings, setup.learner
    learner.clear()
    weight = token_weights(batch.mask, recipe.reduce, settings.longest)
    total = torch.zeros((), device=batch.mask.device)
    farthest, terms = total, LossTerms(learner.step + 1)
    for index in settings.budget.parts(policy.split, batch, terms.refuse_not_finite):
        part, part_weight = cut(batch, weight, index)
        scores = policy_scores(setup, part)
        value = objective(recipe, part, scores.logp, scores.entropy, part_weight, state, divergence=scores.divergence)
        if torch.is_grad_enabled():
            terms.note({"policy/objective": value}, named(part))
            policy.backward(-value)
        total = total + value.detach()
        farthest = torch.maximum(farthest, distance(part, scores.logp.detach()))
    ranks = settings.budget.ranks
    ranks.sum_([total])
    if settings.mix is not None:
        total = total - recipe.ptx * settings.mix(learner.step, settings.budget)
    return _Objective(float(total), ranks.largest(float(farthest)))


def _refuse_not_finite(number: float, what: str, step: int) -> None:
    if not math.isfinite(number):
        raise NotFinite(f"The {what} of step {step + 1} is not finite. No weights were changed.")


def _fit_critic(setup: Setup, batch: Batch) -> dict[str, float]:
    """Take `critic_steps` optimiser steps of the critic on the whole batch."""
    update, learner = setup.recipe.update, setup.learner
    assert isinstance(update, NaturalStep)
    losses: list[Tensor] = []
    for _ in range(update.critic_steps):
        losses.append(setup.settings.budget.spend(_critic_gradient, setup, batch))
        learner.update()
    return {"value/loss": float(torch.stack(losses).mean()), "lr": learner.rate}


def _critic_gradient(setup: Setup, batch: Batch) -> Tensor:
    """Accumulate the gradient of the critic's loss on the whole batch. Returns that loss. []"""
    setup.learner.clear()
    weight = token_weights(batch.mask, setup.recipe.reduce, setup.settings.longest)
    total = torch.zeros((), device=batch.mask.device)
    terms = LossTerms(setup.learner.step + 1)
    for index in setup.settings.budget.parts(setup.policy.split, batch, terms.refuse_not_finite):
        total = total + critic_backward(setup, *cut(batch, weight, index), terms).detach()
    setup.settings.budget.ranks.sum_([total])
    return total

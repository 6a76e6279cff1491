"""`improve` on the tabular language, honouring every slot of a recipe, so that every slot can be tested.

Sampling, the update and the critic are written from the definitions here; nothing of `tutelage.train` is used.
"""

from dataclasses import dataclass

import torch
from tabular import LIMIT, SENTENCES, World, distributions, probability, states_of, token_entropy, token_logp
from torch import Tensor

from tutelage.algorithms.recipe import (
    GradientSteps,
    NaturalStep,
    Observation,
    Recipe,
    RecipeState,
    after_update,
    critic_loss,
    critic_only,
    initial_state,
    live_rows,
    needs_entropy,
    needs_exact_kl,
    needs_greedy,
    needs_values,
    objective,
    prepare,
)
from tutelage.core.batch import Batch, Scored
from tutelage.core.kl import exact_kl, kl_estimate
from tutelage.core.natural import line_search, natural_direction
from tutelage.core.reduce import masked_mean, token_weights

PRETRAINING = torch.tensor([4, 4, 1])  # sentences whose likelihood the PPO-ptx stream raises


@dataclass
class Student:
    """What is trained: logits [P, 3, 3] and values [P, 3]; the reference, and the sampler of the last rollout."""

    table: Tensor
    values: Tensor
    reference: Tensor
    sampler: Tensor

    @classmethod
    def fresh(cls, table: Tensor) -> "Student":
        """At the reference, with a critic that knows nothing."""
        return cls(table, torch.zeros(table.shape[:2]), table, table)


@dataclass(frozen=True)
class Classroom:
    """What belongs to no recipe."""

    world: World
    questions: int = 8  # per step; question i asks prompt i % P
    rate: float = 0.5
    critic_rate: float = 5.0
    seed: int = 0


def improve(recipe: Recipe, student: Student, room: Classroom, steps: int) -> RecipeState:
    """Train the student in place; the state of the recipe at the end comes back."""
    generator, state = torch.Generator().manual_seed(room.seed), initial_state(recipe)
    for _ in range(steps):
        student.sampler = student.table
        scored = rollout(recipe, student, room, state, generator)
        greedy = greedy_answers(student, room, scored) if needs_greedy(recipe) else None
        batch, state, _ = prepare(recipe, scored, state, greedy=greedy, max_length=LIMIT)
        if isinstance(recipe.update, GradientSteps):
            gradient_steps(recipe, recipe.update, student, batch, state, room, generator)
        else:
            natural_step(recipe, recipe.update, student, batch, state, room)
        drift = float(kl_estimate(batch.logp, batch.ref_logp, "k1").sum(1).mean())
        moved = float(mean_kl(student.table, student, batch))
        state = after_update(recipe, state, Observation(kl_reference=drift, kl_old=moved, rows=len(batch)))
    return state


def rollout(
    recipe: Recipe, student: Student, room: Classroom, state: RecipeState, generator: torch.Generator
) -> Scored:
    """Sample and score; with dynamic sampling, until enough questions have answers that differ in score."""
    prompts = len(student.table)
    asked = torch.arange(room.questions) % prompts
    p = torch.stack([probability(student.table[i : i + 1]) for i in range(prompts)])
    values = student.values if needs_values(recipe) else None
    kept: list[tuple[Tensor, Tensor]] = []
    for _ in range(max(recipe.dynamic_sampling, 1)):
        choice = torch.multinomial(p[asked], recipe.samples, replacement=True, generator=generator)
        scored = room.world.scored(student.table, student.reference, asked, choice, values)
        if not recipe.dynamic_sampling:
            return scored
        live = live_rows(recipe, scored, state, max_length=LIMIT).reshape(choice.shape)[:, 0]
        kept.append((asked[live], choice[live]))
        if sum(len(a) for a, _ in kept) >= room.questions:
            break
    asked_live, choice_live = (torch.cat(parts)[: room.questions] for parts in zip(*kept, strict=True))
    if not len(asked_live):
        return scored
    return room.world.scored(student.table, student.reference, asked_live, choice_live, values)


def greedy_answers(student: Student, room: Classroom, scored: Scored) -> Scored:
    """The greedy answer to each question of a rollout."""
    asked = scored.prompt[:: scored.group, 0]
    first = student.table[asked, 0].argmax(-1)
    second = torch.where(first > 0, student.table[asked, first].argmax(-1), 0)
    answer = torch.stack((first, second), 1)
    choice = (SENTENCES[None] == answer[:, None]).all(-1).long().argmax(1, keepdim=True)
    return room.world.scored(student.table, student.reference, asked, choice)


def gain(recipe: Recipe, table: Tensor, student: Student, rows: Batch, state: RecipeState) -> Tensor:
    """What the policy maximises on these rows, pretraining stream included. []"""
    prompt = rows.prompt[:, 0]
    weight = token_weights(rows.mask, recipe.reduce, LIMIT)
    here, there = (distributions(t, rows.response, prompt) for t in (table, student.reference))
    value = objective(
        recipe,
        rows,
        token_logp(table, rows.response, prompt),
        token_entropy(table, rows.response, prompt) if needs_entropy(recipe) else None,
        weight,
        state,
        exact_kl=exact_kl(here, there) if needs_exact_kl(recipe) else None,
    )
    if recipe.ptx:
        value = value + recipe.ptx * token_logp(table, SENTENCES[PRETRAINING]).sum() / len(PRETRAINING)
    return value


def gradient_steps(
    recipe: Recipe,
    update: GradientSteps,
    student: Student,
    batch: Batch,
    state: RecipeState,
    room: Classroom,
    generator: torch.Generator,
) -> None:
    """Plain gradient ascent, minibatch by minibatch, until the policy has moved too far."""
    for _ in range(update.epochs):
        order = torch.randperm(len(batch), generator=generator)
        for index in order.tensor_split(min(update.minibatches, len(batch))):
            rows = batch.rows(index)
            if update.max_kl is not None and float(mean_kl(student.table, student, rows)) > update.max_kl:
                return
            if not critic_only(recipe, state):
                table = student.table.clone().requires_grad_()
                (slope,) = torch.autograd.grad(gain(recipe, table, student, rows, state), table)
                student.table = student.table + room.rate * slope
            critic_step(recipe, student, rows, room)


def natural_step(
    recipe: Recipe, update: NaturalStep, student: Student, batch: Batch, state: RecipeState, room: Classroom
) -> None:
    """One step along the natural gradient, shortened by the line search where the recipe has one."""
    start = student.table

    def product(v: Tensor) -> Tensor:
        table = start.clone().requires_grad_()
        (slope,) = torch.autograd.grad(mean_kl(table, student, batch), table, create_graph=True)
        (found,) = torch.autograd.grad((slope.reshape(-1) * v).sum(), table)
        return found.reshape(-1)

    def evaluate(share: float) -> tuple[float, float]:
        there = start + share * step
        return float(gain(recipe, there, student, batch, state)) - before, float(
            mean_kl(there, student, batch)
        )

    if not critic_only(recipe, state):
        table = start.clone().requires_grad_()
        here = gain(recipe, table, student, batch, state)
        (g,) = torch.autograd.grad(here, table)
        before = float(here.detach())
        step = natural_direction(
            product, g.reshape(-1), max_kl=update.max_kl, damping=update.damping, iterations=update.cg
        ).reshape(start.shape)
        share = 1.0
        if update.search:
            share = line_search(
                evaluate, max_kl=update.max_kl, backtracks=update.backtracks, decay=update.decay
            ).share
        student.table = start + share * step
    for _ in range(update.critic_steps):
        critic_step(recipe, student, batch, room)


def critic_step(recipe: Recipe, student: Student, rows: Batch, room: Classroom) -> None:
    """One gradient step of the critic on its share of the loss."""
    if recipe.critic is None:
        return
    values = student.values.clone().requires_grad_()
    value = values[rows.prompt, states_of(rows.response)]
    loss = recipe.critic.coef * critic_loss(
        recipe, rows, value, token_weights(rows.mask, recipe.reduce, LIMIT)
    )
    (slope,) = torch.autograd.grad(loss, values)
    student.values = student.values - room.critic_rate * slope


def mean_kl(table: Tensor, student: Student, batch: Batch) -> Tensor:
    """KL(sampler‖π) of the next-token distributions, averaged over the tokens of the batch. []"""
    old, new = (distributions(t, batch.response, batch.prompt[:, 0]) for t in (student.sampler, table))
    return masked_mean(exact_kl(old, new), batch.mask)

"""The on-policy loop: sample, score, prepare, update. One loop for every recipe."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tutelage.algorithms.recipe import (
    GradientSteps,
    Recipe,
    RecipeState,
    after_update,
    critic_only,
    prepare,
)
from tutelage.models.budget import Budget
from tutelage.rewards.reward import Reward
from tutelage.train.learner import Learner, Step, seed_step
from tutelage.train.rl.actor import Actor
from tutelage.train.rl.natural_step import natural_step
from tutelage.train.rl.rollouts import Question, Rules, collect, greedy_answers, judged
from tutelage.train.rl.updates import Update, gradient_steps

__all__ = ["Progress", "Question", "Rules", "improve"]


@dataclass
class Progress:
    """What an on-policy run remembers beside weights and optimiser: the recipe's coefficients and running means."""

    state: RecipeState


def improve(
    actor: Actor,
    learner: Learner,
    questions: Callable[[int], Sequence[Question]],
    reward: Reward,
    recipe: Recipe,
    rules: Rules,
    progress: Progress,
    mix: Callable[[int, Budget], Tensor] | None = None,
) -> Iterator[Step]:
    """Raise the expected score of the policy's own answers, one rollout per step.

    `questions(step)` gives the prompts of a step (counted from 0), `recipe.samples` answers are drawn to each.
    The reference is whatever `policy.freeze_reference()` froze. Each step's samples are in `Step.sample`.

    Metrics, beside those of sampling, judging, preparing and updating: tokens_per_second (sampled tokens over
    the time of the whole step), and tokens_at_once, the budget of one forward pass. Where an update is a single step,
    tokens/kept: how many tokens of its forward pass were taken from sampling (see `models.activations`).
    """
    budget = Budget.of(rules.budget)
    policy, sampling, rules = actor.policy, rules.sampling, replace(rules, budget=budget)
    how = Update(
        temperature=sampling.temperature,
        max_length=sampling.max_new_tokens,
        budget=budget,
        exact=policy.dtype
        == torch.float32,  # other micro-batches round bfloat16 otherwise, recomputed or not
        mix=mix,
    )
    update = gradient_steps if isinstance(recipe.update, GradientSteps) else natural_step
    on_policy = how.exact and _reads_once(recipe)
    while learner.step < learner.total:
        started = time.perf_counter()
        seed_step(rules.seed, learner.step)
        answered, sampled = collect(
            policy, questions, reward, recipe, progress.state, rules, learner.step, learner.total, on_policy
        )
        scored, metrics = judged(actor, answered, rules)
        greedy = greedy_answers(policy, answered, recipe, rules, reward)
        batch, progress.state, prepared = prepare(
            recipe, scored, progress.state, greedy=greedy, max_length=sampling.max_new_tokens
        )
        metrics |= {name: float(value) for name, value in prepared.items()} | sampled
        warming = critic_only(recipe, progress.state)
        metrics |= update(recipe, actor, learner, batch, progress.state, how, warming=warming)
        learner.step += 1
        progress.state = after_update(
            recipe,
            progress.state,
            kl_reference=metrics["kl/reference"],
            kl_old=metrics.get("kl/update", metrics["kl/old"]),
            rows=len(batch),
        )
        metrics["tokens_at_once"] = float(budget.tokens)
        metrics |= policy.metrics()
        metrics["tokens_per_second"] = metrics.pop("tokens/sampled") / (time.perf_counter() - started)
        questions_asked = (p.messages[-1].content if p.messages else "" for p in answered.prompts)
        yield Step(learner.step, metrics, scored, tuple(zip(questions_asked, answered.texts, strict=True)))


def _reads_once(recipe: Recipe) -> bool:
    """Whether an update is one step on all that was sampled, so that each token is read once by the weights that wrote
    it."""
    update = recipe.update
    one = isinstance(update, GradientSteps) and update.epochs == update.minibatches == 1
    return one and not recipe.dynamic_sampling

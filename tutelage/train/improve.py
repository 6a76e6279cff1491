"""The on-policy loop: sample, score, prepare, update. One loop for every recipe."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tutelage import config
from tutelage.algorithms.recipe import (
    Recipe,
    RecipeState,
    after_update,
    critic_only,
    prepare,
)
from tutelage.core.batch import Rollout, Scored
from tutelage.data.records import Prompt
from tutelage.models.rewards import Reward
from tutelage.models.sampling import PromptTokens, answers, sample
from tutelage.train.actor import Actor
from tutelage.train.learner import Learner, Step, seed_step
from tutelage.train.updates import Update, gradient_steps


@dataclass
class Progress:
    """What an on-policy run remembers beside weights and optimiser: the recipe's coefficients and running means."""

    state: RecipeState


@dataclass(frozen=True)
class Question:
    """A prompt as text and as tokens."""

    prompt: Prompt
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Rules:
    """The settings of `improve` that are not the recipe's."""

    sampling: config.Sampling
    budget: int
    seed: int
    recompute: bool = False
    """Take the old log-probabilities from the trainer's forward pass instead of the sampler's."""
    reference: bool = True
    """Ask the reference. A recipe without a penalty needs it only for the metric kl/reference, which is 0 without."""
    watch: Mapping[str, Reward] = field(default_factory=dict)
    """Further scores to log, by metric name; nothing is trained on them."""


def improve(
    actor: Actor,
    learner: Learner,
    questions: Callable[[int], Sequence[Question]],
    reward: Reward,
    recipe: Recipe,
    rules: Rules,
    progress: Progress,
    mix: Callable[[int], Tensor] | None = None,
) -> Iterator[Step]:
    """Raise the expected score of the policy's own answers, one rollout per step.

    `questions(step)` gives the prompts of a step (counted from 0), `recipe.samples` answers are drawn to each.
    The reference is whatever `policy.freeze_reference()` froze. Each step's samples are in `Step.sample`.
    """
    sampling = rules.sampling
    how = Update(
        temperature=sampling.temperature,
        max_length=sampling.max_new_tokens,
        budget=rules.budget,
        exact=actor.policy.dtype == torch.float32 or rules.recompute,
        mix=mix,
    )
    while learner.step < learner.total:
        started = time.perf_counter()
        seed_step(rules.seed, learner.step)
        asked = questions(learner.step)
        rollout = sample(
            actor.policy,
            PromptTokens(tuple(q.tokens for q in asked), tuple(q.prompt.id for q in asked)),
            recipe.samples,
            sampling,
            seed=rules.seed * 1_000_003 + learner.step,
        )
        texts = list(answers(actor.policy, rollout))
        prompts = [q.prompt for q in asked for _ in range(recipe.samples)]
        scored, metrics = score(actor, rollout, prompts, texts, reward, recipe, rules)
        batch, progress.state, prepared = prepare(
            recipe, scored, progress.state, max_length=sampling.max_new_tokens
        )
        metrics |= {name: float(value) for name, value in prepared.items()}
        warming = critic_only(recipe, progress.state)
        metrics |= gradient_steps(recipe, actor, learner, batch, progress.state, how, warming=warming)
        learner.step += 1
        progress.state = after_update(
            recipe,
            progress.state,
            kl_reference=metrics["kl/reference"],
            kl_old=metrics["kl/old"],
            rows=len(batch),
        )
        metrics["tokens_per_second"] = int(rollout.mask.sum()) / (time.perf_counter() - started)
        shown = tuple(
            zip((p.messages[-1].content if p.messages else "" for p in prompts), texts, strict=True)
        )
        yield Step(learner.step, metrics, scored, shown)


@torch.no_grad()
def score(
    actor: Actor,
    rollout: Rollout,
    prompts: Sequence[Prompt],
    texts: Sequence[str],
    reward: Reward,
    recipe: Recipe,
    rules: Rules,
) -> tuple[Scored, dict[str, float]]:
    """Ask the reward, the reference and the critic about a rollout.

    Metrics: entropy (nats per token, estimated by −log π of the sampled tokens, after truncation), logp/mismatch (mean
    |sampler − trainer| per token, where the trainer's were computed), and whatever `rules.watch` names.
    """
    temperature = rules.sampling.temperature
    tokens = rollout.mask.sum().clamp(min=1)
    metrics: dict[str, float] = {}
    value = None
    if actor.critic is not None or rules.recompute:
        logp, value = actor.scores_of_all(rollout, temperature=temperature, budget=rules.budget)
        metrics["logp/mismatch"] = float((logp - rollout.logp).abs().mul(rollout.mask).sum() / tokens)
    else:
        logp = rollout.logp
    ref_logp = rollout.logp
    if rules.reference:
        with actor.policy.reference():
            bare = Actor(actor.policy)
            ref_logp, _ = bare.scores_of_all(rollout, temperature=temperature, budget=rules.budget)
    scored = Scored(
        **{name: getattr(rollout, name) for name in Rollout.__dataclass_fields__ if name != "logp"},
        logp=logp if rules.recompute else rollout.logp,
        score=reward(rollout, prompts, texts),
        ref_logp=ref_logp,
        value=value,
    )
    for name, other in rules.watch.items():
        metrics[name] = float(other(rollout, prompts, texts).mean())
    metrics["entropy"] = -float((scored.logp * rollout.mask).sum() / tokens)
    return scored, metrics

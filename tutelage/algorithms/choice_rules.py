"""Validation of the choices of a recipe: invalid combinations are errors, questionable ones get a warning."""

from collections.abc import Iterator
from typing import get_args

from tutelage.algorithms.slots import Choices, GradientSteps, NaturalStep
from tutelage.base.nouns import counted
from tutelage.core.pieces import Stateful, traits
from tutelage.core.reduce import Reduce
from tutelage.core.surrogates import AdaptiveSurrogate


def refusal(recipe: Choices) -> str | None:
    """The first error in these choices, or None."""
    errors = (error for rule in (_advantage_errors, _update_errors, _other_errors) for error in rule(recipe))
    return next((f"{recipe.name}: {error}" for error in errors), None)


def _advantage_errors(r: Choices) -> Iterator[str]:
    """Errors in the samples, the mean, and what the advantage requires."""
    advantage, needs = _name(r.advantage), traits(r.advantage).needs
    if r.samples < 1:
        yield f"samples={r.samples}: at least one completion per prompt is required."
    if r.reduce not in get_args(Reduce):
        yield f"reduce={r.reduce!r} is unknown; choose one of {', '.join(get_args(Reduce))}."
    if "value" in needs and r.critic is None:
        yield (
            f"{advantage} requires state values, but critic is none. Set critic=Critic, or use an advantage without a "
            "critic (Group, RewardToGo)."
        )
    if r.critic is not None and "value" not in needs:
        yield f"{advantage} does not use values, so a critic would have no effect. Set critic=none."
    if "group" in needs and r.samples < 2:
        yield (
            f"{advantage} compares the completions of a prompt, but samples={r.samples} leaves nothing to compare. Set "
            "samples to 2 or more."
        )


def _update_errors(r: Choices) -> Iterator[str]:
    """Errors in the surrogate for the update and the advantage."""
    surrogate, of_surrogate = _name(r.surrogate), traits(r.surrogate)
    if of_surrogate.on_policy and isinstance(r.update, GradientSteps) and r.update.steps > 1:
        yield (
            f"ScoreFunction is valid only for fresh samples, but update takes {counted(r.update.steps, 'step')} per "
            "rollout. Use surrogate=ImportanceWeighted or Clipped, or a single step."
        )
    if of_surrogate.on_policy and isinstance(r.update, NaturalStep) and r.update.search:
        yield (
            "the line search requires a surrogate that measures improvement, but log π · Ψ does so only at the "
            "sampler. Use surrogate=ImportanceWeighted."
        )
    if isinstance(r.update, NaturalStep) and of_surrogate.proximal:
        yield (
            f"{surrogate} keeps the policy close to the sampler, but so does max_kl of NaturalStep, and one bound "
            "would have no effect. Use surrogate=ImportanceWeighted."
        )
    if of_surrogate.per_response and not traits(r.advantage).per_response:
        yield (
            f"{surrogate} uses one ratio per completion, but {_name(r.advantage)} gives every token its own advantage. "
            "Use Group, Greedy or TotalReturn, or a ratio per token (Clipped)."
        )


def _other_errors(r: Choices) -> Iterator[str]:
    surrogate: object = r.surrogate
    if isinstance(surrogate, Stateful) and not isinstance(surrogate, AdaptiveSurrogate):
        yield (
            f"{_name(surrogate)} has init(), but the minibatches of a step share one state: a surrogate with a state "
            "also has at(state) -> surrogate and observe(observation, state) -> state."
        )
    if r.dynamic_sampling < 0:
        yield f"dynamic_sampling={r.dynamic_sampling}: a number of rounds cannot be negative."
    if r.dynamic_sampling and r.samples < 2:
        yield "dynamic_sampling drops prompts with equal scores, so it requires samples of 2 or more."
    if isinstance(r.update, NaturalStep) and r.update.critic_steps != NaturalStep.critic_steps and r.critic is None:
        yield "update.critic_steps is set, but there is no critic."
    if r.ptx < 0:
        yield f"ptx={r.ptx:g} would unlearn the pretraining text; it must be 0 or more."


def remarks(recipe: Choices) -> list[str]:
    """Warnings about valid but unusual choices."""
    return list(_remarks(recipe))


def _remarks(r: Choices) -> Iterator[str]:
    update, surrogate = r.update, traits(r.surrogate)
    if r.penalty and r.penalty.where == "loss" and r.penalty.kind == "k1":
        yield "the gradient of k1 in the loss is 0 in expectation: noise without any pull towards the reference."
    if isinstance(update, GradientSteps) and update.steps == 1 and surrogate.proximal:
        yield "with one step per rollout the ratio is always 1, so the limits of the surrogate have no effect."
    steps = update.steps if isinstance(update, GradientSteps) else update.critic_steps
    if r.critic is not None and r.critic.clip is not None and steps == 1:
        yield "with one step per rollout values equal those at sampling time, so critic.clip has no effect."
    if traits(r.advantage).standardise and r.samples < 4:
        yield f"advantages are divided by the spread of {counted(r.samples, 'score')}, which is mostly noise."
    if surrogate.per_response and r.reduce != "sequence_mean":
        yield (
            f"reduce={r.reduce} counts the ratio of a completion once per token, so that long completions weigh more; "
            "sequence_mean counts it once."
        )


def _name(piece: object) -> str:
    return getattr(piece, "__name__", type(piece).__name__)

"""Validation of the choices of a recipe: invalid combinations are errors, questionable ones get a warning.

A rule takes the choices and returns a message, or None.
"""

from collections.abc import Callable
from typing import get_args

from tutelage.algorithms.slots import Choices, GradientSteps, NaturalStep
from tutelage.base.nouns import counted
from tutelage.core.pieces import Stateful, traits
from tutelage.core.reduce import Reduce
from tutelage.core.surrogates import AdaptiveSurrogate

Rule = Callable[[Choices], str | None]


def _name(piece: object) -> str:
    return getattr(piece, "__name__", type(piece).__name__)


def _values_without_critic(r: Choices) -> str | None:
    if "value" in traits(r.advantage).needs and r.critic is None:
        return (
            f"{_name(r.advantage)} requires state values, but critic is none. Set critic=Critic, "
            "or use an advantage without a critic (Group, RewardToGo)."
        )
    return None


def _critic_without_values(r: Choices) -> str | None:
    if r.critic is not None and "value" not in traits(r.advantage).needs:
        return f"{_name(r.advantage)} does not use values, so a critic would have no effect. Set critic=none."
    return None


def _group_of_one(r: Choices) -> str | None:
    if "group" in traits(r.advantage).needs and r.samples < 2:
        return (
            f"{_name(r.advantage)} compares the completions of a prompt, but samples={r.samples} leaves nothing "
            "to compare. Set samples to 2 or more."
        )
    return None


def _no_samples(r: Choices) -> str | None:
    return f"samples={r.samples}: at least one completion per prompt is required." if r.samples < 1 else None


def _unknown_reduce(r: Choices) -> str | None:
    if r.reduce not in get_args(Reduce):
        return f"reduce={r.reduce!r} is unknown; choose one of {', '.join(get_args(Reduce))}."
    return None


def _stale_score_function(r: Choices) -> str | None:
    if traits(r.surrogate).on_policy and isinstance(r.update, GradientSteps) and r.update.steps > 1:
        return (
            f"ScoreFunction is valid only for fresh samples, but update takes {counted(r.update.steps, 'step')} per "
            "rollout. Use surrogate=ImportanceWeighted or Clipped, or a single step."
        )
    return None


def _search_without_improvement(r: Choices) -> str | None:
    if traits(r.surrogate).on_policy and isinstance(r.update, NaturalStep) and r.update.search:
        return (
            "the line search requires a surrogate that measures improvement, but log π · Ψ does so only at the "
            "sampler. Use surrogate=ImportanceWeighted."
        )
    return None


def _two_bounds_in_natural_step(r: Choices) -> str | None:
    if isinstance(r.update, NaturalStep) and traits(r.surrogate).proximal:
        return (
            f"{_name(r.surrogate)} keeps the policy close to the sampler, but so does max_kl of NaturalStep, and one "
            "bound would have no effect. Use surrogate=ImportanceWeighted."
        )
    return None


def _sequence_ratio_of_token_advantages(r: Choices) -> str | None:
    if traits(r.surrogate).per_response and not traits(r.advantage).per_response:
        return (
            f"{_name(r.surrogate)} uses one ratio per completion, but {_name(r.advantage)} gives every "
            "token its own advantage. Use Group, Greedy or TotalReturn, or a ratio per token (Clipped)."
        )
    return None


def _state_that_no_step_sees(r: Choices) -> str | None:
    surrogate: object = r.surrogate
    if isinstance(surrogate, Stateful) and not isinstance(surrogate, AdaptiveSurrogate):
        return (
            f"{_name(r.surrogate)} has init(), but the minibatches of a step share one state: a surrogate with a state "
            "also has at(state) -> surrogate and observe(observation, state) -> state."
        )
    return None


def _dynamic_without_groups(r: Choices) -> str | None:
    if r.dynamic_sampling < 0:
        return f"dynamic_sampling={r.dynamic_sampling}: a number of rounds cannot be negative."
    if r.dynamic_sampling and r.samples < 2:
        return "dynamic_sampling drops prompts with equal scores, so it requires samples of 2 or more."
    return None


def _critic_steps_without_critic(r: Choices) -> str | None:
    if isinstance(r.update, NaturalStep) and r.update.critic_steps != NaturalStep.critic_steps and r.critic is None:
        return "update.critic_steps is set, but there is no critic."
    return None


def _negative_ptx(r: Choices) -> str | None:
    return f"ptx={r.ptx:g} would unlearn the pretraining text; it must be 0 or more." if r.ptx < 0 else None


RULES: tuple[Rule, ...] = (
    _no_samples,
    _unknown_reduce,
    _values_without_critic,
    _critic_without_values,
    _group_of_one,
    _stale_score_function,
    _search_without_improvement,
    _two_bounds_in_natural_step,
    _sequence_ratio_of_token_advantages,
    _state_that_no_step_sees,
    _dynamic_without_groups,
    _critic_steps_without_critic,
    _negative_ptx,
)


def _k1_in_the_loss(r: Choices) -> str | None:
    if r.penalty and r.penalty.where == "loss" and r.penalty.kind == "k1":
        return "the gradient of k1 in the loss is 0 in expectation: noise without any pull towards the reference."
    return None


def _inert_limits(r: Choices) -> str | None:
    if isinstance(r.update, GradientSteps) and r.update.steps == 1 and traits(r.surrogate).proximal:
        return "with one step per rollout the ratio is always 1, so the limits of the surrogate have no effect."
    return None


def _inert_value_clip(r: Choices) -> str | None:
    steps = r.update.steps if isinstance(r.update, GradientSteps) else r.update.critic_steps
    if r.critic is not None and r.critic.clip is not None and steps == 1:
        return "with one step per rollout values equal those at sampling time, so critic.clip has no effect."
    return None


def _nearly_empty_group(r: Choices) -> str | None:
    if traits(r.advantage).standardise and r.samples < 4:
        return f"advantages are divided by the spread of {counted(r.samples, 'score')}, which is mostly noise."
    return None


def _one_ratio_many_tokens(r: Choices) -> str | None:
    if traits(r.surrogate).per_response and r.reduce != "sequence_mean":
        return (
            f"reduce={r.reduce} counts the ratio of a completion once per token, so that long completions "
            "weigh more; sequence_mean counts it once."
        )
    return None


REMARKS: tuple[Rule, ...] = (
    _k1_in_the_loss,
    _inert_limits,
    _inert_value_clip,
    _nearly_empty_group,
    _one_ratio_many_tokens,
)


def refusal(recipe: Choices) -> str | None:
    """The first error in these choices, or None."""
    return next((f"{recipe.name}: {sentence}" for rule in RULES if (sentence := rule(recipe))), None)


def remarks(recipe: Choices) -> list[str]:
    """Warnings about valid but unusual choices."""
    return [sentence for rule in REMARKS if (sentence := rule(recipe))]

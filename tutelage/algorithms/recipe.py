"""The common template of all on-policy algorithms.

    ∇J = E[ Σₜ ∇log π(aₜ|sₜ) · Ψₜ ]

A `Recipe` holds the choices; `prepare` computes everything that depends on several rows, once per rollout; `objective`
is row-wise, so it is additive over any split of a batch. The states of pieces are carried between steps in a
`RecipeState`, which is saved in checkpoints. The training loop and the networks are in `tutelage.train`.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from tutelage.algorithms.choice_rules import refusal, remarks
from tutelage.algorithms.recipe_state import RecipeState
from tutelage.algorithms.slots import (
    EXACT,
    Choices,
    Critic,
    GradientSteps,
    Linear,
    NaturalStep,
    Penalty,
    at_step,
    needs_divergence,
    needs_entropy,
    needs_greedy,
    needs_kl_old,
    needs_reference,
    needs_values,
)
from tutelage.base.errors import TutelageError
from tutelage.core.baselines import score_norm_bound
from tutelage.core.batch import Batch, ScoredRollout, extended
from tutelage.core.kl import kl_estimate
from tutelage.core.pieces import Context, Observation, State, apply, init, traits
from tutelage.core.reduce import at_last_token, masked_mean, masked_var
from tutelage.core.shapes import PerRow, PerToken, RowMask, Scalar, TokenMask
from tutelage.core.surrogates import ClippingSurrogate, at_state
from tutelage.core.values import explained_variance, value_loss

__all__ = [
    "Critic",
    "GradientSteps",
    "Linear",
    "NaturalStep",
    "Observation",
    "Penalty",
    "Recipe",
    "clipped_tokens",
    "critic_loss",
    "critic_only",
    "kl_reference",
    "live_rows",
    "needs_divergence",
    "needs_entropy",
    "needs_greedy",
    "needs_kl_old",
    "needs_reference",
    "needs_values",
    "objective",
    "prepare",
    "remarks",
    "zero_gradient_rows",
]


@dataclass(frozen=True, kw_only=True)
class Recipe(Choices):
    """An on-policy algorithm: a piece or a value for each slot. Raises TutelageError for inconsistent choices."""

    def __post_init__(self) -> None:
        reason = refusal(self)
        if reason:
            raise TutelageError(reason)


def critic_only(recipe: Recipe, state: RecipeState) -> bool:
    """Whether this step is part of critic warm-up, in which the policy is not updated."""
    return recipe.critic is not None and state.step < recipe.critic.warmup


def prepare(
    recipe: Recipe,
    scored: ScoredRollout,
    state: RecipeState,
    *,
    greedy: ScoredRollout | None = None,
    max_length: int | None = None,
) -> tuple[Batch, RecipeState, dict[str, Scalar | float]]:
    """Compute shaped scores, rewards, Ψ and targets: everything that depends on several rows.

    `scored` is the whole batch, gathered from all sampling processes. Completions that were not sampled by the policy
    have Ψ = 0 and contribute only through a divergence in the loss. `greedy` holds one greedy completion per prompt
    (see `needs_greedy`); `max_length` is the limit on completion tokens, for shapings that depend on it. Returns the
    batch, the state with this batch in its running statistics, and the metrics:

    score/mean, score/std       score of the reward
    score/shaped                mean of the score used for training
    kl/reference                KL(sampler‖reference), nats per completion, by k1; kl/reference_k3 the same by k3
    penalty/coef                coefficient of the KL penalty in this batch
    ended, length/mean          share of finished completions; tokens per completion
    groups/dead                 share of prompts with equal shaped scores (with samples > 1)
    advantage/mean, /std        of Ψ over tokens, before importance weighting
    value/explained_variance    of the critic's values; nan if the targets are constant
    """
    if scored.turn is not None and bool((scored.mask[:, 1:] & ~scored.mask[:, :-1]).any()):
        raise TutelageError("A row has masked tokens between its turns; rows hold the tokens of the policy alone.")
    of_rows: dict[str, Any] = {"ids": scored.ids, "turn": scored.turn, "last_value": scored.last_value}
    context = Context(**of_rows, max_length=max_length, score_norm=score_norm_bound(scored.logp))
    shaped, shaping = _shaped(recipe, scored, context, state.shaping)
    state = replace(state, shaping=shaping)
    metrics = _describe(scored, shaped, state)
    if greedy is not None and needs_greedy(recipe):
        of_greedy = Context(ids=greedy.ids, max_length=max_length, is_greedy=True)
        scores, _ = _shaped(recipe, greedy, of_greedy, state.shaping)
        context = replace(context, greedy=scores.repeat_interleave(scored.group))
    if scored.group > 1:
        live = _differs(recipe, scored, shaped)
        metrics["groups/dead"] = 1.0 - live.float().mean()
        if recipe.dynamic_sampling and live.any():
            scored, shaped, context = scored.rows(live), shaped[live], context.rows(live)

    reward = _rewards(scored, shaped)
    if recipe.penalty and recipe.penalty.where == "reward":
        kl = kl_estimate(scored.logp, scored.ref_logp, recipe.penalty.kind)
        reward = torch.where(scored.mask, reward - state.penalty_coef * kl, 0.0)
    inputs = reward, scored.mask, scored.value, scored.group, context
    (psi, target), advantage = apply(recipe.advantage, *inputs, state=state.advantage)
    state = replace(state, advantage=advantage)

    metrics["advantage/mean"] = masked_mean(psi, scored.mask)
    metrics["advantage/std"] = masked_var(psi, scored.mask).sqrt()
    if target is not None and scored.value is not None:
        metrics["value/explained_variance"] = explained_variance(scored.value, target, scored.mask)
    if scored.importance is not None:
        psi = psi * scored.importance
    if scored.given is not None:  # a policy gradient requires sampled completions
        psi = torch.where(scored.given[:, None], 0.0, psi)
    return extended(scored, Batch, advantage=psi, target=target), state, metrics


def objective(
    recipe: Recipe,
    rows: Batch,
    logp: PerToken,
    entropy: PerToken | None,
    weight: PerToken,
    state: RecipeState,
    *,
    divergence: PerToken | None = None,
) -> Scalar:
    """The objective of the policy on these rows, to maximise: Σ w (surrogate − β KL [if in the loss] + c · entropy).

    `logp`, `entropy` and, if `needs_divergence`, `divergence` are those of the policy, Float[B, R]; `weight` comes from
    `token_weights` over the whole step. The value is additive over any split of the rows.
    """
    surrogate = at_state(recipe.surrogate, state.surrogate)
    per_token = surrogate(logp, rows.logp, rows.advantage, rows.mask)
    if recipe.penalty and recipe.penalty.where == "loss":
        per_token = per_token - state.penalty_coef * _kl_in_the_loss(recipe.penalty, rows, logp, divergence)
    if needs_entropy(recipe):
        if entropy is None:
            raise ValueError(f"{recipe.name} has an entropy bonus, which requires entropy.")
        per_token = per_token + at_step(recipe.entropy, state.step) * entropy
    return torch.where(rows.mask, weight * per_token, 0.0).sum()


def _kl_in_the_loss(penalty: Penalty, rows: Batch, logp: PerToken, divergence: PerToken | None) -> PerToken:
    if penalty.kind != EXACT:
        return kl_estimate(logp, rows.ref_logp, penalty.kind, rows.logp)
    if divergence is None:
        raise ValueError("penalty.kind=exact requires the divergence of every token.")
    return divergence


def critic_loss(recipe: Recipe, rows: Batch, value: PerToken, weight: PerToken) -> Scalar:
    """The loss of the critic on these rows, to minimise with weight `critic.coef`: Σ w · value loss.

    `value` are the critic's current values, Float[B, R]; `rows.value` those at sampling time.
    """
    if recipe.critic is None or rows.value is None or rows.target is None:
        raise ValueError(f"{recipe.name} has no target for a critic.")
    loss = value_loss(value, rows.value, rows.target, recipe.critic.clip)
    return torch.where(rows.mask, weight * loss, 0.0).sum()


def clipped_tokens(recipe: Recipe, rows: Batch, logp: PerToken, state: RecipeState) -> TokenMask | None:
    """Tokens with a gradient clipped by the surrogate, Bool[B, R]; None for a surrogate without clipping.

    `logp` is the policy's, Float[B, R].
    """
    surrogate = at_state(recipe.surrogate, state.surrogate)
    if not isinstance(surrogate, ClippingSurrogate):
        return None
    return surrogate.clipped(logp, rows.logp, rows.advantage, rows.mask)


def zero_gradient_rows(recipe: Recipe, rows: Batch, state: RecipeState) -> RowMask:
    """Rows whose gradient is 0 for any policy, so that their forward pass can be skipped. Bool[B]

    Such rows have advantage 0 under an objective without other terms, for example a group with equal scores if the KL
    is not in the loss.
    """
    other_terms = (
        recipe.critic is not None
        or needs_entropy(recipe)
        or (recipe.penalty is not None and recipe.penalty.where == "loss")
    )
    if other_terms:
        return torch.zeros(len(rows), dtype=torch.bool, device=rows.mask.device)
    surrogate = at_state(recipe.surrogate, state.surrogate)
    elsewhere = surrogate(rows.logp + 1.0, rows.logp, rows.advantage, rows.mask)
    return (((rows.advantage == 0) & (elsewhere == 0)) | ~rows.mask).all(-1)


def live_rows(recipe: Recipe, scored: ScoredRollout, state: RecipeState, *, max_length: int | None = None) -> RowMask:
    """Rows of prompts with different shaped scores, hence a nonzero gradient (dynamic sampling). Bool[B]"""
    shaped, _ = _shaped(recipe, scored, Context(ids=scored.ids, max_length=max_length), state.shaping)
    return _differs(recipe, scored, shaped)


def kl_reference(scored: ScoredRollout) -> Scalar:
    """KL(sampler‖reference), estimated by k1: the mean over sampled completions of the sum over their tokens, in nats;
    0 if there are none. -> []"""
    return _per_response(scored, "k1")


def _per_response(scored: ScoredRollout, kind: str) -> Scalar:
    kl = kl_estimate(scored.logp, scored.ref_logp, kind)
    return masked_mean(torch.where(scored.mask, kl, 0.0).sum(-1), scored.drawn)


def _shaped(recipe: Recipe, scored: ScoredRollout, context: Context, state: State) -> tuple[PerRow, State]:
    """The shaped scores, Float[B], and the next state of the shaping."""
    length = scored.mask.sum(-1)
    return apply(recipe.shaping, scored.score, scored.terminated, length, context, state=state)


def _differs(recipe: Recipe, scored: ScoredRollout, shaped: PerRow) -> RowMask:
    """The rows of prompts whose completions differ in their shaped score with the rewards of their turns; with turns,
    those of prompts to which an advantage over groups gives a Ψ other than 0. Bool[B]"""
    if scored.turn is None or "group" not in traits(recipe.advantage).needs:
        whole = shaped if scored.turn_reward is None else _rewards(scored, shaped).sum(1)
        scores = whole.reshape(-1, scored.group)
        return (scores.amax(1) > scores.amin(1)).repeat_interleave(scored.group)
    inputs = _rewards(scored, shaped), scored.mask, None, scored.group, Context(ids=scored.ids, turn=scored.turn)
    (psi, _), _ = apply(recipe.advantage, *inputs, state=init(recipe.advantage))
    return (psi != 0).reshape(-1, scored.group * psi.shape[1]).any(1).repeat_interleave(scored.group)


def _rewards(scored: ScoredRollout, shaped: PerRow) -> PerToken:
    """The shaped score on the last token, and the rewards of turns. Float[B, R]"""
    turns = 0.0 if scored.turn_reward is None else torch.where(scored.mask, scored.turn_reward, 0.0)
    return at_last_token(shaped, scored.mask) + turns


def _describe(scored: ScoredRollout, shaped: PerRow, state: RecipeState) -> dict[str, Scalar | float]:
    return {
        "score/mean": scored.score.mean(),
        "score/std": scored.score.std(correction=0),
        "score/shaped": shaped.mean(),
        "kl/reference": kl_reference(scored),
        "kl/reference_k3": _per_response(scored, "k3"),
        "penalty/coef": state.penalty_coef,
        "ended": scored.terminated.float().mean(),
        "length/mean": scored.mask.sum(-1).float().mean(),
    }

"""The template of every on-policy algorithm, written once.

    ∇J = E[ Σₜ ∇log π(aₜ|sₜ) · Ψₜ ]

A `Recipe` names the choices; `prepare` does everything that looks at several rows, once per rollout;
`objective` is row-wise from there on, so that a batch may be cut in any way and the parts add up. What
loops, and what a network is, belongs to `tutelage.train`.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tutelage.algorithms.checks import refusal, remarks
from tutelage.algorithms.slots import (
    EXACT,
    Critic,
    GradientSteps,
    Linear,
    NaturalStep,
    Penalty,
    Schedule,
    Update,
    at_step,
)
from tutelage.algorithms.state import RecipeState, after_update, initial_state
from tutelage.core.advantages import Advantage, RewardToGo, needs
from tutelage.core.baselines import Context, MovingAverage, score_norm_bound
from tutelage.core.batch import Batch, Scored
from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import Reduce, at_last_token, masked_mean, masked_var
from tutelage.core.shaping import ScoreShaping, Shaping
from tutelage.core.surrogates import Driven, ScoreFunction, Surrogate
from tutelage.core.values import explained_variance, value_loss
from tutelage.errors import TutelageError

__all__ = [
    "Critic",
    "GradientSteps",
    "Linear",
    "NaturalStep",
    "Penalty",
    "Recipe",
    "RecipeState",
    "after_update",
    "critic_loss",
    "critic_only",
    "initial_state",
    "live_rows",
    "needs_entropy",
    "needs_exact_kl",
    "needs_greedy",
    "needs_reference",
    "needs_values",
    "objective",
    "prepare",
    "remarks",
]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An on-policy algorithm: a name for each choice. Raises TutelageError when the choices contradict each other."""

    name: str
    paper: str = ""
    """Where it was published, as `arXiv:...` or author and year."""
    samples: int = 1
    """Responses per prompt, G."""
    dynamic_sampling: int = 0
    """Rounds of sampling at most to fill the batch with prompts whose responses score differently; 0 keeps
    the others too, 1 leaves them out and trains on what remains.
    """
    shaping: Shaping = ScoreShaping()  # noqa: RUF009 - frozen
    """From the reward's score to the one that is trained on."""
    penalty: Penalty | None = Penalty()  # noqa: RUF009 - frozen
    """What moving away from the reference costs."""
    advantage: Advantage = RewardToGo()  # noqa: RUF009 - frozen
    """The estimator of Ψ."""
    surrogate: Surrogate = ScoreFunction()  # noqa: RUF009 - frozen
    """What is maximised, per token."""
    entropy: Schedule = 0.0
    """Coefficient of the full entropy of each token's distribution."""
    reduce: Reduce = "token_mean"
    """How tokens are weighed against each other."""
    critic: Critic | None = None
    update: Update = GradientSteps()  # noqa: RUF009 - frozen
    ptx: float = 0.0
    """Weight of the language-modelling loss on pretraining text beside the objective (InstructGPT's PPO-ptx)."""

    def __post_init__(self) -> None:
        said = refusal(self)
        if said:
            raise TutelageError(said)


def needs_values(recipe: Recipe) -> bool:
    """Whether the rollout must carry the values of a critic."""
    return "value" in needs(recipe.advantage)


def needs_reference(recipe: Recipe) -> bool:
    """Whether the objective depends on the reference; without, its log-probabilities are for the metrics only."""
    return recipe.penalty is not None


def needs_entropy(recipe: Recipe) -> bool:
    """Whether the objective asks for the full entropy of every token."""
    return recipe.entropy != 0.0


def needs_exact_kl(recipe: Recipe) -> bool:
    """Whether the objective asks for KL(policy‖reference) of every token's whole distribution."""
    return recipe.penalty is not None and recipe.penalty.kind == EXACT


def needs_greedy(recipe: Recipe) -> bool:
    """Whether `prepare` must be given the scored greedy response to each prompt."""
    return "greedy" in needs(recipe.advantage)


def critic_only(recipe: Recipe, state: RecipeState) -> bool:
    """Whether this step belongs to the critic's warm-up, in which the policy stays where it is."""
    return recipe.critic is not None and state.step < recipe.critic.warmup


def prepare(
    recipe: Recipe,
    scored: Scored,
    state: RecipeState,
    *,
    greedy: Scored | None = None,
    max_length: int | None = None,
) -> tuple[Batch, RecipeState, dict[str, Tensor | float]]:
    """Everything that looks across rows: shaped scores, rewards, Ψ, targets. Afterwards every row stands alone.

    `scored` is the whole batch: where several processes sample, gather it first. `greedy` holds one greedy
    response per prompt (see `needs_greedy`); `max_length` is the limit on response tokens, for a shaping
    that measures against it. Returns the batch, the state with this batch in its running statistics, and the
    metrics that arise here:

    score/mean, score/std       the reward's own score
    score/shaped                mean of what is trained on
    kl/reference                KL(sampler‖reference), nats per sequence, by k1; kl/reference_k3 the same by k3
    penalty/coef                price of a nat in this batch
    ended, length/mean          share of responses that ended by themselves; tokens per response
    groups/dead                 share of prompts whose responses all got one shaped score (with samples > 1)
    advantage/mean, /std        of Ψ over tokens, before any importance weight
    value/explained_variance    of the critic's values against its targets; nan when the targets do not vary
    """
    if getattr(recipe.shaping, "normalise", "none") == "running":
        state = state.with_scores(scored.score)
    shaped = _shaped(recipe, scored, state, max_length)
    greedy_scores = _greedy_scores(recipe, scored, greedy, state, max_length)
    metrics = _describe(scored, shaped, state)
    if scored.group > 1:
        live = _spread(shaped, scored.group)
        metrics["groups/dead"] = 1.0 - live.float().mean()
        if recipe.dynamic_sampling and live.any():
            scored, shaped = scored.rows(live), shaped[live]
            greedy_scores = greedy_scores[live] if greedy_scores is not None else None

    reward = at_last_token(shaped, scored.mask)
    if recipe.penalty and recipe.penalty.where == "reward":
        kl = kl_estimate(scored.logp, scored.ref_logp, recipe.penalty.kind)
        reward = torch.where(scored.mask, reward - state.penalty_coef * kl, 0.0)
    context = Context(
        moving_mean=state.moving_mean, score_norm=score_norm_bound(scored.logp), greedy=greedy_scores
    )
    psi, target = recipe.advantage(reward, scored.mask, scored.value, scored.group, context)

    baseline = getattr(recipe.advantage, "baseline", None)
    if isinstance(baseline, MovingAverage):
        state = state.with_return(float(reward.sum(-1).mean()), baseline.decay)
    metrics["advantage/mean"] = masked_mean(psi, scored.mask)
    metrics["advantage/std"] = masked_var(psi, scored.mask).sqrt()
    if target is not None and scored.value is not None:
        metrics["value/explained_variance"] = explained_variance(scored.value, target, scored.mask)
    if scored.importance is not None:
        psi = psi * scored.importance
    known = {f.name: getattr(scored, f.name) for f in fields(Scored)}
    return Batch(**known, advantage=psi, target=target), state, metrics


def objective(
    recipe: Recipe,
    rows: Batch,
    logp: Tensor,
    entropy: Tensor | None,
    weight: Tensor,
    state: RecipeState,
    *,
    exact_kl: Tensor | None = None,
) -> Tensor:
    """What the policy maximises on these rows: Σ w (surrogate − β KL [if in the loss] + c · entropy). -> []

    `logp` and `entropy` are the policy's, Float[B, R], and so is `exact_kl` where `needs_exact_kl`; `weight` comes
    from `token_weights` over the whole step. The value adds up over any split of the rows.
    """
    surrogate = recipe.surrogate
    if isinstance(surrogate, Driven):
        surrogate = surrogate.at(state.surrogate_coef)
    per_token = surrogate(logp, rows.logp, rows.advantage, rows.mask)
    if recipe.penalty and recipe.penalty.where == "loss":
        per_token = per_token - state.penalty_coef * _kl_in_the_loss(recipe.penalty, rows, logp, exact_kl)
    if needs_entropy(recipe):
        if entropy is None:
            raise ValueError(f"{recipe.name} has an entropy bonus, but no entropy was given.")
        per_token = per_token + at_step(recipe.entropy, state.step) * entropy
    return torch.where(rows.mask, weight * per_token, 0.0).sum()


def _kl_in_the_loss(penalty: Penalty, rows: Batch, logp: Tensor, exact_kl: Tensor | None) -> Tensor:
    if penalty.kind != EXACT:
        return kl_estimate(logp, rows.ref_logp, penalty.kind)
    if exact_kl is None:
        raise ValueError("penalty.kind=exact needs the exact KL of every token, but none was given.")
    return exact_kl


def critic_loss(recipe: Recipe, rows: Batch, value: Tensor, weight: Tensor) -> Tensor:
    """Σ w · value loss on these rows, to minimise with the weight `critic.coef`. -> []

    `value` is what the critic says now, Float[B, R].
    """
    if recipe.critic is None or rows.value is None or rows.target is None:
        raise ValueError(f"{recipe.name} has nothing for a critic to fit.")
    loss = value_loss(value, rows.value, rows.target, recipe.critic.clip)
    return torch.where(rows.mask, weight * loss, 0.0).sum()


def live_rows(recipe: Recipe, scored: Scored, state: RecipeState, *, max_length: int | None = None) -> Tensor:
    """Rows whose prompt got different shaped scores, and so has something to teach (dynamic sampling). Bool[B]"""
    return _spread(_shaped(recipe, scored, state, max_length), scored.group)


def _shaped(recipe: Recipe, scored: Scored, state: RecipeState, max_length: int | None) -> Tensor:
    mean, std = state.score_mean, state.score_std
    if getattr(recipe.shaping, "normalise", "none") == "batch":
        mean, std = float(scored.score.mean()), float(scored.score.std(correction=0))
    return recipe.shaping(scored.score, scored.terminated, scored.mask.sum(-1), max_length, mean, std)


def _greedy_scores(
    recipe: Recipe, scored: Scored, greedy: Scored | None, state: RecipeState, max_length: int | None
) -> Tensor | None:
    if greedy is None or not needs_greedy(recipe):
        return None
    return _shaped(recipe, greedy, state, max_length).repeat_interleave(scored.group)


def _spread(shaped: Tensor, group: int) -> Tensor:
    scores = shaped.reshape(-1, group)
    return (scores.amax(1) - scores.amin(1) > 0).repeat_interleave(group)


def _describe(scored: Scored, shaped: Tensor, state: RecipeState) -> dict[str, Tensor | float]:
    def per_row(kind: str) -> Tensor:
        kl = kl_estimate(scored.logp, scored.ref_logp, kind)
        return torch.where(scored.mask, kl, 0.0).sum(-1).mean()

    return {
        "score/mean": scored.score.mean(),
        "score/std": scored.score.std(correction=0),
        "score/shaped": shaped.mean(),
        "kl/reference": per_row("k1"),
        "kl/reference_k3": per_row("k3"),
        "penalty/coef": state.penalty_coef,
        "ended": scored.terminated.float().mean(),
        "length/mean": scored.mask.sum(-1).float().mean(),
    }

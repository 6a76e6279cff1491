"""The template of every on-policy algorithm, written once.

    ∇J = E[ Σₜ ∇log π(aₜ|sₜ) · Ψₜ ]

A `Recipe` names the choices; `prepare` does everything that looks at several rows, once per rollout; `objective` is
row-wise from there on, so that a batch may be cut in any way and the parts add up. The states of the pieces go from one
step of the loop to the next in a `RecipeState`, which checkpoints keep. The loop and the networks belong to
`tutelage.train`.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from tutelage.algorithms.choice_rules import refusal, remarks
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
from tutelage.core import surrogates
from tutelage.core.baselines import score_norm_bound
from tutelage.core.batch import Batch, ScoredRollout
from tutelage.core.kl import kl_estimate
from tutelage.core.pieces import Context, Observation, State, apply, init
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
    "RecipeState",
    "after_update",
    "clipped_tokens",
    "critic_loss",
    "critic_only",
    "initial_state",
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
    "restored_state",
    "zero_gradient_rows",
]


@dataclass(frozen=True, kw_only=True)
class RecipeState:
    """The number of steps done, and one state for each slot whose piece may have one; `()` for a piece without."""

    step: int = 0
    shaping: State = ()
    advantage: State = ()
    penalty: State = ()
    surrogate: State = ()

    def to_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, as JSON can hold it.

        Raises TutelageError for a piece that remembers anything but numbers, texts, lists and dicts.
        """
        return {field.name: _plain(getattr(self, field.name), field.name) for field in fields(self)}

    @property
    def penalty_coef(self) -> float:
        """Price of a nat from the reference; 0 without a penalty."""
        return float(self.penalty["coef"]) if self.penalty else 0.0

    @property
    def surrogate_coef(self) -> float | None:
        """Price of a nat from the sampler; None if the surrogate has no coefficient that a controller changes."""
        return self.surrogate.get("coef") if isinstance(self.surrogate, dict) else None


def initial_state(recipe: Choices) -> RecipeState:
    """The state of a recipe before the first step."""
    return RecipeState(
        shaping=init(recipe.shaping),
        advantage=init(recipe.advantage),
        penalty=init(recipe.penalty),
        surrogate=init(recipe.surrogate),
    )


def after_update(recipe: Choices, state: RecipeState, observation: Observation) -> RecipeState:
    """The state of a recipe after a step: the controllers have seen what the step measured.

    In the critic's warm-up, in which the policy stays where it is, the controllers wait.
    """
    state = replace(state, step=state.step + 1)
    if recipe.critic is not None and state.step <= recipe.critic.warmup:
        return state
    penalty = recipe.penalty.observe(observation, state.penalty) if recipe.penalty else state.penalty
    return replace(
        state,
        penalty=penalty,
        surrogate=surrogates.observe(recipe.surrogate, observation, state.surrogate),
    )


def restored_state(recipe: Choices, saved: dict[str, Any]) -> RecipeState:
    """The state that `RecipeState.to_dict` made, for the same recipe.

    Raises TutelageError when it was saved by another recipe or by pieces that remembered something else.
    """
    start = initial_state(recipe)
    names = [field.name for field in fields(RecipeState)]
    if saved.keys() != set(names):
        odd = ", ".join(sorted(set(names) ^ saved.keys()))
        raise TutelageError(
            f"The recipe's state in this checkpoint was written by another version of Tutelage: {odd} differ. Go on "
            "with the version that began the run."
        )
    slots = {name: _fitting(getattr(start, name), saved[name], name, recipe) for name in names[1:]}
    return RecipeState(step=int(saved["step"]), **slots)


def _fitting(start: State, saved: Any, slot: str, recipe: Choices) -> State:
    """The saved state of a slot. Raises TutelageError unless it has the shape of the piece's first state."""
    if not _fits(start, saved):
        raise TutelageError(
            f"The checkpoint does not fit the recipe {recipe.name}: its state of {slot} is {saved!r}, where the piece "
            f"begins with {start!r}. Go on with the recipe that the run was started with."
        )
    return _with_tuples(start, saved)


def _with_tuples(start: State, saved: Any) -> State:
    """The saved state with `()` again where a piece without a state has it; JSON made a list of it."""
    if isinstance(start, dict) and start:
        return {key: _with_tuples(start[key], value) for key, value in saved.items()}
    return () if start == () else saved


def _fits(start: State, saved: Any) -> bool:
    """Whether a state may have come from `start`: the same names and kinds; None and an empty dict or list are open."""
    if start == ():
        return saved in ([], ())
    if isinstance(start, dict):
        same = not start or (isinstance(saved, dict) and saved.keys() == start.keys())
        return isinstance(saved, dict) and same and all(_fits(start[key], saved[key]) for key in start)
    if isinstance(start, int | float):
        return isinstance(saved, int | float)
    return start is None or isinstance(saved, type(start))


def _plain(state: State, path: str) -> Any:
    if isinstance(state, dict) and all(isinstance(key, str) for key in state):
        return {key: _plain(value, f"{path}.{key}") for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [_plain(value, path) for value in state]
    if state is None or isinstance(state, str | bool | int | float):
        return state
    raise TutelageError(
        f"The state of {path} holds a {type(state).__name__}, which a checkpoint cannot keep. Let its piece remember "
        "numbers, texts, lists, and dicts with texts as keys."
    )


@dataclass(frozen=True, kw_only=True)
class Recipe(Choices):
    """An on-policy algorithm: a piece or a value for each slot. Raises TutelageError for choices that contradict each
    other."""

    def __post_init__(self) -> None:
        reason = refusal(self)
        if reason:
            raise TutelageError(reason)


def critic_only(recipe: Recipe, state: RecipeState) -> bool:
    """Whether this step belongs to the critic's warm-up, in which the policy stays where it is."""
    return recipe.critic is not None and state.step < recipe.critic.warmup


def prepare(
    recipe: Recipe,
    scored: ScoredRollout,
    state: RecipeState,
    *,
    greedy: ScoredRollout | None = None,
    max_length: int | None = None,
) -> tuple[Batch, RecipeState, dict[str, Scalar | float]]:
    """Compute shaped scores, rewards, Ψ and targets: everything that looks across rows.

    `scored` is the whole batch: where several processes sample, gather it first. The Ψ of completions that were given,
    not drawn, is 0: they teach by a divergence in the loss alone. `greedy` holds one greedy completion per prompt (see
    `needs_greedy`); `max_length` is the limit on completion tokens, for a shaping that measures against it. Returns the
    batch, the state with this batch in its running statistics, and the metrics:

    score/mean, score/std       the reward's own score
    score/shaped                mean of what is trained on
    kl/reference                KL(sampler‖reference), nats per completion, by k1; kl/reference_k3 the same by k3
    penalty/coef                price of a nat in this batch
    ended, length/mean          share of completions that ended by themselves; tokens per completion
    groups/dead                 share of prompts whose completions all got one shaped score (with samples > 1)
    advantage/mean, /std        of Ψ over tokens, before any importance weight
    value/explained_variance    of the critic's values against its targets; nan when the targets do not vary
    """
    context = Context(ids=scored.ids, max_length=max_length, score_norm=score_norm_bound(scored.logp))
    shaped, shaping = _shaped(recipe, scored, context, state.shaping)
    state = replace(state, shaping=shaping)
    metrics = _describe(scored, shaped, state)
    if greedy is not None and needs_greedy(recipe):
        of_greedy = Context(ids=greedy.ids, max_length=max_length, is_greedy=True)
        scores, _ = _shaped(recipe, greedy, of_greedy, state.shaping)
        context = replace(context, greedy=scores.repeat_interleave(scored.group))
    if scored.group > 1:
        live = _spread(shaped, scored.group)
        metrics["groups/dead"] = 1.0 - live.float().mean()
        if recipe.dynamic_sampling and live.any():
            scored, shaped, context = scored.rows(live), shaped[live], context.rows(live)

    reward = at_last_token(shaped, scored.mask)
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
    if scored.given is not None:  # a policy gradient is that of completions that were drawn
        psi = torch.where(scored.given[:, None], 0.0, psi)
    columns = {f.name: getattr(scored, f.name) for f in fields(ScoredRollout)}
    return Batch(**columns, advantage=psi, target=target), state, metrics


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

    `logp` and `entropy` are the policy's, Float[B, R], and so is `divergence` where `needs_divergence`; `weight` comes
    from `token_weights` over the whole step. The value adds up over any split of the rows.
    """
    surrogate = at_state(recipe.surrogate, state.surrogate)
    per_token = surrogate(logp, rows.logp, rows.advantage, rows.mask)
    if recipe.penalty and recipe.penalty.where == "loss":
        per_token = per_token - state.penalty_coef * _kl_in_the_loss(recipe.penalty, rows, logp, divergence)
    if needs_entropy(recipe):
        if entropy is None:
            raise ValueError(f"{recipe.name} has an entropy bonus, but no entropy was given.")
        per_token = per_token + at_step(recipe.entropy, state.step) * entropy
    return torch.where(rows.mask, weight * per_token, 0.0).sum()


def _kl_in_the_loss(penalty: Penalty, rows: Batch, logp: PerToken, divergence: PerToken | None) -> PerToken:
    if penalty.kind != EXACT:
        return kl_estimate(logp, rows.ref_logp, penalty.kind)
    if divergence is None:
        raise ValueError("penalty.kind=exact needs the divergence of every token, but none was given.")
    return divergence


def critic_loss(recipe: Recipe, rows: Batch, value: PerToken, weight: PerToken) -> Scalar:
    """The loss of the critic on these rows, to minimise with the weight `critic.coef`: Σ w · value loss.

    `value` are the critic's values now, Float[B, R]; `rows.value` are those at sampling time.
    """
    if recipe.critic is None or rows.value is None or rows.target is None:
        raise ValueError(f"{recipe.name} has nothing for a critic to fit.")
    loss = value_loss(value, rows.value, rows.target, recipe.critic.clip)
    return torch.where(rows.mask, weight * loss, 0.0).sum()


def clipped_tokens(recipe: Recipe, rows: Batch, logp: PerToken, state: RecipeState) -> TokenMask | None:
    """The tokens whose gradient the surrogate cuts or limits, Bool[B, R]; None for a surrogate that never does.

    `logp` is the policy's, Float[B, R].
    """
    surrogate = at_state(recipe.surrogate, state.surrogate)
    if not isinstance(surrogate, ClippingSurrogate):
        return None
    return surrogate.clipped(logp, rows.logp, rows.advantage, rows.mask)


def zero_gradient_rows(recipe: Recipe, rows: Batch, state: RecipeState) -> RowMask:
    """Rows whose gradient is 0 wherever the policy has moved, so that no forward pass need be spent on them. Bool[B]

    Such rows have an advantage of 0, under an objective without another term: a group whose completions all scored the
    same, for instance, where the KL is not in the loss.
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


def live_rows(
    recipe: Recipe, scored: ScoredRollout, state: RecipeState, *, max_length: int | None = None
) -> RowMask:
    """Rows whose prompt got different shaped scores, and so has something to teach (dynamic sampling). Bool[B]"""
    shaped, _ = _shaped(recipe, scored, Context(ids=scored.ids, max_length=max_length), state.shaping)
    return _spread(shaped, scored.group)


def kl_reference(scored: ScoredRollout) -> Scalar:
    """KL(sampler‖reference), estimated by k1: the mean over drawn completions of the sum over their tokens, in nats; 0
    where none was drawn. -> []"""
    return _per_response(scored, "k1")


def _per_response(scored: ScoredRollout, kind: str) -> Scalar:
    kl = kl_estimate(scored.logp, scored.ref_logp, kind)
    return masked_mean(torch.where(scored.mask, kl, 0.0).sum(-1), scored.drawn)


def _shaped(recipe: Recipe, scored: ScoredRollout, context: Context, state: State) -> tuple[PerRow, State]:
    """The scores that are trained on, Float[B], and the next state of the shaping."""
    length = scored.mask.sum(-1)
    return apply(recipe.shaping, scored.score, scored.terminated, length, context, state=state)


def _spread(shaped: PerRow, group: int) -> RowMask:
    scores = shaped.reshape(-1, group)
    return (scores.amax(1) - scores.amin(1) > 0).repeat_interleave(group)


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

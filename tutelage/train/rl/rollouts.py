"""Rows of an on-policy step: completions with rewards, log-probabilities and values."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tutelage.algorithms.recipe import Recipe, live_rows, needs_greedy
from tutelage.algorithms.recipe_state import RecipeState
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import Rollout, ScoredRollout, extended
from tutelage.core.reduce import masked_mean
from tutelage.data.records import Prompt
from tutelage.models.budget import Budget
from tutelage.rewards.reward import Completions, Reward, reward_name
from tutelage.rewards.scores import breakdown_of
from tutelage.rollout.generator import EncodedPrompt, Generator, concatenate, prompt_tokens
from tutelage.train.rl.batch_scores import (
    last_values,
    mismatch_metrics,
    score_rows,
    share_truncated,
    staleness_metrics,
    truncated_importance,
    value_rows,
)
from tutelage.train.rl.setup import PolicyModel, RolloutSettings, Setup

ENVIRONMENT = "environment"
"""Part of the score of episodes that their environment returned."""


@dataclass(frozen=True)
class ScoredCompletions:
    """Prompts with `rollout.group` completions each, row by row, and the reward of each completion. `parts` are the
    component scores of the reward by name."""

    prompts: tuple[EncodedPrompt, ...]
    rollout: Rollout
    score: Tensor  # Float[B]
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # Float[B] each

    @property
    def row_prompts(self) -> tuple[Prompt, ...]:
        return tuple(encoded.prompt for encoded in self.prompts for _ in range(self.rollout.group))

    @property
    def texts(self) -> tuple[str, ...]:
        return self.rollout.texts

    @property
    def completions(self) -> Completions:
        """Completions in the form that rewards take."""
        return completions_of(self.prompts, self.rollout)

    def scored(self) -> ScoredRollout:
        """The rollout with its scores, without reference log-probabilities and critic values."""
        return extended(self.rollout, ScoredRollout, score=self.score, ref_logp=self.rollout.logp)

    @property
    def has_scores(self) -> Tensor:
        """Prompts whose completions all have a score. Bool[P]"""
        return ~self.score.reshape(-1, self.rollout.group).isnan().any(1)

    def only(self, which: Tensor) -> "ScoredCompletions":
        """Completions of the selected prompts. Bool[P]"""
        rows = which.repeat_interleave(self.rollout.group)
        prompts = tuple(p for p, keep in zip(self.prompts, which.tolist(), strict=True) if keep)
        parts = {name: score[rows] for name, score in self.parts.items()}
        return ScoredCompletions(prompts, self.rollout.rows(rows), self.score[rows], parts)

    def part_metrics(self) -> dict[str, float]:
        """score/<part>/mean and score/<part>/std of each part of the reward, over the completions to which it applies,
        and, with several completions per prompt, score/<part>/dead: the fraction of prompts whose completions all have
        one score. A part that applies to none has no metrics."""
        metrics = {}
        for name, score in self.parts.items():
            scores = score[~score.isnan()]
            if not len(scores):
                continue
            metrics[f"score/{name}/mean"] = float(scores.mean())
            metrics[f"score/{name}/std"] = float(scores.std(correction=0))
            groups = score.reshape(-1, self.rollout.group)
            groups = groups[~groups.isnan().any(1)]
            if self.rollout.group > 1 and len(groups):
                metrics[f"score/{name}/dead"] = float((groups == groups[:, :1]).all(1).float().mean())
        return metrics


@dataclass(frozen=True)
class Collection:
    """Completions that a step trains on, the number of tokens sampled for them, and sampling metrics."""

    answers: ScoredCompletions
    tokens: int
    metrics: dict[str, float]


def completions_of(prompts: Sequence[EncodedPrompt], rollout: Rollout) -> Completions:
    """Completions of a rollout in the form that rewards take."""
    rows = [encoded.prompt for encoded in prompts for _ in range(rollout.group)]
    return Completions(rows, rollout.texts, rollout)


def complete(
    generator: Generator,
    prompts: Sequence[EncodedPrompt],
    n: int,
    sampling: config.Sampling,
    reward: Reward,
    *,
    seed: int,
    scored_first: frozenset[str] = frozenset(),
) -> ScoredCompletions:
    """Generate `n` completions of each prompt and score them. `scored_first`: see `PromptTokens`. The score of an
    episode is that of the reward and what its environment returned; the credit that the reward gives turns is added to
    the rewards of turns."""
    rollout = generator.generate(prompt_tokens(prompts, scored_first), n, sampling, seed=seed)
    scored = breakdown_of(reward, completions_of(prompts, rollout))
    if scored.credit is not None:
        paid = scored.credit.to(rollout.logp)
        rollout = replace(rollout, turn_reward=paid if rollout.turn_reward is None else rollout.turn_reward + paid)
    if rollout.outcome is None:
        return ScoredCompletions(tuple(prompts), rollout, scored.total, scored.parts)
    outcome = rollout.outcome.to(scored.total)
    return ScoredCompletions(tuple(prompts), rollout, scored.total + outcome, {**scored.parts, ENVIRONMENT: outcome})


def rollout_seed(seed: int, step: int) -> int:
    """Seed of the rollout of a step (counted from 0)."""
    return seed * 1_000_003 + step


def collect(
    generator: Generator,
    prompts: Callable[[int], Sequence[EncodedPrompt]],
    reward: Reward,
    recipe: Recipe,
    state: RecipeState,
    settings: RolloutSettings,
    *,
    step: int,
    total: int,
    scored_first: frozenset[str] = frozenset(),
) -> Collection:
    """Sample the completions of one step; dynamic sampling keeps only prompts with a learning signal.

    Prompts with a completion to which the reward does not apply (no score) are left out: the step is that of the other
    prompts. Raises TutelageError if there is no other.

    Dynamic sampling replaces prompts whose completions all have one shaped score, in up to `recipe.dynamic_sampling`
    rounds. The size of a round follows from the fraction of live prompts so far. Replacements are the prompts of steps
    beyond `total`. If no prompt is live, the first round with scores is kept.

    Metrics: sampling/unscored, the number of prompts left out for want of a score, if any; with dynamic sampling also
    sampling/rounds, and groups/dead, score/mean and score/std of all samples.
    """
    seed = rollout_seed(settings.seed, step)
    batch = prompts(step)
    first = complete(generator, batch, recipe.samples, settings.sampling, reward, seed=seed, scored_first=scored_first)
    if not recipe.dynamic_sampling:
        metrics = _unscored([first]) | episode_metrics([first.rollout])
        return Collection(_with_scores(first, reward), int(first.rollout.mask.sum()), metrics)
    rounds, live = [first], [_live(recipe, first, state, settings)]
    while (missing := len(batch) - _count(live)) > 0 and len(rounds) < recipe.dynamic_sampling:
        share = max(_count(live), 1) / sum(len(round.prompts) for round in rounds)
        fresh = prompts(step + len(rounds) * total)[: math.ceil(missing / share)]
        other = seed + (len(rounds) << 40)  # a repeated prompt should get other completions
        rounds.append(complete(generator, fresh, recipe.samples, settings.sampling, reward, seed=other))
        live.append(_live(recipe, rounds[-1], state, settings))
    useful = [round.only(which) for round, which in zip(rounds, live, strict=True) if which.any()]
    first = next((round for round in rounds if not round.score.isnan().all()), first)
    chosen = _joined(useful, len(batch)) if useful else _with_scores(first, reward)
    scores = torch.cat([round.score for round in rounds])
    scores = scores[~scores.isnan()]
    metrics = (
        _unscored(rounds)
        | episode_metrics([round.rollout for round in rounds])
        | {
            "sampling/rounds": float(len(rounds)),
            "groups/dead": 1.0 - float(torch.cat(live).float().mean()),
            "score/mean": float(scores.mean()),
            "score/std": float(scores.std(correction=0)),
        }
    )
    tokens = sum(int(round.rollout.mask.sum()) for round in rounds)
    return Collection(chosen, tokens, metrics)


def _live(recipe: Recipe, answers: ScoredCompletions, state: RecipeState, settings: RolloutSettings) -> Tensor:
    """Prompts whose completions have scores and differ in their shaped score. Bool[P]"""
    live = answers.has_scores
    if live.any():
        rows = live_rows(recipe, answers.only(live).scored(), state, max_length=settings.longest)
        live[live.clone()] = rows.reshape(-1, recipe.samples)[:, 0]
    return live


def _with_scores(answers: ScoredCompletions, reward: Reward) -> ScoredCompletions:
    """The prompts whose completions all have a score. Raises TutelageError without any."""
    which = answers.has_scores
    if not which.any():
        raise TutelageError(
            f"{_source(answers, reward)} does not apply to any prompt of a step (no score for "
            f"{counted(len(answers.prompts), 'prompt')}): nothing can be learnt from it. Add a reward that applies, or "
            "leave these prompts out."
        )
    return answers if which.all() else answers.only(which)


def _source(answers: ScoredCompletions, reward: Reward) -> str:
    """Name of what gave completions no score."""
    outcome = answers.rollout.outcome
    if outcome is not None and outcome.isnan().any():
        return "What the environment returned (None, or nothing after faults)"
    return f"The reward {reward_name(reward)}"


def _unscored(rounds: Sequence[ScoredCompletions]) -> dict[str, float]:
    missing = sum(int((~round.has_scores).sum()) for round in rounds)
    return {"sampling/unscored": float(missing)} if missing else {}


def episode_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """turns/mean and branches/mean of episodes, and turns/reward, the mean sum of the rewards of their turns. Empty for
    completions without an environment."""
    if rollouts[0].outcome is None:
        return {}
    episodes = sum(map(len, rollouts))
    turns = sum(map(_count_turns, rollouts))
    branches = sum(len(r.contexts) for r in rollouts)
    extra = sum(0.0 if r.turn_reward is None else float(r.turn_reward.sum()) for r in rollouts)
    metrics = {"turns/mean": turns / episodes, "branches/mean": branches / episodes}
    is_rounding = abs(extra) < 1e-5 * episodes  # of credit, which sums to 0
    return metrics | ({} if is_rounding else {"turns/reward": extra / episodes})


def _count_turns(rollout: Rollout) -> int:
    has_turn = rollout.mask.any(1)
    return int((has_turn if rollout.turn is None else (rollout.turn.amax(1) + 1) * has_turn).sum())


def _count(live: Sequence[Tensor]) -> int:
    return sum(int(which.sum()) for which in live)


def _joined(parts: Sequence[ScoredCompletions], wanted: int) -> ScoredCompletions:
    """Completions of the first `wanted` prompts of several rounds."""
    whole = ScoredCompletions(
        tuple(prompt for part in parts for prompt in part.prompts),
        concatenate([part.rollout for part in parts]),
        torch.cat([part.score for part in parts]),
        {name: torch.cat([part.parts[name] for part in parts]) for name in parts[0].parts},
    )
    return whole.only(torch.arange(len(whole.prompts), device=whole.score.device) < wanted)


def greedy_completions(
    generator: Generator, answers: ScoredCompletions, recipe: Recipe, settings: RolloutSettings, reward: Reward
) -> ScoredRollout | None:
    """Scored greedy completion of each prompt, for recipes with a greedy baseline; without a score after faults (see
    `without_lost`)."""
    if not needs_greedy(recipe):
        return None
    likeliest = replace(settings.sampling, temperature=0.0)
    greedy = complete(generator, answers.prompts, 1, likeliest, reward, seed=settings.seed)
    unscored = ~greedy.has_scores
    if (unscored & ~_is_lost(greedy.rollout)).any() or unscored.all():
        raise TutelageError(
            f"{_source(greedy, reward)} does not apply to a greedy completion (it has no score), which recipe "
            f"{recipe.name} compares with: use a recipe without a greedy baseline, or return a number."
        )
    return greedy.scored()


def without_lost(
    answers: ScoredCompletions, scored: ScoredRollout, greedy: ScoredRollout | None
) -> tuple[ScoredCompletions, ScoredRollout, ScoredRollout | None]:
    """The prompts whose greedy episode has an outcome."""
    if greedy is None or not (lost := _is_lost(greedy)).any():
        return answers, scored, greedy
    return answers.only(~lost), scored.rows((~lost).repeat_interleave(scored.group)), greedy.rows(~lost)


def _is_lost(rollout: Rollout) -> Tensor:
    """Episodes without an outcome. Bool[B]"""
    return torch.zeros_like(rollout.terminated) if rollout.outcome is None else rollout.outcome.isnan()


def score_references(
    policy: PolicyModel, answers: ScoredCompletions, *, temperature: float, budget: Budget
) -> ScoredRollout:
    """Completions with the log-probabilities of the reference."""
    with policy.reference():
        ref_logp = score_rows(policy, answers.rollout, temperature=temperature, budget=budget).logp
    return replace(answers.scored(), ref_logp=ref_logp)


@torch.no_grad()
def score_rollout(setup: Setup, answers: ScoredCompletions) -> tuple[ScoredRollout, dict[str, float]]:
    """Add reference log-probabilities, critic values and, if sampler and trainer differ, trainer log-probabilities.

    Metrics: entropy (nats per token, estimated by −log π of the sampled tokens, after truncation), those of
    `staleness_metrics` if rollouts may lag, those of `mismatch_metrics` if trainer log-probabilities were computed,
    sampler/truncated (fraction of tokens at the cap) with truncated importance sampling, and those named in
    `settings.logged_rewards`.
    """
    policy, critic, settings, rollout = setup.policy, setup.critic, setup.settings, answers.rollout
    temperature, budget = settings.sampling.temperature, settings.budget
    metrics = staleness_metrics(rollout, setup.learner.step) if settings.staleness else {}
    importance, value, logp = None, None, rollout.logp
    mismatch = setup.handles_mismatch
    if mismatch is not None:
        trainer = score_rows(policy, rollout, temperature=temperature, budget=budget, critic=critic)
        metrics |= mismatch_metrics(rollout.logp, trainer.logp, rollout.mask)
        logp, value = rollout.logp if mismatch == "none" else trainer.logp, trainer.value
    elif critic is not None:
        value = value_rows(policy, critic, rollout, budget)
    if mismatch == "truncated":
        importance = truncated_importance(rollout.logp, logp, rollout.mask, settings.mismatch_cap)
        metrics["sampler/truncated"] = share_truncated(importance, rollout.mask, settings.mismatch_cap)
    scored, last = answers.scored(), None
    if critic is not None and setup.recipe.critic is not None and setup.recipe.critic.bootstrap:
        last = last_values(policy, critic, rollout, budget)
    if settings.teacher is not None:
        scored = replace(scored, ref_logp=settings.teacher(rollout))
    elif settings.reference:
        scored = score_references(policy, answers, temperature=temperature, budget=budget)
    for name, other in settings.logged_rewards.items():
        logged = breakdown_of(other, answers.completions).total
        metrics |= {} if logged.isnan().all() else {name: float(logged.nanmean())}
    metrics["entropy"] = -float(masked_mean(logp, rollout.mask & rollout.drawn[:, None]))
    return replace(scored, logp=logp, value=value, last_value=last, importance=importance), metrics

"""Where the rows of an on-policy step come from: answers sampled and scored, and what the models say about them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tutelage import config
from tutelage.algorithms.recipe import Recipe, RecipeState, live_rows, needs_greedy
from tutelage.core.batch import Rollout, Scored
from tutelage.data.chat import pad_token_id
from tutelage.data.records import Prompt
from tutelage.engines.sampling import PromptTokens, answers, concatenate
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.completions import Completions
from tutelage.rewards.reward import Reward
from tutelage.rewards.scores import scores_of
from tutelage.train.rl.actor import Actor
from tutelage.train.rl.mismatch import Mismatch, apart, share_truncated, truncated_importance


@dataclass(frozen=True)
class Question:
    """A prompt as text and as tokens."""

    prompt: Prompt
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Rules:
    """The settings of `improve` that are not the recipe's."""

    sampling: config.Sampling
    budget: int | Budget
    seed: int
    mismatch: Mismatch | None = None
    """What is done where sampler and trainer disagree; None where they cannot, and nothing is computed to find out."""
    mismatch_cap: float = 2.0
    """C of truncated importance sampling."""
    reference: bool = True
    """Ask the reference. A recipe without a penalty needs it only for the metric kl/reference, which is 0 without."""
    watch: Mapping[str, Reward] = field(default_factory=dict)
    """Further scores to log, by metric name; nothing is trained on them."""


@dataclass(frozen=True)
class Answered:
    """Questions with `rollout.group` answers each, row by row, and the reward's score of each answer."""

    questions: tuple[Question, ...]
    rollout: Rollout
    texts: tuple[str, ...]
    score: Tensor  # Float[B]

    @property
    def prompts(self) -> list[Prompt]:
        """The prompt of each row."""
        return [question.prompt for question in self.questions for _ in range(self.rollout.group)]

    @property
    def completions(self) -> Completions:
        """The answers as rewards take them."""
        return Completions(self.prompts, self.texts, self.rollout)

    def scored(self) -> Scored:
        """As far as the recipe can judge it before the reference and the critic were asked."""
        known = {name: getattr(self.rollout, name) for name in Rollout.__dataclass_fields__}
        return Scored(**known, score=self.score, ref_logp=self.rollout.logp)

    def only(self, which: Tensor) -> "Answered":
        """Some of the questions. Bool[P]"""
        rows = which.repeat_interleave(self.rollout.group)
        kept = rows.tolist()
        return Answered(
            tuple(q for q, keep in zip(self.questions, which.tolist(), strict=True) if keep),
            self.rollout.rows(rows),
            tuple(text for text, keep in zip(self.texts, kept, strict=True) if keep),
            self.score[rows],
        )


def ask(
    policy: Policy,
    questions: Sequence[Question],
    n: int,
    sampling: config.Sampling,
    reward: Reward,
    *,
    seed: int,
    on_policy: bool = False,
) -> Answered:
    """Sample `n` answers to each question and score them. What the policy's layers compute is left in `keep`."""
    tokens = PromptTokens(tuple(q.tokens for q in questions), tuple(q.prompt.id for q in questions))
    rollout = policy.generate(tokens, n, sampling, seed=seed, on_policy=on_policy)
    texts = tuple(answers(policy, rollout))
    prompts = [question.prompt for question in questions for _ in range(n)]
    score = scores_of(reward, Completions(prompts, texts, rollout))
    return Answered(tuple(questions), rollout, texts, score)


def collect(
    policy: Policy,
    questions: Callable[[int], Sequence[Question]],
    reward: Reward,
    recipe: Recipe,
    state: RecipeState,
    rules: Rules,
    step: int,
    total: int,
    on_policy: bool = False,
) -> tuple[Answered, dict[str, float]]:
    """The answers of one step: those to `questions(step)`, and with dynamic sampling only to questions that teach.

    Then questions whose answers all got one shaped score are replaced by fresh ones, in up to
    `recipe.dynamic_sampling` rounds, each asking as many as should do by the share that was live so far. The fresh ones
    are those of steps beyond `total`. When no question is live the first round is kept. What the policy's layers
    compute is left in `keep`, where no answers are replaced.

    Metrics: tokens/sampled, in all rounds; with dynamic sampling also sampling/rounds, and groups/dead, score/mean and
    score/std of all that was sampled.
    """
    seed = rules.seed * 1_000_003 + step
    asked = questions(step)
    on_policy = on_policy and not recipe.dynamic_sampling
    first = ask(policy, asked, recipe.samples, rules.sampling, reward, seed=seed, on_policy=on_policy)
    if not recipe.dynamic_sampling:
        return first, {"tokens/sampled": float(first.rollout.mask.sum())}
    wanted, rounds = len(asked), [first]
    live = [_live(recipe, first, state, rules)]
    while (missing := wanted - _count(live)) > 0 and len(rounds) < recipe.dynamic_sampling:
        share = max(_count(live), 1) / sum(len(round.questions) for round in rounds)
        fresh = questions(step + len(rounds) * total)[: math.ceil(missing / share)]
        other = seed + (len(rounds) << 40)  # a question may come again, and should not get the same answers
        rounds.append(ask(policy, fresh, recipe.samples, rules.sampling, reward, seed=other))
        live.append(_live(recipe, rounds[-1], state, rules))
    scores = torch.cat([round.score for round in rounds])
    metrics = {
        "tokens/sampled": float(sum(int(round.rollout.mask.sum()) for round in rounds)),
        "sampling/rounds": float(len(rounds)),
        "groups/dead": 1.0 - float(torch.cat(live).float().mean()),
        "score/mean": float(scores.mean()),
        "score/std": float(scores.std(correction=0)),
    }
    kept = [round.only(which) for round, which in zip(rounds, live, strict=True) if which.any()]
    return (_joined(kept, wanted, policy) if kept else first), metrics


def _live(recipe: Recipe, answered: Answered, state: RecipeState, rules: Rules) -> Tensor:
    """Which questions have answers that differ in their shaped score. Bool[P]"""
    rows = live_rows(recipe, answered.scored(), state, max_length=rules.sampling.max_new_tokens)
    return rows.reshape(-1, recipe.samples)[:, 0]


def _count(live: Sequence[Tensor]) -> int:
    return sum(int(which.sum()) for which in live)


def _joined(parts: Sequence[Answered], wanted: int, policy: Policy) -> Answered:
    """The first `wanted` questions of several rounds."""
    whole = Answered(
        tuple(question for part in parts for question in part.questions),
        concatenate([part.rollout for part in parts], pad_token_id(policy.tokenizer)),
        tuple(text for part in parts for text in part.texts),
        torch.cat([part.score for part in parts]),
    )
    return whole.only(torch.arange(len(whole.questions), device=whole.score.device) < wanted)


def greedy_answers(
    policy: Policy, answered: Answered, recipe: Recipe, rules: Rules, reward: Reward
) -> Scored | None:
    """The scored greedy answer to each question, for recipes that measure against it."""
    if not needs_greedy(recipe):
        return None
    likeliest = replace(rules.sampling, temperature=0.0)
    return ask(policy, answered.questions, 1, likeliest, reward, seed=rules.seed).scored()


@torch.no_grad()
def judged(actor: Actor, answered: Answered, rules: Rules) -> tuple[Scored, dict[str, float]]:
    """Ask the reference and the critic about what was sampled, and the trainer where it may differ from the sampler.

    Metrics: entropy (nats per token, estimated by −log π of the sampled tokens, after truncation), those of
    `mismatch.apart` where the trainer's log-probabilities were computed, with truncated importance sampling also
    sampler/truncated (the share of tokens at the cap), and whatever `rules.watch` names.
    """
    temperature, rollout = rules.sampling.temperature, answered.rollout
    budget = Budget.of(rules.budget)
    metrics: dict[str, float] = {}
    importance, logp = None, rollout.logp
    if rules.mismatch is None:
        value = None if actor.critic is None else actor.values_of_all(rollout, budget=budget)
    else:
        trainer, value = actor.scores_of_all(rollout, temperature=temperature, budget=budget)
        metrics |= apart(rollout.logp, trainer, rollout.mask)
        if rules.mismatch in ("recompute", "truncated"):
            logp = trainer
    if rules.mismatch == "truncated":
        importance = truncated_importance(rollout.logp, logp, rollout.mask, rules.mismatch_cap)
        metrics["sampler/truncated"] = share_truncated(importance, rollout.mask, rules.mismatch_cap)
    ref_logp = rollout.logp
    if rules.reference:
        with actor.policy.reference():
            bare = Actor(actor.policy)
            ref_logp, _ = bare.scores_of_all(rollout, temperature=temperature, budget=budget)
    scored = replace(answered.scored(), logp=logp, ref_logp=ref_logp, value=value, importance=importance)
    completions = answered.completions
    for name, other in rules.watch.items():
        metrics[name] = float(scores_of(other, completions).mean())
    tokens = rollout.mask.sum().clamp(min=1)
    metrics["entropy"] = -float((scored.logp * rollout.mask).sum() / tokens)
    return scored, metrics

"""The tabular language as a policy, a generator and a reward, so that `improve` itself can be run on it.

The state before a token is the pair of the prompt and what has been written, as a one-hot vector h. The logits are
Wᵀh, with W the table [P · 3, 3], and a linear critic on h is a table of values. Everything is float64.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace

import torch
from tabular import ENDED, LIMIT, SENTENCES, STATES, WORDS, mask_of, probability, states_of, token_logp
from torch import Tensor, nn

from tutelage.algorithms.recipe import Recipe
from tutelage.base import config
from tutelage.core.batch import Rollout, Rows, TokenScores
from tutelage.core.kl import exact_divergence
from tutelage.core.rows import by_tokens, spread
from tutelage.data.records import Prompt, user
from tutelage.models.budget import Budget
from tutelage.rewards.reward import Completion, Reward
from tutelage.rollout.generator import EncodedPrompt, Generator, PromptTokens, prompt_tokens
from tutelage.rollout.prefetch import AheadGenerator, RolloutRequest
from tutelage.train.learner import Learner, Step
from tutelage.train.rl.critic import TrunkCritic
from tutelage.train.rl.improve import improve
from tutelage.train.rl.rollouts import rollout_seed
from tutelage.train.rl.setup import Mismatch, RolloutSettings

PRETRAINING = SENTENCES[torch.tensor([4, 4, 1])]
"""Sentences whose likelihood the PPO-ptx stream raises."""
LARGE = 1e6
"""An ε of AdamW far above every gradient: with β₁ = 0 its step is then the plain gradient, times lr / ε."""


class TabularPolicy:
    """A policy whose only parameter is the table Float[P, 3, 3]; the table it began with is its reference."""

    dtype = torch.float64
    is_exact = True
    vocabulary = WORDS
    context = 1 + LIMIT + 1
    """Tokens of a prompt and a sentence, and one more, for the value after the last word."""

    def __init__(self, table: Tensor) -> None:
        self.table = nn.Parameter(table.clone())
        self._reference, self._answering = table.clone(), self.table

    def parameters(self) -> list[nn.Parameter]:
        return [self.table]

    def states(self, rows: Rows) -> Tensor:
        contexts = rows.contexts
        state = contexts.prompt[:, -1:] * STATES + states_of(contexts.response)
        return nn.functional.one_hot(state, len(self.table) * STATES)[rows.places].double()

    def logits(self, rows: Rows, *, temperature: float) -> Tensor:
        return self.states(rows) @ self._answering.reshape(-1, WORDS) / temperature

    def scores(
        self,
        rows: Rows,
        *,
        temperature: float,
        entropy: bool = False,
        value_head: Callable[[Tensor], Tensor] | None = None,
        divergence: float | None = None,
    ) -> TokenScores:
        logits = self.logits(rows, temperature=temperature)
        logp = logits.log_softmax(-1)
        own = logp.gather(-1, rows.response[rows.mask, None]).squeeze(-1)
        values = None if value_head is None else value_head(self.states(rows)).squeeze(-1)
        return TokenScores(
            spread(own, rows.mask),
            entropy=spread(-(logp.exp() * logp).sum(-1), rows.mask) if entropy else None,
            value=None if values is None else spread(values, rows.mask),
            divergence=None
            if divergence is None
            else spread(self._divergence(rows, logits, temperature, divergence), rows.mask),
        )

    def _divergence(self, rows: Rows, logits: Tensor, temperature: float, mixture: float) -> Tensor:
        with self.reference():
            there = self.logits(rows, temperature=temperature)
        return exact_divergence(logits, there, mixture)

    @contextmanager
    def reference(self) -> Iterator[None]:
        self._answering = self._reference
        with torch.no_grad():
            yield
        self._answering = self.table

    def split(self, batch: Rows, tokens: int) -> Iterator[Tensor]:
        return by_tokens(batch.lengths(), tokens)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def total_norm(self, gradients: Iterable[Tensor]) -> Tensor:
        return nn.utils.get_total_norm(gradients)

    def metrics(self) -> dict[str, float]:
        return {}


class AtOnce(Executor):
    """Computes what is submitted before it goes on, so that rollouts ahead are as old as they may be."""

    def submit(self, function, /, *args, **more):  # type: ignore[no-untyped-def]
        done: Future[object] = Future()
        done.set_result(function(*args, **more))
        return done


class TabularGenerator:
    """Draws whole sentences by their probabilities; with `turns`, every token is a turn."""

    def __init__(self, policy: TabularPolicy, *, turns: bool = False) -> None:
        self.policy, self.version, self.turns = policy, 0, turns

    def sync(self, version: int) -> None:
        self.version = version

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        table = self.policy.table.detach()
        prompt = torch.tensor([tokens[-1] for tokens in prompts.tokens])
        if sampling.temperature == 0:
            choice = _likeliest(table)[prompt].repeat_interleave(n)
        else:
            chances = torch.stack([probability(table[p : p + 1]) for p in range(len(table))])
            generator = torch.Generator().manual_seed(seed)
            choice = torch.multinomial(chances[prompt], n, replacement=True, generator=generator).reshape(-1)
        prompt, response = prompt.repeat_interleave(n), SENTENCES[choice]
        return Rollout(
            prompt=prompt[:, None],
            prompt_mask=torch.ones(len(prompt), 1, dtype=torch.bool),
            response=response,
            mask=mask_of(response),
            logp=token_logp(table, response, prompt),
            terminated=ENDED[choice],
            truncated=~ENDED[choice],
            group=n,
            ids=tuple(name for name in prompts.ids for _ in range(n)),
            texts=tuple(str(number) for number in choice.tolist()),
            version=torch.full_like(response, self.version),
            turn=torch.arange(LIMIT).expand_as(response) if self.turns else None,
        )


def _likeliest(table: Tensor) -> Tensor:
    """The number of the sentence of likeliest words, for each prompt. Int[P]"""
    first = table[:, 0].argmax(-1)
    second = table[torch.arange(len(table)), first].argmax(-1)
    greedy = torch.stack((first, torch.where(first > 0, second, 0)), 1)
    return (SENTENCES[None] == greedy[:, None]).all(-1).long().argmax(1)


def prompts_of(count: int, distinct: int) -> list[EncodedPrompt]:
    """Prompt i is the token i % distinct."""
    return [EncodedPrompt(Prompt(f"p{i}", user(str(i % distinct))), (i % distinct,)) for i in range(count)]


def reward_of(score: Tensor) -> Reward:
    """The reward that gives sentence s to prompt p the score Float[P, 7] at [p, s]."""

    def reward(completions: Sequence[Completion]) -> Tensor:
        places = [(int(one.messages[-1].content), int(one.answer)) for one in completions]
        return score[tuple(torch.tensor(places).T)]

    return reward


def text_loss(policy: TabularPolicy, coef: float) -> Callable[[int, Budget], Tensor]:
    """The PPO-ptx stream: the negative log-likelihood of the pretraining sentences after prompt 0."""

    def mix(step: int, budget: Budget) -> Tensor:
        loss = -token_logp(policy.table, PRETRAINING).sum() / len(PRETRAINING)
        if torch.is_grad_enabled():
            policy.backward(coef * loss)
        return loss.detach()

    return mix


def improved(
    recipe: Recipe,
    start: Tensor,
    score: Tensor,
    *,
    steps: int,
    prompts: int = 8,
    rate: float = 0.5,
    critic_rate: float = 5.0,
    seed: int = 0,
    staleness: int = 0,
    mismatch: Mismatch | None = None,
    turns: bool = False,
    watch: Callable[[TabularPolicy], None] = lambda policy: None,
) -> tuple[TabularPolicy, TrunkCritic]:
    """The policy and the critic after some steps of `improve` by plain gradient ascent, from the table `start`.

    With `staleness` every rollout is drawn so many steps before it is learnt from; with `turns` every token is a turn.
    `watch` sees the policy after each step.
    """
    policy = TabularPolicy(start)
    critic = TrunkCritic(policy, nn.Linear(policy.table[..., 0].numel(), 1, bias=False))
    nn.init.zeros_(critic.head.weight)
    optimiser = config.Optimiser(
        lr=rate * LARGE, eps=LARGE, betas=(0.0, 0.9), max_norm=LARGE, warmup=0, schedule="constant"
    )
    groups = {"policy": policy.parameters(), "critic": critic.parameters()}
    learner = Learner(groups, optimiser, steps, policy.total_norm, critic=critic_rate * LARGE)
    settings = RolloutSettings(
        config.Sampling(temperature=1.0, max_new_tokens=LIMIT),
        Budget(1024),
        seed,
        staleness=staleness,
        mismatch=mismatch,
    )
    if recipe.ptx:
        settings = replace(settings, mix=text_loss(policy, recipe.ptx))
    batch = prompts_of(prompts, len(start))
    generator: Generator = TabularGenerator(policy, turns=turns)

    def plan(step: int) -> RolloutRequest:
        return RolloutRequest(prompt_tokens(batch), recipe.samples, settings.sampling, rollout_seed(seed, step))

    if staleness:
        generator = AheadGenerator(generator, plan, staleness=staleness, total=steps, executor=AtOnce())
    loop: Iterator[Step] = improve(
        policy,
        generator,
        lambda step: batch,
        reward_of(score),
        recipe,
        learner,
        settings,
        critic=critic if recipe.critic is not None else None,
    )
    for _ in loop:
        watch(policy)
    return policy, critic

"""Rollouts that mix sampled completions with those of a data set, for distillation.

    L = λ E[D over the student's own samples] + (1 − λ) E[D over the data set]         (GKD, arXiv 2306.13649)

The fraction of sampled completions is λ over a run, and as close to it as whole prompts allow in every step. GKD
chooses one kind per batch at random, which has the same mean and a higher variance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.data.chat_tokens import pad_token_id
from tutelage.engines.interface import PromptTokens
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rollout.generator import Generator, SampledCompletion, assemble, concatenate
from tutelage.train.rl.batch_scores import score_rows


@dataclass(frozen=True)
class OfflineCompletion:
    """Completion as token ids and text. `terminated` is false if it was truncated at the limit."""

    tokens: tuple[int, ...]
    text: str
    terminated: bool


class OfflineMixture:
    """Generator that samples a fraction `drawn` of the completions with `generator` and takes the others, by prompt id,
    from `offline`, with log-probabilities of the current policy.

    One completion per prompt.
    """

    def __init__(
        self,
        generator: Generator,
        offline: Mapping[str, OfflineCompletion],
        drawn: float,
        policy: Policy,
        budget: Budget,
    ) -> None:
        self.generator, self.offline, self.drawn = generator, offline, drawn
        self.policy, self.budget = policy, budget
        self.version = 0

    def sync(self, version: int) -> None:
        self.version = version
        if self.drawn:
            self.generator.sync(version)

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """See `Generator.generate`. Completions of the first prompts are sampled."""
        if n != 1:
            raise ValueError(f"a prompt has one given response, and {n} were requested")
        count = drawn_prompts(self.drawn, len(prompts.tokens), self.version)
        parts = []
        if count:
            parts.append(self.generator.generate(prompts.at(range(count)), 1, sampling, seed=seed))
        if count < len(prompts.tokens):
            rest = prompts.at(range(count, len(prompts.tokens)))
            parts.append(self._given(rest, sampling.temperature))
        return concatenate(parts) if len(parts) > 1 else parts[0]

    def _given(self, prompts: PromptTokens, temperature: float) -> Rollout:
        responses = []
        for name in prompts.ids:
            own, count = self.offline[name], len(self.offline[name].tokens)
            unknown, versions = (0.0,) * count, (self.version,) * count
            responses.append(SampledCompletion(own.tokens, unknown, own.terminated, own.text, versions))
        pad = pad_token_id(self.policy.tokenizer)
        rollout = assemble(prompts, responses, pad=pad, device=self.policy.device)
        logp = score_rows(self.policy, rollout, temperature=temperature, budget=self.budget).logp
        return replace(rollout, logp=logp, given=torch.ones_like(rollout.terminated))


def drawn_prompts(share: float, prompts: int, step: int) -> int:
    """Number of prompts of a step (counted from 0) with sampled completions: ⌊(step + 1) λ P⌋ − ⌊step λ P⌋."""
    each = round(share * prompts, 9)  # .3 · 10 is 3 despite its binary form
    return int((step + 1) * each) - int(step * each)

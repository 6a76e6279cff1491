"""Rollouts in which a share of the prompts is answered by responses that were given, for distillation.

    L = λ E[D over the student's own samples] + (1 − λ) E[D over given responses]         (GKD, arXiv 2306.13649)

The share of drawn responses is λ over the steps of a run, and as near to it as whole prompts allow in every step, where
GKD draws whole batches of one kind or the other by chance: the mean is the same, and its variance is lower.
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
    """A response as token ids and text. `terminated` is false where it was cut at the limit."""

    tokens: tuple[int, ...]
    text: str
    terminated: bool


class OfflineMixture:
    """A generator that draws the responses to a share `drawn` of the prompts by `generator`, and takes those to the
    others from `given`, by the prompt's id, with the log-probabilities of the policy as it is.

    One response to each prompt.
    """

    def __init__(
        self,
        generator: Generator,
        given: Mapping[str, OfflineCompletion],
        drawn: float,
        policy: Policy,
        budget: Budget,
    ) -> None:
        self.generator, self.given, self.drawn = generator, given, drawn
        self.policy, self.budget = policy, budget
        self.version = 0

    def sync(self, version: int) -> None:
        """See `Generator.sync`."""
        self.version = version
        if self.drawn:
            self.generator.sync(version)

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
    ) -> Rollout:
        """See `Generator.generate`. The first prompts get the drawn responses."""
        if n != 1:
            raise ValueError(f"a prompt has one given response, and {n} were asked for")
        count = drawn_prompts(self.drawn, len(prompts.tokens), self.version)
        parts = []
        if count:
            first = PromptTokens(prompts.tokens[:count], prompts.ids[:count])
            parts.append(self.generator.generate(first, 1, sampling, seed=seed, scored_first=scored_first))
        if count < len(prompts.tokens):
            rest = PromptTokens(prompts.tokens[count:], prompts.ids[count:])
            parts.append(self._given(rest, sampling.temperature))
        return concatenate(parts) if len(parts) > 1 else parts[0]

    def _given(self, prompts: PromptTokens, temperature: float) -> Rollout:
        responses = []
        for name in prompts.ids:
            own, count = self.given[name], len(self.given[name].tokens)
            unknown, versions = (0.0,) * count, (self.version,) * count
            responses.append(SampledCompletion(own.tokens, unknown, own.terminated, own.text, versions))
        pad = pad_token_id(self.policy.tokenizer)
        rollout = assemble(prompts, responses, pad=pad, device=self.policy.device)
        logp = score_rows(self.policy, rollout, temperature=temperature, budget=self.budget).logp
        return replace(rollout, logp=logp, given=torch.ones_like(rollout.terminated))


def drawn_prompts(share: float, prompts: int, step: int) -> int:
    """How many of the prompts of a step, counted from 0, are answered by the policy: ⌊(step + 1) λ P⌋ − ⌊step λ P⌋."""
    each = round(share * prompts, 9)  # .3 · 10 is 3, whatever its binary form
    return int((step + 1) * each) - int(step * each)

"""Completions of prompts as records, for human feedback, evaluation and chat."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout
from tutelage.data.records import CompletionRecord, Prompt, stable_id
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Completions
from tutelage.rollout.generator import Generator, encode_prompts, prompt_tokens
from tutelage.rollout.local import LocalGenerator


@dataclass(frozen=True)
class SampledBatch:
    """Prompts, repeated once per sample, with the tokens and texts of their completions, row by row."""

    prompts: tuple[Prompt, ...]
    rollout: Rollout

    @property
    def texts(self) -> tuple[str, ...]:
        """Text of each completion."""
        return self.rollout.texts

    @property
    def completions(self) -> Completions:
        """Completions in the form that rewards take."""
        return Completions(self.prompts, self.texts, self.rollout)


def sample_completions(
    policy: Policy,
    prompts: Sequence[Prompt],
    n: int,
    sampling: config.Sampling,
    *,
    seed: int,
    generator: Generator | None = None,
) -> SampledBatch:
    """Sample `n` completions of each prompt, from `generator` if given, otherwise from the policy.

    Raises TutelageError if a prompt leaves no room for a completion."""
    if not prompts:
        raise TutelageError("There is no prompt to answer.")
    encoded = prompt_tokens(encode_prompts(prompts, policy.tokenizer))
    rollout = (generator or LocalGenerator(policy)).generate(encoded, n, sampling, seed=seed)
    return SampledBatch(tuple(prompt for prompt in prompts for _ in range(n)), rollout)


def records_of(answered: SampledBatch, sampler: str, sampling: config.Sampling) -> list[CompletionRecord]:
    """Completions as records. Ids depend on the sampler, the prompt, the sample's number and the text."""
    settings = " ".join(f"{name}={value}" for name, value in asdict(sampling).items())
    group = answered.rollout.group
    return [
        CompletionRecord(
            id=stable_id(sampler, prompt.id, str(row % group), text),
            prompt_id=prompt.id,
            text=text,
            sampler=sampler,
            sampling=settings,
            finished=bool(answered.rollout.terminated[row]),
        )
        for row, (prompt, text) in enumerate(zip(answered.prompts, answered.texts, strict=True))
    ]

"""Completions of prompts as records, for human feedback, evaluation and chat."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout
from tutelage.data.records import CompletionRecord, Messages, Prompt, stable_id
from tutelage.data.traces import split_trace
from tutelage.data.transcripts import split_episode, transcript_text
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


def episode_records(
    played: Mapping[str, SampledBatch], sampling: config.Sampling
) -> tuple[tuple[Prompt, ...], dict[str, list[CompletionRecord]]]:
    """Prompts, and the episodes of each sampler as records, whose steps are the turns. Episodes that are lost to faults
    are left out.

    The messages before the first turn are those of the prompt: where the environment changes or adds some, each such
    beginning is a prompt of its own, with an id of its own.
    """
    episodes = []
    for sampler, batch in played.items():
        rollout = batch.rollout
        ended = rollout.terminated.tolist()
        cut = [False] * len(rollout) if rollout.truncated is None else rollout.truncated.tolist()
        for row, (prompt, said) in enumerate(zip(batch.prompts, rollout.transcripts, strict=True)):
            if ended[row] or cut[row]:
                begun, turns = split_episode(said, prompt.messages)
                episodes.append((sampler, prompt, begun, row % rollout.group, turns, ended[row]))
    asked: dict[tuple[str, Messages], Prompt] = {}
    for _, prompt, begun, *_ in episodes:
        name = prompt.id if begun == prompt.messages else stable_id(prompt.id, repr(begun))
        asked[prompt.id, begun] = replace(prompt, id=name, messages=begun)
    records: dict[str, list[CompletionRecord]] = {sampler: [] for sampler in played}
    for sampler, prompt, begun, number, turns, end in episodes:
        own, text = asked[prompt.id, begun], transcript_text(turns)
        key = stable_id(sampler, own.id, str(number), text)
        steps = split_trace(turns)[1]
        records[sampler].append(CompletionRecord(key, own.id, text, sampler, _described(sampling), end, steps))
    return tuple(asked.values()), records


def _described(sampling: config.Sampling) -> str:
    return " ".join(f"{name}={value}" for name, value in asdict(sampling).items())


def records_of(answered: SampledBatch, sampler: str, sampling: config.Sampling) -> list[CompletionRecord]:
    """Completions as records. Ids depend on the sampler, the prompt, the sample's number and the text."""
    settings = _described(sampling)
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

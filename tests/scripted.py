"""Completions by a script: rollouts and conversations without a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.data.records import Messages
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.generator import SampledCompletion, assemble
from tutelage.rollout.samplers import EndpointReply


@dataclass(frozen=True)
class ScriptedGenerator:
    """`script(prompt, number)` returns the completion with this number (counted from 0), both as token ids.

    A completion ends with its first token among `end_ids`, or is truncated at the limit. A script is deterministic,
    so every token has log-probability 0. `decode` turns the tokens before the end into text.
    """

    script: Callable[[tuple[int, ...], int], Sequence[int]]
    end_ids: frozenset[int]
    decode: Callable[[Sequence[int]], str] = lambda tokens: " ".join(map(str, tokens))
    pad: int = 0

    def sync(self, version: int) -> None:
        """Do nothing: a script has no weights."""

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """`n` completions of each prompt; of the settings only the token limit applies."""
        limit = sampling.max_new_tokens
        numbered = ((prompt, number) for prompt in prompts.tokens for number in range(n))
        return assemble(prompts, [self._response(p, number, limit) for p, number in numbered], pad=self.pad)

    def _response(self, prompt: tuple[int, ...], number: int, limit: int) -> SampledCompletion:
        tokens = tuple(self.script(prompt, number))[:limit]
        end = next((place for place, token in enumerate(tokens) if token in self.end_ids), None)
        tokens = tokens if end is None else tokens[: end + 1]
        text = self.decode(tokens if end is None else tokens[:end])
        return SampledCompletion(tokens, (0.0,) * len(tokens), end is not None, text)


@dataclass(frozen=True)
class ScriptedSampler:
    """`script(messages, number)` returns the reply with this number (counted from 0)."""

    script: Callable[[Messages, int], str]
    name: str = "script"

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[EndpointReply]]:
        """The replies; sampling settings and seed are ignored."""
        return [[EndpointReply(self.script(messages, number)) for number in range(n)] for messages in conversations]

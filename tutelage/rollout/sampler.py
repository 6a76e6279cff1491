"""Samplers: they answer conversations where only the text of the answers is wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tutelage.base import config
from tutelage.data.chat_endpoint import EndpointReply
from tutelage.data.records import Messages, Prompt, prompt_id
from tutelage.rollout.generator import Generator
from tutelage.rollout.prompts import encode_prompts, prompt_tokens

__all__ = ["EndpointReply", "GeneratorSampler", "Sampler"]


class Sampler(Protocol):
    """Conversations → n replies to each, in their order. `name` says who answers.

    The same seed gives the same replies where what stands behind it can promise that.
    """

    @property
    def name(self) -> str: ...

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[EndpointReply]]: ...


@dataclass(frozen=True)
class GeneratorSampler:
    """A generator as a sampler: conversations are encoded by `tokenizer`, the generator's own."""

    generator: Generator
    tokenizer: Any
    name: str

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[EndpointReply]]:
        """Raises TutelageError when a conversation leaves no room for an answer."""
        if not conversations:
            return []
        prompts = [Prompt(prompt_id(messages), messages) for messages in conversations]
        encoded = prompt_tokens(encode_prompts(prompts, self.tokenizer))
        rollout = self.generator.generate(encoded, n, sampling, seed=seed)
        rows = zip(rollout.texts, rollout.terminated.tolist(), strict=True)
        replies = [EndpointReply(text, ended) for text, ended in rows]
        return [replies[start : start + n] for start in range(0, len(replies), n)]

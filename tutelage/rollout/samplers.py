"""Samplers: generate replies to conversations as text only."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from tutelage.base import config
from tutelage.base.progress.phases import phase
from tutelage.data.chat_endpoint import Endpoint, EndpointReply
from tutelage.data.records import Messages, Prompt, prompt_id
from tutelage.rollout.generator import Generator, encode_prompts, prompt_tokens

__all__ = ["EndpointReply", "GeneratorSampler", "Sampler"]


class Sampler(Protocol):
    """Conversations → n replies each, in order. `name` identifies the sampler.

    As far as the backend allows, the same seed gives the same replies.
    """

    @property
    def name(self) -> str: ...

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[EndpointReply]]: ...


@dataclass(frozen=True)
class GeneratorSampler:
    """Generator as a sampler: encodes conversations with `tokenizer`, the generator's own."""

    generator: Generator
    tokenizer: Any
    name: str

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[EndpointReply]]:
        """Raises TutelageError if a conversation leaves no room for a reply."""
        if not conversations:
            return []
        prompts = [Prompt(prompt_id(messages), messages) for messages in conversations]
        encoded = prompt_tokens(encode_prompts(prompts, self.tokenizer))
        rollout = self.generator.generate(encoded, n, sampling, seed=seed)
        rows = zip(rollout.texts, rollout.terminated.tolist(), strict=True)
        replies = [EndpointReply(text, ended) for text, ended in rows]
        return [replies[start : start + n] for start in range(0, len(replies), n)]


STREAMS_APART = 1_000_003
"""Seed offset between conversations, so that equal questions get different replies."""


@dataclass(frozen=True)
class HttpSampler:
    """Endpoint as a sampler, with up to `at_once` concurrent requests."""

    endpoint: Endpoint
    at_once: int = 8

    @property
    def name(self) -> str:
        """Name of the model at the endpoint."""
        return self.endpoint.model

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[EndpointReply]]:
        """Raises TutelageError if the endpoint refuses or fails."""
        options = options_of(sampling)

        def ask(numbered: tuple[int, Messages]) -> list[EndpointReply]:
            number, messages = numbered
            own = (seed + STREAMS_APART * number) % 2**31  # servers accept 32 bits
            return self.endpoint.ask(messages, n=n, seed=own, **options)

        with phase("generate", len(conversations)) as generating, ThreadPoolExecutor(self.at_once) as pool:
            return list(generating.counted(pool.map(ask, enumerate(conversations))))


def options_of(sampling: config.Sampling) -> dict[str, float]:
    """Sampling settings under the names of the protocol; non-standard ones (top_k, min_p) only if set."""
    options: dict[str, float] = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_new_tokens,
        "top_p": sampling.top_p,
    }
    if sampling.top_k:
        options["top_k"] = sampling.top_k
    if sampling.min_p:
        options["min_p"] = sampling.min_p
    return options

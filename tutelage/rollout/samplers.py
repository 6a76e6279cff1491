"""Samplers: they answer conversations where only the text of the completions is wanted."""

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


STREAMS_APART = 1_000_003
"""Between the seeds of two conversations: with one seed for all, equal questions would get equal answers."""


@dataclass(frozen=True)
class HttpSampler:
    """An endpoint as a sampler, asked about `at_once` conversations at a time."""

    endpoint: Endpoint
    at_once: int = 8

    @property
    def name(self) -> str:
        """The model's name at the endpoint."""
        return self.endpoint.model

    def __call__(
        self, conversations: Sequence[Messages], n: int, sampling: config.Sampling, *, seed: int
    ) -> list[list[EndpointReply]]:
        """Raises TutelageError where the endpoint refuses or does not answer."""
        options = options_of(sampling)

        def ask(numbered: tuple[int, Messages]) -> list[EndpointReply]:
            number, messages = numbered
            own = (seed + STREAMS_APART * number) % 2**31  # servers take 32 bits
            return self.endpoint.ask(messages, n=n, seed=own, **options)

        with phase("generate", len(conversations)) as generating, ThreadPoolExecutor(self.at_once) as pool:
            return list(generating.counted(pool.map(ask, enumerate(conversations))))


def options_of(sampling: config.Sampling) -> dict[str, float]:
    """The sampling settings under the names of the protocol; those it does not know (top_k, min_p) only where set."""
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

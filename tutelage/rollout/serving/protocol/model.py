"""Served model, its tokenizer and its limits, for the validation of requests."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from tutelage.base.nouns import counted
from tutelage.data.chat_template import stop_strings
from tutelage.data.chat_tokens import encode
from tutelage.data.records import Messages
from tutelage.data.tokenizer import encode_text, facts, token_bytes
from tutelage.data.tool_calls import CallForm, SampledTurn, call_form, read_turn
from tutelage.engines.sampling import StopCondition
from tutelage.rollout.serving.protocol.request_fields import Bounds, RequestError, refusal

MOST_STOPS = 16
"""Maximum number of stop strings of a request."""


@dataclass(frozen=True)
class Limits:
    """Limits of requests: tokens per completion, completions per prompt, most likely tokens per token, prompts; and
    the model's context and vocabulary in tokens."""

    tokens: int
    answers: int
    context: int | None
    vocabulary: int
    top: int = 20
    prompts: int = 256

    @property
    def bounds(self) -> Bounds:
        """Bounds of the request fields."""
        return {
            **dict.fromkeys(("max_tokens", "max_completion_tokens"), (0, self.tokens)),
            **dict.fromkeys(("logprobs", "top_logprobs"), (0, self.top)),
            **dict.fromkeys(("n", "best_of"), (1, self.answers)),
            **dict.fromkeys(("top_p", "min_p"), (0, 1)),
            "temperature": (0, 100),
            "top_k": (-1, 2**31),
            "seed": (-(2**63), 2**64 - 1),
        }

    def room(self, prompt: int) -> int:
        """Number of tokens available for the completion of a prompt of so many tokens."""
        return self.tokens if self.context is None else min(self.tokens, self.context - prompt)

    def check_context(self, prompt: int, answer: int) -> None:
        """Raise RequestError if a prompt and its completion exceed the context."""
        if self.context is not None and prompt + answer > self.context:
            raise RequestError(
                f"The model has room for {counted(self.context, 'token')}, but the prompt has {prompt} and the answer "
                f"may have {answer}. Shorten the prompt, or ask for fewer tokens.",
                code="context_length_exceeded",
            )

    def check_ids(self, name: str, ids: Sequence[int]) -> None:
        """Raise RequestError for a token outside the vocabulary, in the field of this name."""
        wrong = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        if wrong is not None:
            raise refusal(name, f"has the token {wrong}, but the model has the tokens 0 to {self.vocabulary - 1}")

    def check_count(self, name: str, count: int, most: int) -> None:
        """Raise RequestError for too many entries in the field of this name."""
        if count > most:
            raise refusal(name, f"may have {counted(most, 'entry')}, not {count}")


@dataclass(frozen=True)
class ServedModel:
    """Model under its `name`, and its adapters under theirs, as named in requests.

    `tokenizer` is a copy for the request threads, because tokenizers are not thread-safe.
    """

    name: str
    path: str
    tokenizer: Any
    end_ids: frozenset[int]
    limits: Limits
    adapters: Mapping[str, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def adapter(self, model: str) -> str:
        """Adapter that a request names as its model; "" for the model itself. Raises RequestError for others."""
        if model in ("", self.name):
            return ""
        if model not in self.adapters:
            names = ", ".join(repr(name) for name in (self.name, *self.adapters))
            raise RequestError(
                f"The model {model!r} does not exist here; there is {names}.",
                status=404,
                param="model",
                code="model_not_found",
            )
        return model

    def prompt_of_text(self, text: str, *, special: bool) -> tuple[int, ...]:
        """Tokens of a text; `special` prepends the tokenizer's start token, if any."""
        with self.lock:
            start = facts(self.tokenizer).start if special else ()
            return (*start, *encode_text(text, self.tokenizer))

    def prompt_of_messages(self, messages: Messages) -> tuple[int, ...]:
        """Tokens of a conversation. Raises TutelageError if the chat template refuses it."""
        with self.lock:
            return tuple(encode(messages, None, self.tokenizer)[0])

    def call_form(self) -> CallForm:
        """Form in which the model writes calls of tools. Raises TutelageError if its chat template shows no tools."""
        with self.lock:
            return call_form(self.tokenizer)

    def turn(self, tokens: Sequence[int], text: str, conversation: Messages) -> SampledTurn:
        """Turn of the assistant after a conversation that offers tools, see `read_turn`."""
        with self.lock:
            return read_turn(tokens, text, conversation, self.tokenizer, self.end_ids)

    def chat_stops(self) -> tuple[str, ...]:
        """Stop strings of conversations without a chat template: the beginning of the next question."""
        return stop_strings(self.tokenizer)

    def check_stops(self, stop: Sequence[str]) -> None:
        """Raise TutelageError for a stop string that cannot occur in any text."""
        with self.lock:
            StopCondition(self.tokenizer, sorted(self.end_ids), stop, torch.device("cpu"))

    def text_of(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special tokens included."""
        with self.lock:
            return self._text_of(list(tokens))

    def texts_of(self, tokens: Collection[int]) -> dict[int, str]:
        """Text of each token by itself."""
        with self.lock:
            return {token: self._text_of([token]) for token in tokens}

    def bytes_of(self, tokens: Collection[int]) -> dict[int, list[int]]:
        """Bytes of each token by itself, which may be part of a character."""
        with self.lock:
            return {token: list(token_bytes(token, self.tokenizer)) for token in tokens}

    def _text_of(self, tokens: list[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

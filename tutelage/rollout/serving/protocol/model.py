"""What requests are read against: the served model, its tokenizer, its limits."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from tutelage.data.chat import encode, stop_strings
from tutelage.data.records import Messages
from tutelage.data.tokenizer import encode_text, facts
from tutelage.engines.sampling import StopCondition
from tutelage.rollout.serving.protocol.errors import RequestError
from tutelage.rollout.serving.protocol.sampling import Limits


@dataclass(frozen=True)
class ServedModel:
    """The model under its `name`, and its adapters under theirs, as requests see them.

    `tokenizer` is a copy for the threads that read requests: tokenizers are not made for several threads.
    """

    name: str
    path: str
    tokenizer: Any
    end_ids: frozenset[int]
    limits: Limits
    adapters: Mapping[str, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def adapter(self, model: str) -> str:
        """The adapter that a request names by its model; "" for the model itself. Raises RequestError for others."""
        if model in ("", self.name):
            return ""
        if model not in self.adapters:
            known = ", ".join(repr(name) for name in (self.name, *self.adapters))
            raise RequestError(
                f"The model {model!r} does not exist here; there is {known}.",
                status=404,
                param="model",
                code="model_not_found",
            )
        return model

    def prompt_of_text(self, text: str, *, special: bool) -> tuple[int, ...]:
        """The tokens of a text, after the token that starts a text where the tokenizer has one and `special` is set."""
        with self.lock:
            start = facts(self.tokenizer).start if special else ()
            return (*start, *encode_text(text, self.tokenizer))

    def prompt_of_messages(self, messages: Messages) -> tuple[int, ...]:
        """The tokens of a conversation. Raises TutelageError where the chat template refuses it."""
        with self.lock:
            return tuple(encode(messages, None, self.tokenizer)[0])

    def chat_stops(self) -> tuple[str, ...]:
        """Texts that end an answer in a conversation without a chat template: the beginning of the next question."""
        return stop_strings(self.tokenizer)

    def check_stops(self, stop: Sequence[str]) -> None:
        """Raise TutelageError where a stop string can be in no text."""
        with self.lock:
            StopCondition(self.tokenizer, sorted(self.end_ids), stop, torch.device("cpu"))

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special tokens included."""
        with self.lock:
            return self._text_of(list(tokens))

    def texts_of(self, tokens: Collection[int]) -> dict[int, str]:
        """The text of each token by itself."""
        with self.lock:
            return {token: self._text_of([token]) for token in tokens}

    def _text_of(self, tokens: list[int]) -> str:
        text: str = self.tokenizer.decode(
            tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

"""A client of OpenAI-compatible chat endpoints (vLLM, llama.cpp, Ollama, the hosted ones)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.data.records import Messages
from tutelage.data.transport import InvalidAddress, Transport, check_key

KEY = "TUTELAGE_ENDPOINT_KEY"
"""Environment variable that holds the key of an endpoint: a setting would end up in config.json."""
AT_ONCE = 8
"""Requests that wait for an endpoint at the same time."""


@dataclass(frozen=True)
class EndpointReply:
    """A reply of a model; `finished` is false when it was cut at the length limit. `read` and `written` are the tokens
    of the request and of the reply, where the server says so."""

    text: str
    finished: bool = True
    read: int | None = field(default=None, compare=False)
    written: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Endpoint:
    """A model behind `url`, which ends before `/chat/completions`. `key` is sent as a bearer token.

    Connections stay open between requests, and several threads may share an endpoint.
    """

    url: str
    model: str
    key: str = field(default="", repr=False)
    timeout: float = 120.0
    """Seconds without a byte from the server after which a request has failed."""
    retries: int = 3
    """How often a request is sent again when the endpoint is busy, fails or cannot be reached."""
    wait: float = 1.0
    """Seconds before the first of these; twice as long before each further one."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise _no_endpoint(self.url)
        check_key(self.key, f"the model {self.model}")

    @property
    def address(self) -> str:
        """The address of the requests."""
        return f"{self.url.rstrip('/')}/chat/completions"

    def ask(self, messages: Messages, *, n: int = 1, **options: float) -> list[EndpointReply]:
        """`n` replies to a conversation. `options` such as temperature or max_tokens are sent as they are.

        Not every server knows `n`: replies that are missing are asked for again, with another seed where one was given.
        Raises TutelageError where the endpoint refuses, or still fails after the retries.
        """
        replies: list[EndpointReply] = []
        while len(replies) < n:
            body: dict[str, Any] = {
                "model": self.model,
                "messages": [{"role": turn.role, "content": turn.content} for turn in messages],
                **options,
            }
            if n - len(replies) > 1:
                body["n"] = n - len(replies)
            if "seed" in options:
                body["seed"] = int(options["seed"]) + len(replies)
            replies += self._replies(self._answer(body))
        return replies[:n]

    @cached_property
    def _transport(self) -> Transport:
        return Transport(self._name, self.key, self.timeout, self.retries, self.wait)

    def _answer(self, body: Mapping[str, Any]) -> Any:
        try:
            return self._transport.post(self.address, body)
        except InvalidAddress as error:
            raise _no_endpoint(self.url) from error

    def _replies(self, answer: Any) -> list[EndpointReply]:
        try:
            read, written = _tokens(answer) if len(answer["choices"]) == 1 else (None, None)
            found = [
                EndpointReply(
                    str(choice["message"]["content"] or ""),
                    choice.get("finish_reason") != "length",
                    read,
                    written,
                )
                for choice in answer["choices"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise TutelageError(
                f"{self._name} answered without choices: {json.dumps(answer)[:200]}."
            ) from error
        if not found:
            raise TutelageError(f"{self._name} answered with an empty list of choices.")
        return found

    @property
    def _name(self) -> str:
        return f"The model {self.model} at {self.address}"


def _tokens(answer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The tokens that were read and written for an answer, where the server says how many."""
    usage = answer.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if usage else [None, None]
    read, written = (count if isinstance(count, int) else None for count in counts)
    return read, written


def _no_endpoint(url: str) -> TutelageError:
    return TutelageError(
        f"{url!r} is no endpoint: give its address up to /chat/completions, such as http://localhost:8000/v1."
    )

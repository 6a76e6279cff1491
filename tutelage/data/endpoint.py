"""A client of OpenAI-compatible chat endpoints (vLLM, llama.cpp, Ollama, the hosted ones)."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tutelage.data.records import Messages
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    import httpx

BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed later; any other status is final."""
LONGEST_WAIT = 60.0
"""Seconds between two attempts, at most, whatever the server asks for."""


@dataclass(frozen=True)
class Reply:
    """A reply of a model; `finished` is false when it was cut at the length limit."""

    text: str
    finished: bool = True


class _Failure(Exception):
    """A request failed in a way that may pass; the server asks to wait for `wait` seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


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
        if not (self.key.isascii() and self.key.isprintable()):
            raise TutelageError(
                f"The key of the model {self.model} holds characters that no HTTP header may hold, such as a line "
                "break: copy it again."
            )

    @property
    def address(self) -> str:
        """The address of the requests."""
        return f"{self.url.rstrip('/')}/chat/completions"

    def ask(self, messages: Messages, *, n: int = 1, **options: float) -> list[Reply]:
        """`n` replies to a conversation. `options` such as temperature or max_tokens are sent as they are.

        Not every server knows `n`: replies that are missing are asked for again, with another seed where one was given.
        Raises TutelageError where the endpoint refuses, or still fails after the retries.
        """
        replies: list[Reply] = []
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
    def _client(self) -> "httpx.Client":
        import httpx

        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        unlimited = httpx.Limits(max_connections=None)
        return httpx.Client(headers=headers, timeout=self.timeout, limits=unlimited)

    def _answer(self, body: Mapping[str, Any]) -> Any:
        """The decoded answer to a request that is sent until it succeeds, at most 1 + `retries` times."""
        data, failure = json.dumps(body).encode(), _Failure("")
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(min(max(self.wait * 2 ** (attempt - 1), failure.wait), LONGEST_WAIT))
            try:
                return self._attempt(data)
            except _Failure as latest:
                failure = latest
        raise TutelageError(
            f"{self._name} did not answer after {self.retries + 1} attempts: {failure}. Is it running?"
        ) from failure

    def _attempt(self, body: bytes) -> Any:
        import httpx

        try:
            response = self._client.post(self.address, content=body)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise _no_endpoint(self.url) from error
        except httpx.HTTPError as error:  # unreachable, cut off, or too slow
            raise _Failure(str(error) or type(error).__name__) from error
        if not response.is_success:
            failure = f"status {response.status_code}, {_reason(response)}"
            if response.status_code in BUSY:
                raise _Failure(failure, _requested_wait(response))
            raise TutelageError(f"{self._name} refused the request: {failure}.")
        try:
            return response.json()
        except ValueError as error:
            raise TutelageError(f"{self._name} did not answer with JSON. Is the address right?") from error

    def _replies(self, answer: Any) -> list[Reply]:
        try:
            found = [
                Reply(str(choice["message"]["content"] or ""), choice.get("finish_reason") != "length")
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


def _no_endpoint(url: str) -> TutelageError:
    return TutelageError(
        f"{url!r} is no endpoint: give its address up to /chat/completions, such as http://localhost:8000/v1."
    )


def _reason(response: "httpx.Response") -> str:
    """What an endpoint says about a refusal, or else the name of the status."""
    try:
        body = response.json()
        message = body["error"]["message"] if isinstance(body.get("error"), dict) else body["message"]
        return str(message)[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.reason_phrase or "without a reason"


def _requested_wait(response: "httpx.Response") -> float:
    """Seconds of the Retry-After header, 0 without one."""
    try:
        return float(response.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0

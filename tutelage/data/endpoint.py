"""A client of OpenAI-compatible chat endpoints (vLLM, llama.cpp, Ollama, the hosted ones), on the standard library."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tutelage.data.records import Messages
from tutelage.errors import TutelageError

BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which asking again may help; any other is an answer, and asking again would bring the same."""
LONGEST_WAIT = 60.0


@dataclass(frozen=True)
class Reply:
    """What a model said; `finished` is false when it was cut at the length limit."""

    text: str
    finished: bool = True


@dataclass(frozen=True)
class Endpoint:
    """A model behind `url`, which ends before `/chat/completions`. `key` is sent as a bearer token."""

    url: str
    model: str
    key: str = field(default="", repr=False)
    timeout: float = 120.0
    retries: int = 3
    """How often a request is sent again when the endpoint is busy, fails or cannot be reached."""
    wait: float = 1.0
    """Seconds before the first of these; twice as long before each further one."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise TutelageError(
                f"{self.url!r} is no endpoint: give its address up to /chat/completions, such as "
                "http://localhost:8000/v1."
            )

    @property
    def address(self) -> str:
        """Where requests go."""
        return f"{self.url.rstrip('/')}/chat/completions"

    def ask(self, messages: Messages, *, n: int = 1, **options: float) -> list[Reply]:
        """`n` replies to a conversation. `options` such as temperature or max_tokens are sent as they are.

        Not every server knows `n`: what is missing is asked for again, with another seed where one was given.
        Raises TutelageError where the endpoint refuses, or still fails after the retries.
        """
        replies: list[Reply] = []
        while len(replies) < n:
            asked: dict[str, Any] = {
                "model": self.model,
                "messages": [{"role": turn.role, "content": turn.content} for turn in messages],
                **options,
            }
            if n - len(replies) > 1:
                asked["n"] = n - len(replies)
            if "seed" in options:
                asked["seed"] = int(options["seed"]) + len(replies)
            replies += self._replies(self._sent(asked))
        return replies[:n]

    def _sent(self, body: Mapping[str, Any]) -> Any:
        """The decoded answer to one request."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        data = json.dumps(body).encode()
        failure = ""
        for attempt in range(self.retries + 1):
            request = urllib.request.Request(self.address, data, headers)
            pause = self.wait * 2**attempt
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                failure = f"status {error.code}, {_told(error)}"
                if error.code not in BUSY:
                    raise TutelageError(f"{self._named()} refused the request: {failure}.") from error
                pause = max(pause, _asked_to_wait(error))
            except (OSError, http.client.HTTPException) as error:  # unreachable, cut off, or too slow
                failure = str(getattr(error, "reason", "") or error) or type(error).__name__
            except ValueError as error:
                raise TutelageError(
                    f"{self._named()} did not answer with JSON. Is the address right?"
                ) from error
            if attempt < self.retries:
                time.sleep(min(pause, LONGEST_WAIT))
        raise TutelageError(
            f"{self._named()} did not answer after {self.retries + 1} attempts: {failure}. Is it running?"
        )

    def _replies(self, answer: Any) -> list[Reply]:
        try:
            found = [
                Reply(str(choice["message"]["content"] or ""), choice.get("finish_reason") != "length")
                for choice in answer["choices"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise TutelageError(
                f"{self._named()} answered without choices: {json.dumps(answer)[:200]}."
            ) from error
        if not found:
            raise TutelageError(f"{self._named()} answered with an empty list of choices.")
        return found

    def _named(self) -> str:
        return f"The model {self.model} at {self.address}"


def _told(error: urllib.error.HTTPError) -> str:
    """What an endpoint says about its refusal, or else the name of the status."""
    try:
        text = error.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        text = ""
    try:
        body = json.loads(text)
        told = body["error"]["message"] if isinstance(body.get("error"), dict) else body["message"]
        return str(told)[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return error.reason if isinstance(error.reason, str) else "without a reason"


def _asked_to_wait(error: urllib.error.HTTPError) -> float:
    """Seconds of the Retry-After header, where it has any."""
    try:
        return float(error.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0

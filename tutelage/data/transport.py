"""JSON over HTTP to one server, with persistent connections and retries."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.json_values import parse_json

if TYPE_CHECKING:
    import httpx

BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Retryable statuses; any other error status is final."""
LONGEST_WAIT = 60.0
"""Maximum seconds between two attempts, regardless of the server's request."""
CONNECT = 10.0
"""Timeout of a connection in seconds."""


class InvalidAddress(ValueError):
    """Raised for an invalid address."""


class Unanswered(TutelageError):
    """Raised if a server could not be reached, failed, or timed out in every attempt."""


class HttpRefusal(TutelageError):
    """Raised if the server refused a request; `status` is its HTTP status, `reason` its message."""

    def __init__(self, text: str, status: int, reason: str) -> None:
        super().__init__(text)
        self.status, self.reason = status, reason


class _Failure(Exception):
    """Transient failure of a request; the server asks to wait for `wait` seconds. `sent` is false if no connection was
    made, so that the server cannot have received anything."""

    def __init__(self, reason: str, wait: float = 0.0, *, sent: bool = True) -> None:
        super().__init__(reason)
        self.wait, self.sent = wait, sent


@dataclass(frozen=True)
class Transport:
    """Requests to a server, called `name` in errors. `key` is sent as a bearer token. Thread-safe."""

    name: str
    key: str = field(default="", repr=False)
    timeout: float = 120.0
    """Timeout of a request in seconds without a byte from the server."""
    retries: int = 3
    """Number of retries if the server is busy, fails or cannot be reached."""
    wait: float = 1.0
    """Seconds before the first retry; doubled for each further one."""
    busy: frozenset[int] = BUSY
    """Retryable statuses."""
    repeats: bool = True
    """Whether a request is repeated that the server may have received; one that it cannot have received always is."""

    def get(self, address: str) -> Any:
        """JSON at an address. Raises the errors of `post`."""
        return self._decoded(self.text(address))

    def post(self, address: str, body: object, headers: Mapping[str, str] | None = None) -> Any:
        """Decoded response to a JSON body, with additional `headers`.

        Raises Unanswered if the server still fails after the retries, HttpRefusal if it refuses, InvalidAddress, and
        TutelageError if the response is not JSON.
        """
        return self._decoded(self.text(address, body, headers))

    def text(self, address: str, body: object | None = None, headers: Mapping[str, str] | None = None) -> str:
        """Response as text, to a JSON body by POST, or by GET without a body. Raises the errors of `post`."""
        data = None if body is None else json.dumps(body).encode()

        def send() -> "httpx.Response":
            if data is None:
                return self._client.get(address, headers=headers)
            return self._client.post(address, content=data, headers=headers)

        failure = _Failure("")
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(min(max(self.wait * 2 ** (attempt - 1), failure.wait), LONGEST_WAIT))
            try:
                return self._attempt(address, send)
            except _Failure as latest:
                failure = latest
                if failure.sent and not self.repeats:
                    break
        raise Unanswered(
            f"{self.name} did not answer after {counted(attempt + 1, 'attempt')}: {failure}. Is it running?"
        ) from failure

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()

    @cached_property
    def _client(self) -> "httpx.Client":
        import httpx

        return httpx.Client(**client_options(self.key, self.timeout))

    def _attempt(self, address: str, send: Callable[[], "httpx.Response"]) -> str:
        import httpx

        try:
            response = send()
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise InvalidAddress(address) from error
        except httpx.HTTPError as error:  # unreachable, disconnected, or too slow
            sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise _Failure(str(error) or type(error).__name__, sent=sent) from error
        if not response.is_success:
            reason = reason_of(response)
            failure = f"status {response.status_code}, {reason}"
            if response.status_code in self.busy:
                raise _Failure(failure, _requested_wait(response))
            raise HttpRefusal(f"{self.name} refused the request: {failure}.", response.status_code, reason)
        return response.text

    def _decoded(self, text: str) -> Any:
        try:
            return parse_json(text)
        except ValueError as error:
            raise TutelageError(f"{self.name} did not answer with JSON. Is the address right?") from error


def client_options(key: str, timeout: float) -> dict[str, Any]:
    """Options of an httpx client for JSON: `key` as a bearer token, `timeout` in seconds without a byte."""
    import httpx

    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    limit = httpx.Timeout(timeout, connect=min(timeout, CONNECT))
    return {"headers": headers, "timeout": limit, "limits": httpx.Limits(max_connections=None)}


def check_key(key: str, owner: str) -> None:
    """Raise TutelageError for a key that is invalid in an HTTP header, without repeating it."""
    if not (key.isascii() and key.isprintable()):
        raise TutelageError(
            f"The key of {owner} holds characters that no HTTP header may hold, such as a line break: copy it again."
        )


def reason_of(response: "httpx.Response") -> str:
    """Server's reason for a refusal, or else the name of the status."""
    try:
        body = response.json()
        message = body["error"]["message"] if isinstance(body.get("error"), dict) else body["message"]
        return str(message)[:300].rstrip(".")
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.reason_phrase or "without a reason"


def _requested_wait(response: "httpx.Response") -> float:
    """Seconds of the Retry-After header, 0 without one."""
    try:
        return float(response.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0

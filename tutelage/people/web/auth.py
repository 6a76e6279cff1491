"""Authentication: session cookies, allowed origins of requests, and limits on tried invitations.

A request that changes something must come from a page of this site (the browser says so in the header Origin) and,
from those who are signed in, carry a token that only their own pages know. The cookie is out of reach of scripts and
does not travel with requests from other sites (HttpOnly, SameSite=Lax).
"""

import hashlib
import hmac
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

SESSION_DAYS = 30


def csrf_token(session: str) -> str:
    """The token that pages of a session send with every change; it tells nothing about the session's own token."""
    return hmac.new(session.encode(), b"csrf", hashlib.sha256).hexdigest()


def csrf_matches(session: str, given: str) -> bool:
    return hmac.compare_digest(csrf_token(session).encode(), given.encode())


def is_own_origin(headers: Mapping[str, str], public_origin: str) -> bool:
    """Whether the browser says that the request comes from a page of this site: from `public_origin`, or, where there
    is none, from the very host that it was sent to. A request that tells no origin is none of a browser's pages."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site") == "same-origin"
    if public_origin:
        return origin == public_origin
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.netloc == headers.get("host")


def cookie_header(
    name: str, token: str, *, secure: bool, path: str = "/", seconds: int = SESSION_DAYS * 86_400
) -> str:
    """The value of Set-Cookie; an empty token takes the cookie away."""
    age = seconds if token else 0
    flags = f"HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
    return f"{name}={token}; Path={path}; Max-Age={age}; {flags}"


class Attempts:
    """Counts failures by address in a moving window, and says when there were too many."""

    def __init__(
        self, most: int = 20, seconds: float = 600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._failures: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def failed(self, address: str) -> None:
        """Note one failure."""
        with self._lock:
            self._forget()
            self._failures.setdefault(address, deque()).append(self._clock())

    def wait(self, address: str) -> int:
        """Seconds until the address may try again; 0 if it may now."""
        with self._lock:
            self._forget()
            recent = self._failures.get(address, deque())
            if len(recent) < self._most:
                return 0
            return max(1, round(recent[-self._most] + self._seconds - self._clock()))

    def _forget(self) -> None:
        begin = self._clock() - self._seconds
        for address in list(self._failures):
            times = self._failures[address]
            while times and times[0] <= begin:
                times.popleft()
            if not times:
                del self._failures[address]

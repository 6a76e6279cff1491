"""Authentication: session cookies and their devices, origin checks, and rate limits for invitation tokens.

Requests that change state must come from a page of this site (checked by the Origin header) and, in a session, carry a
CSRF token. The session cookie is HttpOnly and SameSite=Lax.
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
    """The CSRF token of a session, which reveals nothing about the session token."""
    return hmac.new(session.encode(), b"csrf", hashlib.sha256).hexdigest()


def csrf_matches(session: str, given: str) -> bool:
    return hmac.compare_digest(csrf_token(session).encode(), given.encode())


def is_own_origin(headers: Mapping[str, str], public_origin: str) -> bool:
    """Whether the Origin header names this site: `public_origin` or, if empty, the host of the request. Without
    the header, Sec-Fetch-Site decides."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site") == "same-origin"
    if public_origin:
        return origin == public_origin
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.netloc == headers.get("host")


def cookie_header(name: str, token: str, *, secure: bool, path: str = "/", seconds: int = SESSION_DAYS * 86_400) -> str:
    """The value of a Set-Cookie header; an empty token deletes the cookie."""
    age = seconds if token else 0
    flags = f"HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
    return f"{name}={token}; Path={path}; Max-Age={age}; {flags}"


class Attempts:
    """Rate limiter: counts attempts, such as failures of a client address, in a sliding window."""

    def __init__(self, most: int = 20, seconds: float = 600.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._attempts: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def count(self, address: str) -> None:
        """Record one attempt."""
        with self._lock:
            self._forget()
            self._attempts.setdefault(address, deque()).append(self._clock())

    def wait(self, address: str) -> int:
        """Seconds until the address may try again; 0 if it is not blocked."""
        with self._lock:
            self._forget()
            recent = self._attempts.get(address, deque())
            if len(recent) < self._most:
                return 0
            return max(1, round(recent[-self._most] + self._seconds - self._clock()))

    def _forget(self) -> None:
        begin = self._clock() - self._seconds
        for address in list(self._attempts):
            times = self._attempts[address]
            while times and times[0] <= begin:
                times.popleft()
            if not times:
                del self._attempts[address]


BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
"""Marks in the header and their names. The first match counts, because browsers also claim to be older ones."""


def device_of(user_agent: str) -> str:
    """Browser and system, "Firefox on Linux"; for other programs the first word of the header."""
    browser = next((name for mark, name in BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in SYSTEMS if mark in user_agent), "")
    first = "".join(letter for letter in user_agent.split("/")[0][:40] if letter.isprintable())
    words = " on ".join(filter(None, (browser or (first if not system else "a browser"), system)))
    return words or "unknown device"

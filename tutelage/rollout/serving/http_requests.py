"""Access control of HTTP requests, and their JSON bodies, read up to a limit.

Requests need the API key; other web sites cannot send one through a visitor's browser.
"""

import hmac
import ipaddress
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tutelage.base.nouns import counted
from tutelage.data.json_values import parse_json
from tutelage.rollout.serving.protocol.request_fields import RequestError, error_body

OPEN_PATHS = frozenset({"/health", "/ping"})
"""Paths without a key; they reveal nothing about the model."""


class Guard:
    """Middleware that refuses requests without the `key`, if any, and cross-site requests.

    With `only_local`, the host of a request must be an address of this machine, which prevents DNS rebinding. Paths in
    `open_paths`, and below those that end with a slash, need no key.
    """

    def __init__(self, app: ASGIApp, key: str, *, only_local: bool, open_paths: Sequence[str] = ()) -> None:
        self.app, self.key, self.only_local = app, key, only_local
        self.open_paths = {*OPEN_PATHS, *open_paths}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or forward it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        status, reason = self._refusal(scope["path"], headers)
        if status:
            await JSONResponse(error_body(reason, status), status)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Status and reason of a refusal; status 0 for none."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname or ""  # without the port
        except ValueError:
            name = ""
        if self.only_local and not is_local(name):
            return 403, f"This server answers requests to this machine only, not to {host!r}."
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, f"Requests of web pages are refused, such as this one of {origin!r}."
        token, key = headers.get("authorization", "").encode(), f"Bearer {self.key}".encode()
        if self.key and not self._is_open(path) and not hmac.compare_digest(token, key):
            return 401, "The API key is missing or wrong: send it as a bearer token."
        return 0, ""

    def _is_open(self, path: str) -> bool:
        below = (each for each in self.open_paths if each.endswith("/") and len(each) > 1)
        return path in self.open_paths or any(map(path.startswith, below))


def is_local(host: str) -> bool:
    """Whether a host name or address refers to this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def read_json(request: Request, most: int) -> Any:
    """Read the body as JSON, {} if empty. Raises RequestError for more than `most` bytes and for invalid bodies.

    The content type must be application/json, which browsers send to another site only after a preflight request.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", ""):
        raise RequestError(f"The content type is {kind!r}; send application/json.", status=415)
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise RequestError(
                    f"The body is longer than {counted(most, 'byte')}.", status=413, code="request_too_large"
                )
    except ClientDisconnect as error:
        raise RequestError("The body ended too early.") from error
    if body and not kind:
        raise RequestError("The body has no content type; send application/json.", status=415)
    try:
        value = parse_json(bytes(body) or b"{}", strict=True)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is a UnicodeEncodeError
        return value
    except ValueError as error:
        raise RequestError(f"The body is not JSON: {error}.") from error

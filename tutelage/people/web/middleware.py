"""Middleware: security headers of every response, and sites below a path (one of several studies at /s/NAME, or a whole
server behind a proxy at /rating)."""

from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",  # with no-referrer, browsers would send forms with the origin "null"
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Headers:
    """Middleware that adds the security headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))  # a mount inside changes the scope

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                fixed = path.startswith("/static/fonts/")
                fresh = "no-cache" if path.startswith("/static/") else "no-store"
                headers.setdefault("cache-control", "public, max-age=31536000" if fixed else fresh)
            await send(message)

        await self.app(scope, receive, with_headers)


class Below:
    """An application mounted below a path. Accepts requests with the path or, from a proxy that strips it, without."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.app, self.path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = below(scope, self.path) or scope
        await self.app(scope, receive, send)


def below(scope: Scope, path: str) -> Scope | None:
    """The scope with `root_path` set for an application at the path; None if the request is outside it."""
    whole = scope.get("root_path", "") + path
    if scope["path"] == whole:
        return {**scope, "path": f"{whole}/", "root_path": whole}
    return {**scope, "root_path": whole} if scope["path"].startswith(f"{whole}/") else None

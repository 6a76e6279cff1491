"""Sites below a path: one of several studies at /s/NAME, or a whole server behind a proxy at /rating.

Templates and redirects are written for a site at the root. `Rooted` adds the prefix to the addresses of a template when
it is loaded, `rooted` to a redirect; scripts derive it from their own address.
"""

import re

from jinja2 import Environment
from jinja2.ext import Extension
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

_FIXED = re.compile(r'\b(href|src|action|formaction)="/(?!/)')
_COMPUTED = re.compile(r'\b(href|src|action|formaction)="\{\{ ([^{}]+?) \}\}')


class Rooted(Extension):
    """Jinja extension that prefixes addresses: `href="/owner"` becomes `href="{{ root }}/owner"`, and expressions pass
    through the filter `rooted`. `root` is a global of the environment."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["root"] = ""
        environment.filters["rooted"] = lambda address: rooted(str(environment.globals["root"]), str(address))

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        source = _COMPUTED.sub(r'\1="{{ (\2) | rooted }}', source)
        return _FIXED.sub(r'\1="{{ root }}/', source)


def rooted(root: str, address: str) -> str:
    """The address below the root if it belongs to this site, otherwise unchanged."""
    return root + address if address.startswith("/") and not address.startswith("//") else address


def root_redirect(root: str, headers: MutableHeaders) -> None:
    """Prefix the Location header of a redirect with the root."""
    if root and "location" in headers:
        headers["location"] = rooted(root, headers["location"])


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

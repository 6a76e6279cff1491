"""Sites below a path: a study among several at /s/NAME, or a whole server behind a proxy at /rating.

Templates and redirects are written as if the site stood at the root. `Rooted` puts the site's root before every address
of a template when the template is loaded, `rooted` before that of a redirect; scripts know theirs from where they were
loaded. So no page has to know where it stands.
"""

import re

from jinja2 import Environment
from jinja2.ext import Extension
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

_FIXED = re.compile(r'\b(href|src|action|formaction)="/(?!/)')
_COMPUTED = re.compile(r'\b(href|src|action|formaction)="\{\{ ([^{}]+?) \}\}')


class Rooted(Extension):
    """Addresses of this site in templates: `href="/owner"` becomes `href="{{ root }}/owner"`, and what an expression
    gives goes through the filter `rooted`. The root is a global of the environment."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["root"] = ""
        environment.filters["rooted"] = lambda address: rooted(str(environment.globals["root"]), str(address))

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        source = _COMPUTED.sub(r'\1="{{ (\2) | rooted }}', source)
        return _FIXED.sub(r'\1="{{ root }}/', source)


def rooted(root: str, address: str) -> str:
    """The address below the root, where it is one of this site; any other as it is."""
    return root + address if address.startswith("/") and not address.startswith("//") else address


def root_redirect(root: str, headers: MutableHeaders) -> None:
    """Put the root before the address that a response sends the browser to."""
    if root and "location" in headers:
        headers["location"] = rooted(root, headers["location"])


class Below:
    """An application below a path. Requests may come with the path or, from a proxy that takes it off, without."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.app, self.path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = below(scope, self.path) or scope
        await self.app(scope, receive, send)


def below(scope: Scope, path: str) -> Scope | None:
    """The request as an application at the path sees it, by ASGI's `root_path`; None where it goes elsewhere."""
    whole = scope.get("root_path", "") + path
    if scope["path"] == whole:
        return {**scope, "path": f"{whole}/", "root_path": whole}
    return {**scope, "root_path": whole} if scope["path"].startswith(f"{whole}/") else None

"""The application: routes, files, and the headers that every answer carries."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route as Endpoint
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tutelage.people import Store
from tutelage.people.chat_models import Models, only_endpoints
from tutelage.people.languages import Sentence, choose_language
from tutelage.people.web.api import admitting
from tutelage.people.web.api.table import API_ROUTES
from tutelage.people.web.auth import Attempts
from tutelage.people.web.call import Refusal, answering, refused
from tutelage.people.web.languages import wanted_languages
from tutelage.people.web.routes import ROUTES
from tutelage.people.web.site import Site
from tutelage.people.web.statistics.keeping import Keeper
from tutelage.people.web.streams import AnswerStreams
from tutelage.people.web.uploads import Uploads

STATIC = Path(__file__).parent / "static"
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


def create_app(store: Store, *, public_url: str = "", models: Models = only_endpoints) -> Starlette:
    """The application on an open store. `public_url` is where browsers reach it, if a proxy stands in between; `models`
    finds the models of live conversations.

    Raises:
        TutelageError: the public URL is no address.
    """
    site = Site(store, public_url, Attempts(), Keeper(store), Uploads(), AnswerStreams(store, models))
    endpoints = [
        Endpoint(
            route.path, answering(site, route), methods=[route.method], name=f"{route.method} {route.path}"
        )
        for route in ROUTES
    ]
    endpoints += [
        Endpoint(
            admitting.ROOT + route.path,
            admitting.answering(site, route),
            methods=[route.method],
            name=f"api {route.name}",
        )
        for route in API_ROUTES
    ]
    return Starlette(
        routes=[*endpoints, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(Headers)],
        exception_handlers={HTTPException: _http_error(site), Exception: _defect(site)},
    )


class Headers:
    """Adds the headers that keep a page from doing or leaking what it should not."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                fixed = scope["path"].startswith("/static/fonts/")
                fresh = "no-cache" if scope["path"].startswith("/static/") else "no-store"
                headers["cache-control"] = "public, max-age=31536000" if fixed else fresh
            await send(message)

        await self.app(scope, receive, with_headers)


def _http_error(site: Site) -> Any:
    sentences = {404: Sentence("There is no such page."), 405: Sentence("This page cannot be used that way.")}

    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if _is_api(request):
            return admitting.unknown_address(error.status_code, request.method, request.url.path)
        sentence = sentences.get(error.status_code, error.detail)
        return _refused(site, Refusal(error.status_code, sentence), request)

    return handle


def _defect(site: Site) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        if _is_api(request):
            return admitting.defect(request.method, request.url.path)
        sentence = Sentence(
            "Something went wrong in the server, and this request saved nothing. The server's log has more."
        )
        return _refused(site, Refusal(500, sentence), request)

    return handle


def _is_api(request: Request) -> bool:
    return request.url.path.startswith(f"{admitting.ROOT}/")


def _refused(site: Site, refusal: Refusal, request: Request) -> Response:
    as_json = "application/json" in request.headers.get("accept", "")
    return refused(site, refusal, as_json, choose_language((), wanted_languages(request)))

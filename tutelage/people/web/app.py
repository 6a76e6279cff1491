"""The ASGI application: routes, static files, security headers, one or several studies on a server, and the page on
which users chat with a served model and say what they think of its answers.

Of several studies each is below /s/NAME; the front page lists them for their owners and reviewers. It reveals no
studies to anybody else, and an account of one study is unknown in the others. A whole server may be below a path of a
proxy, such as /rating.
"""

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tutelage.base.errors import TutelageError
from tutelage.people import Store, Study, Unavailable, list_studies
from tutelage.people.languages import Sentence, choose_language, say
from tutelage.people.live_conversation import LiveTools, Models, only_endpoints
from tutelage.people.mail import MailServer
from tutelage.people.statistics.cache import Keeper
from tutelage.people.store.engine import check_room
from tutelage.people.store.studies import study_of
from tutelage.people.web.api import dispatch
from tutelage.people.web.api.endpoints import API_ROUTES
from tutelage.people.web.auth import Attempts
from tutelage.people.web.call import Refusal, answering, refused
from tutelage.people.web.identity import THIS_MACHINE, Peers, SignInMethods, study_of_state
from tutelage.people.web.pages.participation import CALLBACK
from tutelage.people.web.routes import ROUTES
from tutelage.people.web.site import Site, member_study
from tutelage.people.web.streams import ResponseStreams
from tutelage.people.web.templating import templates, wanted_languages
from tutelage.people.web.uploads import Uploads

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


STATIC = Path(__file__).parent / "static"


def mount_of(name: str) -> str:
    """The path of a study; characters that a URL would have to quote become hyphens."""
    return f"/s/{re.sub(r'[^A-Za-z0-9._~]+', '-', name).strip('-.') or 'study'}"


@dataclass(frozen=True)
class MountedStudy:
    """A mounted study: its site and the application that serves it."""

    site: Site
    app: ASGIApp


class Studies:
    """The application of a server with several studies. Dispatches by path, and other requests to the front page.
    `root` is the path of the whole server, if it shares a host behind a proxy."""

    def __init__(self, studies: Sequence[MountedStudy], root: str) -> None:
        self.studies = studies
        self._front = front_app(studies, root)
        self._entry: ASGIApp = Below(self._choose, root) if root else self._choose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._entry(scope, receive, send)

    async def _choose(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for study in self.studies:
                inside = below(scope, study.site.mount)
                if inside is not None:
                    return await study.app(inside, receive, send)
        return await self._front(scope, receive, send)


def front_app(studies: Sequence[MountedStudy], root: str) -> Starlette:
    """The application at the root of a server with several studies."""

    def page(request: Request, template: str, code: int = 200, **values: object) -> Response:
        language = choose_language((), wanted_languages(request))
        return HTMLResponse(templates(language, root).get_template(template).render(values), code)

    def front(request: Request) -> Response:
        mine = [(each.site, member_study(each.site, request.cookies)) for each in studies]
        listed = [(study.name, site.mount) for site, study in mine if study is not None]
        if listed:
            return page(request, "front.html", studies=listed)
        return page(request, "home.html", signs_in=False)

    def health(request: Request) -> Response:
        for each in studies:
            list_studies(each.site.store)
            check_room(each.site.store)
        return JSONResponse({"status": "ok"})

    def come_back(request: Request) -> Response:
        """Redirect from the sign-in provider to the study in which the sign-in began."""
        mount = study_of_state(request.query_params.get("state", ""))
        site = next((each.site for each in studies if each.site.mount == mount), None)
        if site is None:
            raise HTTPException(404)
        return RedirectResponse(f"{site.root}{CALLBACK}?{request.url.query}", 303)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = error.status_code
        message = say(Sentence("There is no such page."), choose_language((), wanted_languages(request)))
        return page(request, "refusal.html", code, status=code, sentence=message)

    async def unavailable(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 503)

    return Starlette(
        routes=[
            Route("/", front),
            Route("/healthz", health),
            Route(CALLBACK, come_back),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Headers)],
        exception_handlers={HTTPException: unknown, Unavailable: unavailable},
    )


def create_app(
    store: Store,
    *,
    public_url: str = "",
    models: Models = only_endpoints,
    tools: LiveTools | None = None,
    sign_in: SignInMethods | None = None,
    mail: MailServer | None = None,
    trusted: Sequence[str] = (),
) -> Starlette:
    """The application of an open store, at the root. `public_url` is the URL that browsers use, including the path, if
    there is a proxy in front; `models` looks up the models of live conversations, which may call `tools`; `sign_in` are
    sign-in methods other than links; `mail` lets owners send personal links by e-mail. X-Forwarded-For counts from
    proxies of this machine and from the addresses or networks in `trusted`. Raises TutelageError if the public URL is
    invalid."""
    streams = ResponseStreams(store, models, tools)
    return _application(_site(store, public_url, streams, sign_in, mail=mail, proxies=Peers((*THIS_MACHINE, *trusted))))


@dataclass(frozen=True)
class Served:
    """A study for `create_server`: its open database, the study, the lookup of its conversation models, and their
    tools."""

    store: Store
    study: Study
    models: Models = only_endpoints
    tools: LiveTools | None = None


def create_server(
    served: Sequence[Served],
    *,
    public_url: str = "",
    sign_in: SignInMethods | None = None,
    mail: MailServer | None = None,
    trusted: Sequence[str] = (),
) -> Studies:
    """The application of several studies, each below /s/NAME and open to its own members only, with a front page at the
    root. Raises TutelageError if the public URL is invalid, or two studies would have the same path."""
    mounted: list[MountedStudy] = []
    proxies = Peers((*THIS_MACHINE, *trusted))
    for each in served:
        mount = mount_of(each.study.name)
        if any(other.site.mount == mount for other in mounted):
            raise TutelageError(f"Two studies would share the path {mount}; serve one of them on a separate server.")
        more = {"mail": mail, "proxies": proxies, "mount": mount, "study_id": each.study.id}
        streams = ResponseStreams(each.store, each.models, each.tools)
        site = _site(each.store, public_url, streams, sign_in, **more)
        mounted.append(MountedStudy(site, _application(site)))
    return Studies(mounted, urlsplit(public_url).path.rstrip("/"))


def _site(store: Store, public_url: str, streams: ResponseStreams, sign_in: SignInMethods | None, **more: Any) -> Site:
    sign_in = sign_in or SignInMethods()
    return Site(store, public_url, Attempts(), Keeper(store), Uploads(), streams, sign_in=sign_in, **more)


def _application(site: Site) -> Starlette:
    endpoints = [
        Route(route.path, answering(site, route), methods=[route.method], name=f"{route.method} {route.path}")
        for route in ROUTES
    ]
    endpoints += [
        Route(
            dispatch.ROOT + route.path,
            dispatch.answering(site, route),
            methods=[route.method],
            name=f"api {route.name}",
        )
        for route in API_ROUTES
    ]
    outside = site.root.removesuffix(site.mount)
    return Starlette(
        routes=[*endpoints, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[*([Middleware(Below, path=outside)] if outside else []), Middleware(Headers)],
        exception_handlers={HTTPException: _http_error(site), Exception: _defect(site)},
    )


def _http_error(site: Site) -> Any:
    sentences = {404: Sentence("There is no such page."), 405: Sentence("This address does not accept such a request.")}

    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if _is_api(site, request):
            return dispatch.unknown_address(error.status_code, request.method, request.url.path)
        sentence = sentences.get(error.status_code, error.detail)
        return _refused(site, Refusal(error.status_code, sentence), request)

    return handle


def _defect(site: Site) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        if _is_api(site, request):
            return dispatch.defect(request.method, request.url.path)
        sentence = Sentence(
            "Something went wrong in the server, and this request saved nothing. The server's log has more."
        )
        return _refused(site, Refusal(500, sentence), request)

    return handle


def _is_api(site: Site, request: Request) -> bool:
    return request.url.path.removeprefix(site.root).startswith(f"{dispatch.ROOT}/")


def _refused(site: Site, refusal: Refusal, request: Request) -> Response:
    as_json = "application/json" in request.headers.get("accept", "")
    return refused(site, refusal, as_json, choose_language((), wanted_languages(request)))


OPEN_PATHS = ("/", "/static/")
"""Addresses that need no key; they reveal the name of the model."""


@dataclass(frozen=True)
class ChatPage:
    """The page of a study for users of a served model; `days` and `share` say how long answers can be judged, and how
    many. It has no session: the user's id is a random number of the browser, sent with each request as any application
    would."""

    store: Store
    study_id: int
    model: str
    days: float
    share: float

    @property
    def routes(self) -> list[BaseRoute]:
        """The page at the root, and its static files."""
        inner = Starlette(
            routes=[Route("/", self.page, methods=["GET"]), Mount("/static", StaticFiles(directory=STATIC))],
            middleware=[Middleware(Headers)],
        )
        return [Route("/", inner, methods=["GET"]), Route("/static/{path:path}", inner, methods=["GET"])]

    def page(self, request: Request) -> Response:
        """The page in a language of the study that the browser prefers."""
        study = study_of(self.store, self.study_id)
        language = choose_language(study.languages, wanted_languages(request))
        template = templates(language).get_template("chat.html")
        values = {"study": study, "model": self.model, "days": self.days, "share": self.share}
        return HTMLResponse(template.render(values))

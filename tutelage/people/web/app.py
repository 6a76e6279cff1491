"""The ASGI application: routes, static files, and one or several studies on a server."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route as Endpoint
from starlette.staticfiles import StaticFiles

from tutelage.base.errors import TutelageError
from tutelage.people import Store, Study
from tutelage.people.chat_models import LiveTools, Models, only_endpoints
from tutelage.people.languages import Sentence, choose_language
from tutelage.people.mail import MailServer
from tutelage.people.statistics.cache import Keeper
from tutelage.people.web.api import dispatch
from tutelage.people.web.api.endpoints import API_ROUTES
from tutelage.people.web.auth import Attempts
from tutelage.people.web.call import Refusal, answering, refused
from tutelage.people.web.front import MountedStudy, Studies, mount_of
from tutelage.people.web.identity import THIS_MACHINE, Peers, SignInMethods
from tutelage.people.web.middleware import Below, Headers
from tutelage.people.web.routes import ROUTES
from tutelage.people.web.site import Site
from tutelage.people.web.streams import ResponseStreams
from tutelage.people.web.templating import wanted_languages
from tutelage.people.web.uploads import Uploads

STATIC = Path(__file__).parent / "static"


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
    proxies of this machine and from the addresses or networks in `trusted`.

    Raises:
        TutelageError: the public URL is invalid.
    """
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
    root.

    Raises:
        TutelageError: the public URL is invalid, or two studies would have the same path.
    """
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
    return Studies(mounted, urlsplit(public_url).path.rstrip("/"), STATIC)


def _site(store: Store, public_url: str, streams: ResponseStreams, sign_in: SignInMethods | None, **more: Any) -> Site:
    sign_in = sign_in or SignInMethods()
    return Site(store, public_url, Attempts(), Keeper(store), Uploads(), streams, sign_in=sign_in, **more)


def _application(site: Site) -> Starlette:
    endpoints = [
        Endpoint(route.path, answering(site, route), methods=[route.method], name=f"{route.method} {route.path}")
        for route in ROUTES
    ]
    endpoints += [
        Endpoint(
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

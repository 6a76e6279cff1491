"""Front page of a server with several studies, each below /s/NAME, listing them for their owners and reviewers.

The front page reveals no studies to anybody else, and an account of one study is unknown in the others.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tutelage.people import Unavailable, list_studies
from tutelage.people.languages import Sentence, choose_language, say
from tutelage.people.store.engine import check_room
from tutelage.people.web.identity import study_of_state
from tutelage.people.web.middleware import Below, Headers, below
from tutelage.people.web.pages.sign_in import CALLBACK
from tutelage.people.web.site import Site, member_study
from tutelage.people.web.templating import templates, wanted_languages


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

    def __init__(self, studies: Sequence[MountedStudy], root: str, static: Path) -> None:
        self.studies = studies
        self._front = front_app(studies, root, static)
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


def front_app(studies: Sequence[MountedStudy], root: str, static: Path) -> Starlette:
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
            Route("/", _in_thread(front)),
            Route("/healthz", _in_thread(health)),
            Route(CALLBACK, _in_thread(come_back)),
            Mount("/static", StaticFiles(directory=static)),
        ],
        middleware=[Middleware(Headers)],
        exception_handlers={HTTPException: unknown, Unavailable: unavailable},
    )


def _in_thread(answer: Callable[[Request], Response]) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return endpoint

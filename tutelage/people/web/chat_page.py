"""The page on which users chat with a served model and say what they think of its answers.

It has no session: the user's id is a random number of the browser, sent with each request as any application would.
"""

from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tutelage.people import Store
from tutelage.people.languages import choose_language
from tutelage.people.store.studies import study_of
from tutelage.people.web.app import STATIC
from tutelage.people.web.middleware import Headers
from tutelage.people.web.templating import templates, wanted_languages

OPEN_PATHS = ("/", "/static/")
"""Addresses that need no key; they reveal the name of the model."""


@dataclass(frozen=True)
class ChatPage:
    """The page of a study; `days` and `share` say how long answers can be judged, and how many."""

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

"""Requests: authentication, parsing and error responses."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tutelage.base.errors import TutelageError
from tutelage.people import Rater, Store, Study, Unavailable, count_notices
from tutelage.people.images import image_names
from tutelage.people.languages import LANGUAGES, Sentence, choose_language, say
from tutelage.people.store.access import use_session
from tutelage.people.store.additions import image_sizes
from tutelage.people.store.inbox import QUIET
from tutelage.people.store.members import Identity
from tutelage.people.store.raters import DECIDING, Role
from tutelage.people.store.studies import study_of
from tutelage.people.validation import FormError, record_number
from tutelage.people.web.auth import csrf_matches, csrf_token, device_of, is_own_origin
from tutelage.people.web.pages.owner import menu_of
from tutelage.people.web.render import Images, render
from tutelage.people.web.site import Site
from tutelage.people.web.templating import rooted, wanted_languages
from tutelage.people.web.uploads import LONGEST_UPLOAD

LONGEST_BODY = 512 * 1024
LONGEST: Mapping[str, int] = {"file": LONGEST_UPLOAD}
"""Maximum body sizes by form, if other than `LONGEST_BODY`."""

NOT_SIGNED_IN = Sentence(
    "You are not signed in, or your session is over. Open your personal link to continue; if you have none, ask the "
    "person who invited you for it. An invitation link would register you as a new rater."
)
TOO_OLD = Sentence("This page has expired: load it again, and send the form again.")

Who: TypeAlias = Literal["anyone", "rater", "participant", "reviewer", "owner"]
ADMITTED: Mapping[Who, tuple[Role, ...]] = {
    "rater": ("rater", "reviewer", "owner"),
    "participant": ("rater", "owner"),
    "reviewer": ("reviewer", "owner"),
    "owner": ("owner",),
}
"""The roles admitted by each kind of route; "anyone" needs no session. Reviewers read the same pages as owners and
judge single items, but have no other rights."""
REFUSED: Mapping[Who, Sentence] = {
    "participant": Sentence("A reviewer judges single items, and takes no other part in the study."),
    "reviewer": Sentence("Only an owner or a reviewer of the study may do that."),
    "owner": Sentence("Only an owner of the study may do that."),
}
Form: TypeAlias = Literal["page", "form", "json", "file"]
Fields: TypeAlias = Mapping[str, tuple[str, ...]]


class Refusal(Exception):
    """An error response: status code and message for the client. `study` is the study it concerns, if not that of the
    session."""

    def __init__(self, status: int, sentence: str, *, retry_after: int = 0, study: Study | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_after, self.study = status, sentence, retry_after, study


@dataclass(frozen=True)
class Call:
    """An admitted request. `rater` and `study` belong to the session with token `session` and number `session_id`;
    `device` describes the client briefly. `fields` holds the submitted form, `data` the JSON body, `body` an uploaded
    file. `origin` is the site's URL as the browser reports it, if it does; `at` the path of the page within the site;
    `wanted` the preferred languages; `visitor` the identity from a trusted proxy, for requests without a session."""

    site: Site
    path: Mapping[str, str]
    query: Fields
    address: str
    origin: str
    session: str
    at: str = "/"
    wanted: tuple[str, ...] = ()
    session_id: int | None = None
    device: str = ""
    visitor: Identity | None = None
    cookies: Mapping[str, str] = field(default_factory=dict)
    rater: Rater | None = None
    study: Study | None = None
    fields: Fields = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    body: bytes = b""

    @property
    def store(self) -> Store:
        return self.site.store

    @property
    def me(self) -> Rater:
        assert self.rater is not None, "the route lets anyone in"
        return self.rater

    @property
    def here(self) -> Study:
        assert self.study is not None, "the route lets anyone in"
        return self.study

    @property
    def language(self) -> str:
        """The language for this client, among those that the study of the session offers."""
        return self.language_for(self.study)

    def language_for(self, study: Study | None) -> str:
        """The language for a page of the study, or for a page without a study."""
        return choose_language(study.languages if study else (), self.wanted)

    @property
    def reading(self) -> str:
        """The language of an owner's pages: any available one, by the saved choice, then by the browser."""
        return choose_language((), self.wanted)

    def html(self, text: str) -> str:
        """Safe HTML of a prompt or a response of the study, with its images."""
        return self._html(text, self.language)

    def owners_html(self, text: str) -> str:
        """`html` for owners' pages."""
        return self._html(text, self.reading)

    def _html(self, text: str, language: str) -> str:
        names = image_names(text)
        if not names:
            return render(text, language)
        return render(text, language, Images.of(self.site.root, image_sizes(self.store, self.here.id, names)))

    def text(self, name: str, default: str = "") -> str:
        """A field of the form or the query string, stripped of whitespace."""
        return (self.values(name) or (default,))[-1].strip()

    def values(self, name: str) -> tuple[str, ...]:
        """All values of a field of the form or the query string."""
        return self.fields.get(name) or self.query.get(name) or ()

    def number(self, name: str) -> int:
        """The record number in the path, in a form field or in the query; 0, which no record has, if invalid."""
        return record_number(self.path.get(name) or self.text(name))

    def page(self, template: str, /, **values: object) -> Response:
        """Render a template with the rater, the study and the CSRF token. The language is one of its study's (`host`,
        or that of the session); owners' pages use any language that the reader prefers."""
        context: dict[str, object] = {
            "rater": self.rater,
            "study": self.study,
            "csrf": csrf_token(self.session) if self.rater else "",
            "now": self.store.now(),
            "at": self.at,
            "owns": self.rater is not None and self.rater.role == "owner",
            "problem": FormError(),
        }
        if self.rater and self.rater.role in DECIDING:
            context["waiting"] = waiting = count_notices(self.store, self.here.id)
            context["menu"] = menu_of(self.rater.role == "owner")
            context["waiting_in_all"] = sum(n for kind, n in waiting.items() if kind not in QUIET)
        host = values.get("host", self.study)
        context["offered"] = [LANGUAGES[code] for code in host.languages] if isinstance(host, Study) else []
        owners = template.startswith("owner/")
        if owners:
            context["offered"] = list(LANGUAGES.values())
        language = self.reading if owners else self.language_for(host if isinstance(host, Study) else None)
        return self.site.page(template, context | values, language=language)


class Route(NamedTuple):
    """A route: method, path, admitted roles (see `ADMITTED`), form of the body, and the `page` that shows an error of
    the answer next to the form that it is about, if any."""

    method: Literal["GET", "POST"]
    path: str
    who: Who
    form: Form
    answer: Callable[[Call], Response]
    page: Callable[[Call, TutelageError], Response] | None = None


def see(address: str) -> Response:
    """A redirect to the address."""
    return RedirectResponse(address, 303)


def answering(site: Site, route: Route) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a route. Reads the body asynchronously and does everything else in a thread."""

    async def endpoint(request: Request) -> Response:
        try:
            longest = LONGEST.get(route.form, LONGEST_BODY)
            body = await _read(request, longest) if route.method == "POST" else b""
        except Refusal as refusal:
            return refused(site, refusal, _by_script(route), choose_language((), wanted_languages(request)))
        except ClientDisconnect:
            return Response(status_code=400)  # the client disconnected
        return await run_in_threadpool(_respond, site, route, request, body)

    return endpoint


def sentence(error: Exception) -> str:
    """The message of an error, as a translatable `Sentence` if it is one."""
    return error.args[0] if error.args and isinstance(error.args[0], Sentence) else str(error)


def refused(site: Site, refusal: Refusal, as_json: bool, language: str) -> Response:
    """The refusal as a page or as JSON."""
    message = say(refusal.sentence, language)
    if as_json:
        response: Response = JSONResponse({"error": message}, refusal.status)
    else:
        values = {"status": refusal.status, "sentence": message}
        response = site.page("refusal.html", values, refusal.status, language=language)
    if refusal.retry_after:
        response.headers["retry-after"] = str(refusal.retry_after)
    return response


def _by_script(route: Route) -> bool:
    """Whether the route is called from JavaScript and answers in JSON."""
    return route.form in ("json", "file")


async def _read(request: Request, longest: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > longest:
            raise Refusal(
                413, Sentence("The request is too large: at most %(most)s KiB can be sent.", most=longest // 1024)
            )
    return bytes(body)


def _respond(site: Site, route: Route, request: Request, body: bytes) -> Response:
    language = choose_language((), wanted_languages(request))
    try:
        call = _known(site, request)
        reads = route.who in ("owner", "reviewer") and call.rater is not None and call.rater.role in DECIDING
        language = call.reading if reads else call.language
        response = _answered(route, _admit(call, route, request, body))
        if "location" in response.headers:
            response.headers["location"] = rooted(site.root, response.headers["location"])
        return response
    except Refusal as refusal:
        problem = refusal
        if refusal.study is not None:
            language = choose_language(refusal.study.languages, wanted_languages(request))
    except Unavailable as error:
        problem = Refusal(503, sentence(error), retry_after=2)
    except TutelageError as error:
        problem = Refusal(400, sentence(error))
    return refused(site, problem, _by_script(route), language)


def _answered(route: Route, call: Call) -> Response:
    try:
        return route.answer(call)
    except TutelageError as error:
        if route.page is None:
            raise
        return route.page(call, error)


def _admit(call: Call, route: Route, request: Request, body: bytes) -> Call:
    """The call with its parsed body, if the client is allowed to make it."""
    if route.method == "POST" and not is_own_origin(request.headers, call.site.origin):
        raise Refusal(403, _wrong_origin(call.site, request))
    fields = _fields(body) if route.form == "form" else {}
    if route.who != "anyone":
        if call.rater is None:
            raise Refusal(401, NOT_SIGNED_IN)
        if route.method == "POST":
            token = request.headers.get("x-csrf-token") or "".join(fields.get("csrf", ())[-1:])
            if not csrf_matches(call.session, token):
                raise Refusal(403, TOO_OLD)
        if call.rater.role not in ADMITTED[route.who]:
            raise Refusal(403, REFUSED[route.who])
    data = _json(request, body) if route.form == "json" and route.method == "POST" else {}
    return replace(call, fields=fields, data=data, body=body if route.form == "file" else b"")


def _known(site: Site, request: Request) -> Call:
    """The call before authorisation: session, study, cookies and languages."""
    session, device = request.cookies.get(site.cookie, ""), device_of(request.headers.get("user-agent", ""))
    peer = request.client.host if request.client else ""
    rater, session_id = (session and use_session(site.store, session, device)) or (None, None)
    if rater and not (site.holds(rater.study_id) and site.sign_in.still_admit(rater, request)):
        rater, session_id = None, None
    return Call(
        site=site,
        path=_writable(request.path_params),
        query=_collected(request.query_params.multi_items()),
        address=site.proxies.client(peer, ",".join(request.headers.getlist("x-forwarded-for"))),
        origin=(site.origin or request.headers.get("origin") or f"http://{request.headers.get('host', '')}")
        + site.root,
        visitor=site.sign_in.visitor(request) if rater is None else None,
        cookies=request.cookies,
        session=session if rater else "",
        at=request.url.path.removeprefix(site.root) + (f"?{request.url.query}" if request.url.query else ""),
        wanted=wanted_languages(request),
        session_id=session_id,
        device=device,
        rater=rater,
        study=study_of(site.store, rater.study_id) if rater else None,
    )


def _wrong_origin(site: Site, request: Request) -> Sentence:
    origin = request.headers.get("origin", "")
    return Sentence(
        "This was sent from %(seen)s, but this site is %(own)s, so it was refused. If the site stands behind a proxy, "
        "start it with the address that browsers use: %(command)s",
        seen=origin or Sentence("a page that does not say where it is"),
        own=site.origin or f"http://{request.headers.get('host', '')}",
        command=f"tutelage collect serve --public-url {origin if origin.startswith('http') else 'ADDRESS'}",
    )


def _fields(body: bytes) -> Fields:
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=500)
    except ValueError as error:
        raise Refusal(400, Sentence("The form that was sent cannot be read: %(reason)s.", reason=str(error))) from error
    return _collected(pairs)


def _writable(values: Mapping[str, str]) -> Mapping[str, str]:
    """The values. Raises Refusal for a NUL character, which no database stores and no page sends."""
    for name, value in values.items():
        if "\0" in name or "\0" in value:
            raise Refusal(400, Sentence("A NUL character cannot be used in %(name)s.", name=ascii(name[:50])))
    return values


def _collected(pairs: Iterable[tuple[str, str]]) -> Fields:
    fields: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        _writable({name: value})
        fields[name] = (*fields.get(name, ()), value)
    return fields


def _json(request: Request, body: bytes) -> Mapping[str, object]:
    kind = request.headers.get("content-type", "").split(";")[0].strip()
    if kind != "application/json":
        raise Refusal(415, f"This address takes application/json, not '{kind}'.")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise Refusal(400, "The body is not a JSON object.")
    return data

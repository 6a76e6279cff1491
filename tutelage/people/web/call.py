"""Requests: who sends them, what they carry, and how they are refused."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from tutelage.errors import TutelageError
from tutelage.people import Rater, Store, Study, Unavailable, count_notices, rater_of_session
from tutelage.people.store.inbox import QUIET
from tutelage.people.store.studies import study_of
from tutelage.people.web.auth import csrf_matches, csrf_token, is_own_origin
from tutelage.people.web.site import Site
from tutelage.people.web.uploads import LONGEST_UPLOAD

LONGEST_BODY = 512 * 1024
LONGEST: Mapping[str, int] = {"file": LONGEST_UPLOAD}
"""The longest bodies that are read, by form, where that is not `LONGEST_BODY`."""

Who: TypeAlias = Literal["anyone", "rater", "owner"]
Form: TypeAlias = Literal["page", "form", "json", "file"]
Fields: TypeAlias = Mapping[str, tuple[str, ...]]


class Refusal(Exception):
    """A request that is not answered as asked: the status, and a sentence for whoever asked."""

    def __init__(self, status: int, sentence: str, *, retry_after: int = 0) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_after = status, sentence, retry_after


@dataclass(frozen=True)
class Call:
    """A request that may be answered. `rater` and `study` are those of the session; `fields` is a form that was sent,
    `data` the JSON, `body` a file. `origin` is the address of the site as the browser knows it, where it says so."""

    site: Site
    path: Mapping[str, str]
    query: Fields
    address: str
    origin: str
    session: str
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

    def text(self, name: str, default: str = "") -> str:
        """A field of the form, or of the address, without outer spaces."""
        values = self.fields.get(name) or self.query.get(name) or (default,)
        return values[-1].strip()

    def page(self, template: str, /, **values: object) -> Response:
        """A page from a template, which also gets the rater, the study and the token for its forms."""
        known: dict[str, object] = {
            "rater": self.rater,
            "study": self.study,
            "csrf": csrf_token(self.session) if self.rater else "",
            "now": self.store.now(),
        }
        if self.rater and self.rater.role == "owner":
            known["waiting"] = waiting = count_notices(self.store, self.here.id)
            known["waiting_in_all"] = sum(n for kind, n in waiting.items() if kind not in QUIET)
        return self.site.page(template, known | values)


class Route(NamedTuple):
    """An address: who may use it (an owner may do what a rater may), and what is sent to it."""

    method: Literal["GET", "POST"]
    path: str
    who: Who
    form: Form
    answer: Callable[[Call], Response]


def see(address: str) -> Response:
    """A redirect to the address."""
    return RedirectResponse(address, 303)


def answering(site: Site, route: Route) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a route: read what was sent here, do everything else in a thread."""

    async def endpoint(request: Request) -> Response:
        try:
            longest = LONGEST.get(route.form, LONGEST_BODY)
            body = await _read(request, longest) if route.method == "POST" else b""
        except Refusal as refusal:
            return refused(site, refusal, _by_script(route))
        return await run_in_threadpool(_respond, site, route, request, body)

    return endpoint


def refused(site: Site, refusal: Refusal, as_json: bool) -> Response:
    """The refusal as whoever asked can read it."""
    if as_json:
        response: Response = JSONResponse({"error": refusal.sentence}, refusal.status)
    else:
        values = {"status": refusal.status, "sentence": refusal.sentence}
        response = site.page("refusal.html", values, refusal.status)
    if refusal.retry_after:
        response.headers["retry-after"] = str(refusal.retry_after)
    return response


def _by_script(route: Route) -> bool:
    """Whether a script sends to the route, and reads JSON."""
    return route.form in ("json", "file")


async def _read(request: Request, longest: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > longest:
            raise Refusal(413, f"That is too much at once: at most {longest // 1024:,} KiB can be sent.")
    return bytes(body)


def _respond(site: Site, route: Route, request: Request, body: bytes) -> Response:
    try:
        call = _admit(site, route, request, body)
        return route.answer(call)
    except Refusal as refusal:
        return refused(site, refusal, _by_script(route))
    except Unavailable as error:
        return refused(site, Refusal(503, str(error), retry_after=2), _by_script(route))
    except TutelageError as error:
        return refused(site, Refusal(400, str(error)), _by_script(route))


def _admit(site: Site, route: Route, request: Request, body: bytes) -> Call:
    if route.method == "POST" and not is_own_origin(request.headers, site.origin):
        raise Refusal(403, _wrong_origin(site, request))
    session = request.cookies.get(site.cookie, "")
    rater = rater_of_session(site.store, session) if session else None
    fields = _fields(body) if route.form == "form" else {}
    if route.who != "anyone":
        if rater is None:
            raise Refusal(
                401,
                "You are not signed in, or your session is over. Open your personal link to go on as before; if you "
                "have none, ask whoever invited you for it. The link of an invitation would make you a new rater.",
            )
        if route.method == "POST":
            sent = request.headers.get("x-csrf-token") or "".join(fields.get("csrf", ())[-1:])
            if not csrf_matches(session, sent):
                raise Refusal(
                    403, "This page is too old to be answered: load it again, and send it once more."
                )
        if route.who == "owner" and rater.role != "owner":
            raise Refusal(403, "Only an owner of the study may do that.")
    return Call(
        site=site,
        path=dict(request.path_params),
        query=_collected(request.query_params.multi_items()),
        address=_address(site, request),
        origin=site.origin or request.headers.get("origin") or f"http://{request.headers.get('host', '')}",
        session=session if rater else "",
        rater=rater,
        study=study_of(site.store, rater.study_id) if rater else None,
        fields=fields,
        data=_json(request, body) if route.form == "json" and route.method == "POST" else {},
        body=body if route.form == "file" else b"",
    )


def _address(site: Site, request: Request) -> str:
    """The client's address; behind a proxy the proxy says so, in the last entry of its header."""
    forwarded = request.headers.get("x-forwarded-for", "") if site.origin else ""
    return forwarded.rpartition(",")[2].strip() or (request.client.host if request.client else "")


def _wrong_origin(site: Site, request: Request) -> str:
    seen = request.headers.get("origin") or "a page that does not say where it is"
    own = site.origin or f"http://{request.headers.get('host', '')}"
    address = seen if seen.startswith("http") else "followed by the address that browsers use"
    return (
        f"This was sent from {seen}, but this site is {own}, so it was refused. If the site stands behind a proxy, "
        f"start `tutelage collect serve` with --public-url {address}."
    )


def _fields(body: bytes) -> Fields:
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=500)
    except ValueError as error:
        raise Refusal(400, f"The form that was sent cannot be read: {error}.") from error
    return _collected(pairs)


def _collected(pairs: Iterable[tuple[str, str]]) -> Fields:
    fields: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        fields[name] = (*fields.get(name, ()), value)
    return fields


def _json(request: Request, body: bytes) -> Mapping[str, object]:
    kind = request.headers.get("content-type", "").split(";")[0].strip()
    if kind != "application/json":
        raise Refusal(415, f"This address takes application/json, not '{kind}'.")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"What was sent is no JSON: {error}.") from error
    if not isinstance(data, dict):
        raise Refusal(400, "What was sent is no JSON object.")
    return data

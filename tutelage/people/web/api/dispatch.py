"""API requests: authentication by token, parsing and error responses.

Tokens are accepted only in the Authorization header. Cookies are ignored, so pages of other sites cannot use the API
with a user's session. The token is checked before the body is read.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence
from tutelage.people import Store, Study, Unavailable
from tutelage.people.programs.api_values import NoQuery, Problem, Refused
from tutelage.people.settings import Right
from tutelage.people.store.api_tokens import KeyReused, Token, find_token, note_use
from tutelage.people.store.studies import study_of
from tutelage.people.web.site import Site

ROOT = "/api/v1"
LONGEST_BODY = 16 * 1024 * 1024
LONGEST_KEY = 200
JSON_LINES = "application/jsonl"


class ApiRefusal(Exception):
    """An API error response: status, problem, location and remedy."""

    def __init__(self, status: int, what: str, where: str, instead: str = "", *, retry_after: int = 0) -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.instead = status, what, where, instead
        self.retry_after = retry_after


@dataclass(frozen=True)
class ApiCall:
    """An admitted API request. `query` and `data` have the types that the route declares; `body` is the raw form of
    `data`, `key` the idempotency key or empty."""

    site: Site
    token: Token
    study: Study
    query: Any
    data: Any = None
    body: bytes = b""
    key: str = ""

    @property
    def store(self) -> Store:
        return self.site.store


class ReplyWithHeaders(NamedTuple):
    """A response with additional headers."""

    value: object
    headers: Mapping[str, str]


class ApiRoute(NamedTuple):
    """A route below `ROOT`: the required right (None for public routes), the types of query, body and response (with
    `lines`, of each line of the response), and whether it accepts an idempotency key (`keyed`)."""

    method: Literal["GET", "POST"]
    path: str
    right: Right | None
    name: str
    about: str
    answer: Callable[[ApiCall], object]
    result: type
    query: type = NoQuery
    data: type | None = None
    lines: bool = False
    keyed: bool = False


def answering(site: Site, route: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a route. Checks the token and reads the body asynchronously, and does everything else in a
    thread."""

    async def endpoint(request: Request) -> Response:
        try:
            call = await run_in_threadpool(_admit, site, route, request)
            body = await _read(request) if route.data is not None else b""
        except (ApiRefusal, TutelageError) as error:
            return refused(_as_refusal(error, route))
        return await run_in_threadpool(_respond, route, call, request, body)

    return endpoint


def refused(refusal: ApiRefusal) -> Response:
    """The refusal as JSON."""
    message = " ".join(
        filter(None, (f"{refusal.where}: {refusal.what}" if refusal.where else refusal.what, refusal.instead))
    )
    problem = Problem(refusal.what, refusal.where, refusal.instead, message)
    response = _json(Refused(problem), refusal.status)
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    if refusal.retry_after:
        response.headers["retry-after"] = str(refusal.retry_after)
    return response


def unknown_address(status: int, method: str, path: str) -> Response:
    """The response to a request below `ROOT` without a matching route."""
    what = "There is no such address." if status == HTTPStatus.NOT_FOUND else "It takes another method."
    return refused(ApiRefusal(status, what, f"{method} {path}", f"{ROOT}/openapi.json lists every address."))


def defect(method: str, path: str) -> Response:
    """The response to a request that caused an internal error."""
    what = "Something went wrong in the server, and this request changed nothing."
    return refused(ApiRefusal(500, what, f"{method} {path}", "The server's log has more."))


def _admit(site: Site, route: ApiRoute, request: Request) -> ApiCall | None:
    """The authorised call, before its body is read; None if the route is public."""
    if route.right is None:
        _query(route.query, request)
        return None
    token = _token(site, request)
    if route.right not in token.rights:
        raise ApiRefusal(
            403,
            f"The token '{token.name}' has no right to {route.right}.",
            "the header Authorization",
            f"Its rights: {', '.join(token.rights)}. An owner can create another token on the page Programs.",
        )
    with suppress(Unavailable):  # recording the last use is optional, answering is not
        note_use(site.store, token)
    key = request.headers.get("idempotency-key", "")
    if len(key) > LONGEST_KEY or not key.isprintable() or not key.isascii():
        raise ApiRefusal(
            400,
            "The idempotency key cannot be used.",
            "the header Idempotency-Key",
            f"Send at most {LONGEST_KEY} printable characters.",
        )
    return ApiCall(site, token, study_of(site.store, token.study_id), _query(route.query, request), key=key)


def _token(site: Site, request: Request) -> Token:
    where = "the header Authorization"
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise ApiRefusal(
            401,
            "The request has no token.",
            where,
            "Send 'Authorization: Bearer TOKEN'; owners create tokens on the page Programs.",
        )
    token = find_token(site.store, text.strip())
    if token is None or not site.holds(token.study_id):
        raise ApiRefusal(401, "The token is unknown.", where, "Check that it was copied completely.")
    if token.problem:
        raise ApiRefusal(401, token.problem, where, "Ask an owner of the study for a new one.")
    return token


def _query(kind: type, request: Request) -> Any:
    """The query string as a value of that type. Raises ApiRefusal for unknown or invalid parameters."""
    hints = get_type_hints(kind)
    parameters: dict[str, object] = {}
    for name in dict.fromkeys(request.query_params):
        where = f"'{name[:60]}' in the query"
        if name not in hints:
            names = ", ".join(hints) or "nothing"
            raise ApiRefusal(400, f"The parameter '{name[:60]}' is unknown.", where, f"Known parameters: {names}.")
        values = request.query_params.getlist(name)
        if any("\0" in value for value in values):
            raise ApiRefusal(400, "The parameter has a NUL character.", where, "Leave it out.")
        if any(get_origin(hint) is tuple for hint in (hints[name], *get_args(hints[name]))):
            parameters[name] = values
        elif len(values) == 1:
            parameters[name] = values[0]
        else:
            raise ApiRefusal(400, f"'{name}' is given {len(values)} times.", where, "Give it once.")
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        raise ApiRefusal(400, f"{what}.", f"'{place.rstrip('`')}' in the query") from error


async def _read(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").split(";")[0].strip()
    if kind != "application/json":
        raise ApiRefusal(415, f"The body is '{kind[:60]}'.", "the header Content-Type", "Send application/json.")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_BODY:
                most = f"{LONGEST_BODY // 1024**2} MiB"
                raise ApiRefusal(413, f"The body is longer than {most}.", "the body", "Send it in parts.")
    except ClientDisconnect as error:
        raise ApiRefusal(400, "The body ended too early.", "the body", "Send it again.") from error
    return bytes(body)


def _respond(route: ApiRoute, call: ApiCall | None, request: Request, body: bytes) -> Response:
    try:
        return _encoded(route, route.answer(_filled(route, call, body)))
    except (ApiRefusal, TutelageError) as error:
        return refused(_as_refusal(error, route))


def _filled(route: ApiRoute, call: ApiCall | None, body: bytes) -> ApiCall:
    """The call with its decoded body."""
    if call is None or route.data is None:
        return cast(ApiCall, call)  # public routes ignore the call
    try:
        data: object = msgspec.json.decode(body, type=route.data)
        has_nul = rb"\u0000" in body and _has_nul(msgspec.json.decode(body))
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `")
        raise ApiRefusal(400, f"{what}.", f"{place.rstrip('`') or '$'} in the body") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiRefusal(400, f"The body is not valid JSON: {error}.", "the body") from error
    if has_nul:
        raise ApiRefusal(400, "A text has a NUL character, which databases reject.", "the body", "Leave it out.")
    return ApiCall(call.site, call.token, call.study, call.query, data, body, call.key)


def _has_nul(value: object) -> bool:
    """Whether a text in a value of JSON has a NUL character."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, Mapping):
            rest += [*each, *each.values()]
        elif isinstance(each, list):
            rest += each
        elif isinstance(each, str) and "\0" in each:
            return True
    return False


def _encoded(route: ApiRoute, answer: object) -> Response:
    if route.lines:
        rows = cast(Iterable[object], answer)
        lines = (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
        return StreamingResponse(lines, media_type=JSON_LINES)
    if isinstance(answer, ReplyWithHeaders):
        response = _json(answer.value, 200)
        response.headers.update(answer.headers)
        return response
    return _json(answer, 200)


def _json(value: object, status: int) -> Response:
    encoded = msgspec.json.encode(value, enc_hook=_sentence_text)
    return Response(encoded, status, media_type="application/json")


def _sentence_text(value: object) -> str:
    """The English text of a translatable sentence."""
    if isinstance(value, Sentence):
        return str(value)
    raise NotImplementedError(f"cannot encode {type(value).__name__} in an API response")


def _as_refusal(error: ApiRefusal | TutelageError, route: ApiRoute) -> ApiRefusal:
    if isinstance(error, ApiRefusal):
        return error
    where = f"{route.method} {ROOT}{route.path}"
    if isinstance(error, Unavailable):
        return ApiRefusal(503, str(error), where, "Send the same request again.", retry_after=2)
    if isinstance(error, KeyReused):
        return ApiRefusal(409, str(error), "the header Idempotency-Key")
    return ApiRefusal(400, str(error), where)

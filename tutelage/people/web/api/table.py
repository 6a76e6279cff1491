"""Table of all API routes with their required rights, and the OpenAPI 3.1 description generated from it. The
authorisation tests are generated from it too."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_type_hints

import msgspec

from tutelage.base.version import __version__
from tutelage.people.grants import Right
from tutelage.people.operations import AMENDMENTS, EXPORT, GRANTS, IMPORTS
from tutelage.people.programs.api_values import (
    Added,
    CorrectionLine,
    ItemQuery,
    NewRows,
    NoQuery,
    PageQuery,
    PreferenceLine,
    Redact,
    Refused,
    Since,
    SpanLine,
    VoteLine,
    VoteQuery,
)
from tutelage.people.web.api import endpoints
from tutelage.people.web.api.changes import operation_routes, values_type
from tutelage.people.web.api.dispatch import JSON_LINES, ROOT, ApiCall, ApiRoute

ABOUT = (
    "The API of a study of people who compare answers, for programs. A token is of one study, and an owner makes it on "
    "the page Programs. Times are milliseconds since the epoch, shares lie between 0 and 1."
)
REFUSALS = {
    "400": "The request is wrong.",
    "401": "There is no token, or it cannot be used.",
    "403": "The token lacks the right.",
    "409": "The idempotency key came with another body, or there is too much to export at once.",
    "413": "The body is too long.",
    "415": "The body is no application/json.",
    "503": "The server cannot answer just now: send the same request again.",
}
_ONLY_WITH_BODY = ("413", "415")
_REFERENCE = "#/components/schemas/{name}"


def describe(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """The OpenAPI document for these routes."""
    types: list[Any] = [Refused]
    for route in routes:
        types += [kind for kind in (route.result, route.data, route.query) if kind not in (None, NoQuery)]
    definitions, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schemas = dict(zip(types, definitions, strict=True))
    queries = {route.query.__name__ for route in routes}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        query = components.get(route.query.__name__, {})
        paths.setdefault(ROOT + route.path, {})[route.method.lower()] = _operation(route, schemas, query)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Tutelage", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))  # lists in place of tuples
    return plain


def _operation(route: ApiRoute, schemas: Mapping[Any, Mapping[str, Any]], query: Mapping[str, Any]) -> dict[str, Any]:
    kind = JSON_LINES if route.lines else "application/json"
    refusal = {"application/json": {"schema": schemas[Refused]}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "security": [] if route.right is None else [{"token": []}],
        "responses": {"200": {"description": _answered(route), "content": {kind: {"schema": schemas[route.result]}}}}
        | {
            status: {"description": about, "content": refusal}
            for status, about in REFUSALS.items()
            if _may_be(status, route)
        },
    }
    if route.right is not None:
        operation["description"] = f"Needs a token with the right `{route.right}`."
    parameters = [_parameter(name, schema) for name, schema in query.get("properties", {}).items()]
    if route.data is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[route.data]}}}
        parameters += [_KEY] if route.keyed else []
    return operation | ({"parameters": parameters} if parameters else {})


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body adds once, however often it is sent, and gives the same answer.",
    "schema": {"type": "string", "maxLength": 200},
}


def _parameter(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key != "description"}
    description = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": "query", "required": False, "schema": plain} | description


def _answered(route: ApiRoute) -> str:
    return "A line of JSON for each." if route.lines else "The answer."


def _may_be(status: str, route: ApiRoute) -> bool:
    if route.right is None:
        return status == "400"
    return route.data is not None or status not in _ONLY_WITH_BODY


def description(call: ApiCall) -> dict[str, Any]:
    """The OpenAPI description of this API."""
    return describe(API_ROUTES)


def _route(
    method: Literal["GET", "POST"],
    path: str,
    right: Right | None,
    answer: Callable[[ApiCall], object],
    result: type | None = None,
    **more: Any,
) -> ApiRoute:
    """The route of a function, with its name, its docstring as description, and its return type unless `result` is
    given."""
    about = " ".join((answer.__doc__ or "").split())
    kind = result or get_type_hints(answer)["return"]
    return ApiRoute(method, path, right, answer.__name__, about, answer, kind, **more)


_PREFERENCES = values_type(EXPORT, "PreferenceQuery", (("redact", Redact, False),))
_WRITTEN = values_type(EXPORT, "WrittenQuery", (("redact", Redact, False), ("since", Since, 0)))

API_ROUTES = (
    _route("GET", "/openapi.json", None, description, dict),
    _route("GET", "/overview", "read", endpoints.overview),
    _route("GET", "/agreement", "read", endpoints.agreement),
    _route("GET", "/items", "read", endpoints.items, query=ItemQuery),
    _route("POST", "/items", "add", endpoints.add, Added, data=NewRows, keyed=True),
    _route("GET", "/raters", "read", endpoints.raters, query=PageQuery),
    _route("GET", "/preferences", "export", endpoints.preferences, PreferenceLine, query=_PREFERENCES, lines=True),
    _route("GET", "/corrections", "export", endpoints.corrections, CorrectionLine, query=_WRITTEN, lines=True),
    _route("GET", "/spans", "export", endpoints.spans, SpanLine, query=_WRITTEN, lines=True),
    _route("GET", "/votes", "export", endpoints.votes, VoteLine, query=VoteQuery, lines=True),
    *(route for operation in (*AMENDMENTS, *GRANTS, *IMPORTS) for route in operation_routes(operation)),
)

"""OpenAPI 3.1 description of the API, generated from its table of routes and their types."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tutelage.base.version import __version__
from tutelage.people.programs.api_values import NoQuery, Refused
from tutelage.people.web.api.admitting import JSON_LINES, ROOT, ApiRoute

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

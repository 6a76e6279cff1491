"""Every address of the API with every kind of token, cookies and tokens apart; and the description:
valid OpenAPI 3.1, and about the addresses that are served."""

from typing import get_type_hints

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tutelage.people import create_study
from tutelage.people.grants import RIGHTS, NewToken
from tutelage.people.store.api_tokens import create_token, list_tokens, revoke_token
from tutelage.people.web.api.dispatch import ROOT, ApiRoute
from tutelage.people.web.api.table import API_ROUTES
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.routes import ROUTES

from ..conftest import World
from .programs import DESCRIPTION, Program, program

WITH_TOKEN = [route for route in API_ROUTES if route.right is not None]


def named(route: ApiRoute) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", WITH_TOKEN, ids=named)
def test_a_route_takes_its_right_and_no_other(world: World, route: ApiRoute) -> None:
    for right in RIGHTS:
        response = program(world, right).use(route)
        assert response.status_code == (200 if right == route.right else 403)
        if right != route.right:
            assert f"no right to {route.right}" in response.json()["error"]["what"]


@pytest.mark.parametrize("route", WITH_TOKEN, ids=named)
def test_only_a_token_that_works_opens_a_route(world: World, route: ApiRoute) -> None:
    study = world.study.id
    revoked = create_token(world.store, study, NewToken("revoked", RIGHTS)).secret
    revoke_token(world.store, study, list_tokens(world.store, study)[0].id)
    expired = create_token(world.store, study, NewToken("expired", RIGHTS, days=0.01)).secret
    world.store.clock.seconds += 900  # type: ignore[attr-defined]
    invitation = world.owner().session
    for token in ("", "nonsense", revoked[:-1], revoked, expired, invitation):
        response = Program(world, token).use(route)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["cache-control"] == "no-store"
    for scheme in ("Basic", "bearer", "Token"):
        asks = program(world)
        asks.headers["authorization"] = asks.headers["authorization"].replace("Bearer", scheme)
        assert asks.use(route).status_code == (200 if scheme == "bearer" else 401)


@pytest.mark.parametrize("role", ["rater", "owner"])
def test_no_cookie_opens_a_route(world: World, role: str) -> None:
    browser = world.owner() if role == "owner" else world.rater()
    asks = Program(world, cookie=browser.headers()["cookie"])
    asks.headers |= {"origin": "http://site.test", "x-csrf-token": csrf_token(browser.session)}
    assert {asks.use(route).status_code for route in WITH_TOKEN} == {401}


def test_no_token_opens_a_page(world: World) -> None:
    stranger = {"origin": "http://site.test"}
    with_token = program(world).headers | stranger
    for route in ROUTES:
        path = route.path.replace("{token}", "x").replace("{number}", "1").replace("{key:path}", "x")
        found, expected = (
            world.client.request(route.method, path, headers=headers).status_code for headers in (with_token, stranger)
        )
        assert found == expected, route
        assert route.who == "anyone" or found == 401


def test_the_description_needs_no_token_and_tells_nothing_about_a_study(world: World) -> None:
    response = Program(world).get("/openapi.json")
    assert response.status_code == 200
    assert world.study.name not in response.text


def test_a_token_is_of_one_study(world: World) -> None:
    other = create_study(world.store, "another")
    asks = Program(world, create_token(world.store, other.id, NewToken("theirs", RIGHTS)).secret)
    assert asks.get("/overview").json()["study"] == "another"
    assert asks.get("/items").json() == {"items": [], "cursor": None}


def test_addresses_beside_the_table_are_refused_as_json(world: World) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("DELETE", "/items", 405)):
        response = world.client.request(method, ROOT + path)
        assert response.status_code == status
        assert "openapi.json" in response.json()["error"]["instead"]


def test_the_description_is_valid() -> None:
    OpenAPIV31SpecValidator(DESCRIPTION).validate()


def test_what_is_served_is_the_description_of_what_is_served(world: World) -> None:
    served = Program(world).get("/openapi.json").json()
    assert served == DESCRIPTION
    described = {(method.upper(), path) for path, each in served["paths"].items() for method in each}
    assert described == {(route.method, ROOT + route.path) for route in API_ROUTES}
    found = {
        (method, route.path)
        for route in world.app.routes
        if getattr(route, "path", "").startswith(ROOT)
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    assert described == found


def test_each_right_and_each_part_of_a_query_is_described() -> None:
    for route in API_ROUTES:
        told = DESCRIPTION["paths"][ROOT + route.path][route.method.lower()]
        assert bool(told["security"]) == (route.right is not None)
        assert route.right is None or f"`{route.right}`" in told["description"]
        asked = {each["name"] for each in told.get("parameters", ()) if each["in"] == "query"}
        assert asked == set(get_type_hints(route.query))

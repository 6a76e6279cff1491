"""The description of the API: valid OpenAPI 3.1, and about the routes that are served."""

from typing import get_type_hints

from openapi_spec_validator import OpenAPIV31SpecValidator

from tutelage.people.web.api.admitting import ROOT
from tutelage.people.web.api.table import API_ROUTES

from ..conftest import World
from .programs import DESCRIPTION, Program


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

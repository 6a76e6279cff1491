"""Table of all API routes with their required rights; the OpenAPI description and the authorisation tests are generated
from it."""

from tutelage.people.operations import AMENDMENTS, EXPORT, GRANTS
from tutelage.people.programs.api_values import (
    Added,
    AgreementFigures,
    ItemPage,
    ItemQuery,
    NewRows,
    Overview,
    PageQuery,
    PreferenceLine,
    RaterPage,
    VoteLine,
    VoteQuery,
)
from tutelage.people.web.api import endpoints
from tutelage.people.web.api.admitting import ApiCall, ApiRoute
from tutelage.people.web.api.changes import operation_routes, values_type
from tutelage.people.web.api.describing import describe


def description(call: ApiCall) -> object:
    """The OpenAPI description of this table."""
    return describe(API_ROUTES)


API_ROUTES = (
    ApiRoute("GET", "/openapi.json", None, "description", "This description of the API.", description, dict),
    ApiRoute("GET", "/overview", "read", "overview", "How far the study is.", endpoints.overview, Overview),
    ApiRoute(
        "GET",
        "/agreement",
        "read",
        "agreement",
        "How often two raters choose the same side.",
        endpoints.agreement,
        AgreementFigures,
    ),
    ApiRoute(
        "GET",
        "/items",
        "read",
        "items",
        "The items of the study, in the order they were added.",
        endpoints.items,
        ItemPage,
        query=ItemQuery,
    ),
    ApiRoute(
        "POST",
        "/items",
        "add",
        "add",
        "Add rows as items, all or none. Rows that are in the study already are counted and change nothing.",
        endpoints.add,
        Added,
        data=NewRows,
        keyed=True,
    ),
    ApiRoute(
        "GET",
        "/raters",
        "read",
        "raters",
        "The raters of the study in numbers.",
        endpoints.raters,
        RaterPage,
        query=PageQuery,
    ),
    ApiRoute(
        "GET",
        "/preferences",
        "export",
        "preferences",
        "The preferences that follow from the votes, one a line. The study keeps a record of the export.",
        endpoints.preferences,
        PreferenceLine,
        query=values_type(EXPORT, "PreferenceQuery"),
        lines=True,
    ),
    ApiRoute(
        "GET",
        "/votes",
        "export",
        "votes",
        "Every revision of every judgement, one a line.",
        endpoints.votes,
        VoteLine,
        query=VoteQuery,
        lines=True,
    ),
    *(route for operation in (*AMENDMENTS, *GRANTS) for route in operation_routes(operation)),
)

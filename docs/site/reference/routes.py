"""The page about the routes of the rating server, from its table of routes."""

from collections.abc import Mapping

from reference.markdown import cell, page, table
from tutelage.people.web.call import Route, Who
from tutelage.people.web.routes import ROUTES

INTRODUCTION = """\
Every route of `tutelage collect serve`, from the table used by the server and by the tests of its authorisation. If
one server has several studies, each has them below `/s/NAME`. The server is made for browsers: `page` returns HTML,
`form` takes a form with the token that its page holds and redirects, `json` takes and returns JSON with the same
token in the header `x-csrf-token`, `file` takes the body as a file. An error has its status (400, 403, 404, 409, 413,
429) and a sentence, as HTML or as `{"error": ...}`.

A browser gets the cookie of a session by `POST /join/TOKEN`. Routes may change with versions; `tutelage
collect simulate` is a client of them, `tutelage/people/web/client.py` its code.

Programs use [an API of their own](../collecting_api.md). The server of models, `tutelage serve`, has [a page of its
own](../serving.md)."""
WHO: Mapping[Who, str] = {
    "anyone": "Anyone",
    "rater": "Raters, reviewers and owners",
    "participant": "Raters and owners",
    "reviewer": "Reviewers and owners",
    "owner": "Owners",
}


def pages() -> dict[str, str]:
    parts = [
        f"## {name}\n\n{table(('request', 'takes', ''), (row(route) for route in ROUTES if route.who == who))}"
        for who, name in WHO.items()
    ]
    return {"reference/http.md": page("Routes of the rating server", INTRODUCTION, *parts)}


def row(route: Route) -> tuple[str, str, str]:
    said = (route.answer.__doc__ or "").strip().split("\n\n")[0]
    return f"`{route.method} {route.path}`", route.form, cell(said)

"""Who may do what: every route of the table with every role, and nothing beside the table."""

import pytest
from offenders import for_each
from starlette.routing import Mount

from tutelage.people import add_rater, create_invite, find_rater, list_invites, list_votes, next_assignment
from tutelage.people.settings import NewInvitation
from tutelage.people.web.api.dispatch import ROOT
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.call import Route
from tutelage.people.web.routes import ROUTES

from ..worlds import QUIET
from .conftest import Browser, World, make_study

ROLES = ("nobody", "rater", "reviewer", "owner")
REVIEWED = (
    "GET /owner", "GET /owner/inbox", "GET /owner/history", "GET /owner/raters", "GET /owner/raters/{number}",
    "GET /owner/items", "GET /owner/items/{key:path}", "GET /owner/models", "GET /owner/export",
    "GET /owner/sessions", "POST /owner/sessions",
)  # fmt: skip
"""The addresses below /owner that a reviewer may use: pages to read, and their own sessions."""
JUDGING = ("GET /rate", "POST /rate/next", "POST /rate/answers", "POST /rate/renew", "GET /rate/recent")
"""The addresses below /rate that a reviewer needs to judge an item."""


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def allowed(route: Route, role: str) -> bool:
    """What the roles promise, told by the addresses and not by the table's own words."""
    if route.who == "anyone" or role == "owner":
        return True
    if role == "rater":
        return not route.path.startswith("/owner")
    if role == "reviewer" and route.path.startswith(("/owner", "/rate")):
        return named(route) in (*REVIEWED, *JUDGING)
    return role == "reviewer"


def visitor(world: World, role: str) -> Browser:
    everybody = {
        "nobody": world.nobody, "rater": world.rater, "reviewer": world.reviewer, "owner": world.owner,
    }  # fmt: skip
    return everybody[role]()


def test_nobody_gets_in_beside_those_who_need_no_session() -> None:
    """Of all addresses only these let anyone in."""
    assert {named(route) for route in ROUTES if route.who == "anyone"} == {
        "GET /", "GET /join/{token}", "POST /join/{token}", "GET /return/{token}", "POST /return/{token}",
        "GET /enter/{token}", "POST /enter/{token}", "GET /healthz", "GET /sign-in", "GET /sign-in/callback",
        "POST /language",
    }  # fmt: skip


def address(route: Route) -> str:
    return route.path.replace("{token}", "no-such-token").replace("{number}", "1").replace("{key:path}", "nothing")


def request(browser: Browser, route: Route, **headers: str) -> int:
    if route.method == "GET":
        return browser.get(address(route), **headers).status_code
    if route.form == "json":
        return browser.json(address(route), {}, **headers).status_code
    if route.form == "file":
        return browser.file(address(route), b"a,b\n1,2\n", **headers).status_code
    return browser.form(address(route), {}, **headers).status_code


@pytest.mark.parametrize("role", ROLES)
@for_each(ROUTES, named)
def test_routes_let_in_whom_the_table_says(route: Route, world: World, role: str) -> None:
    status = request(visitor(world, role), route)
    if allowed(route, role):
        assert status not in (401, 403, 405, 500)
    else:
        assert status == (401 if role == "nobody" else 403)


def test_no_address_is_beside_the_table(world: World) -> None:
    """Those below `ROOT` are held against a table of their own, in `api/test_table.py`."""
    served = [route for route in world.app.routes if not isinstance(route, Mount)]
    served = [route for route in served if not route.path.startswith(ROOT)]  # type: ignore[attr-defined]
    assert {(method, route.path) for route in served for method in route.methods - {"HEAD"}} == {  # type: ignore[attr-defined]
        (route.method, route.path) for route in ROUTES
    }
    assert [route.path for route in world.app.routes if isinstance(route, Mount)] == ["/static"]


@for_each([route for route in ROUTES if route.method == "POST"], named)
def test_a_change_from_another_site_is_refused(route: Route, world: World) -> None:
    for origin in ("http://evil.test", "null", "http://site.test.evil.test", "https://site.test:444"):
        assert request(world.owner(), route, origin=origin) == 403, origin


@for_each([route for route in ROUTES if route.method == "POST" and route.who != "anyone"], named)
def test_a_change_without_the_token_of_the_session_is_refused(route: Route, world: World) -> None:
    browser = world.owner()
    other = csrf_token(world.owner().session)
    for token in ("", "0" * 64, other):
        headers = browser.headers(**{"x-csrf-token": token})
        if route.form == "json":
            status = world.client.post(address(route), json={}, headers=headers).status_code
        else:
            status = world.client.post(address(route), data={"csrf": token}, headers=headers).status_code
        assert status == 403


def test_a_request_that_tells_no_origin_is_refused_unless_the_browser_vouches_for_it(world: World) -> None:
    browser = world.rater()
    headers = browser.headers(**{"x-csrf-token": csrf_token(browser.session)})
    del headers["origin"]
    assert world.client.post("/rate/renew", json={}, headers=headers).status_code == 403
    vouched = headers | {"sec-fetch-site": "same-origin"}
    assert world.client.post("/rate/renew", json={}, headers=vouched).status_code == 200


def test_reading_needs_no_token(world: World) -> None:
    assert world.client.get("/rate", headers={"cookie": world.rater().headers()["cookie"]}).status_code == 200


def test_an_owner_has_no_power_over_another_study(world: World) -> None:
    other = make_study(world.store, name="another", plan=QUIET)
    stranger = add_rater(world.store, other.id, "stranger")
    create_invite(world.store, other.id, NewInvitation(note="theirs"))
    theirs = list_invites(world.store, other.id)[0]
    owner = world.owner()
    assert owner.get(f"/owner/raters/{stranger.id}").status_code == 404
    assert owner.form(f"/owner/raters/{stranger.id}", {"state": "paused"}).status_code == 404
    assert owner.form(f"/owner/raters/{stranger.id}/link").status_code == 404
    assert owner.form("/owner/invitations/withdraw", {"invite": theirs.id}).status_code == 404
    refused = owner.form("/owner/exclusions", {"scope": "rater", "name": "stranger", "reason": "x"})
    assert refused.status_code == 400
    assert find_rater(world.store, other.id, "stranger") == stranger
    assert list_invites(world.store, other.id)[0].problem == ""


def test_nobody_answers_for_somebody_else(world: World) -> None:
    victim = add_rater(world.store, world.study.id, "victim")
    question = next_assignment(world.store, victim.id)
    assert question is not None
    for browser in (world.rater(), world.reviewer(), world.owner()):
        reply = browser.answer({"id": question.id})
        assert reply.status_code == 400
        assert "exist" in reply.json()["error"]
    assert list_votes(world.store, world.study.id) == ()


def test_only_owners_choose_what_to_judge(world: World) -> None:
    rater = world.rater()
    assert rater.get("/rate?item=anything").status_code == 403
    assert rater.json("/rate/next", {"item": "ITEM-KEY/c0"}).status_code == 400
    owner = world.owner()
    assert owner.json("/rate/next", {"item": "ITEM-KEY/c0"}).json()["question"] is not None


def test_nothing_is_asked_before_consent(world: World) -> None:
    rater = add_rater(world.store, world.study.id, "new")
    browser = world.browser_of(rater)
    assert browser.get("/rate").headers["location"] == "/welcome"
    assert browser.json("/rate/next", {}).status_code == 403
    assert browser.form("/welcome").headers["location"] == "/rate"
    assert browser.json("/rate/next", {}).json()["question"] is not None

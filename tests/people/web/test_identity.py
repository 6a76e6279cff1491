"""Who a trusted proxy says it is: believed from its address alone, and in every request."""

import pytest
from offenders import for_each
from starlette.requests import Request
from starlette.testclient import TestClient

from tutelage.base.errors import TutelageError
from tutelage.people import Store
from tutelage.people.store.members import list_team
from tutelage.people.web import create_app
from tutelage.people.web.identity import Proxy, Roles, SignInMethods

from .conftest import URL, make_study

ROLES = Roles(owners=("olga",), reviewers=("rita@example.org",))
USER = "x-forwarded-user"


def browser(store: Store, host: str = "10.0.0.7") -> TestClient:
    """A browser whose requests come from this address."""
    sign_in = SignInMethods(None, Proxy("X-Forwarded-User", ("10.0.0.0/24", "::1")), ROLES)
    return TestClient(create_app(store, sign_in=sign_in), URL, follow_redirects=False, client=(host, 1))


def test_whom_the_proxy_names_is_signed_in_as_long_as_it_says_so(lite: Store) -> None:
    study = make_study(lite)
    http = browser(lite)
    assert http.get("/", headers={USER: "olga"}).headers["location"] == "/sign-in"
    assert http.get("/sign-in", headers={USER: "olga"}).headers["location"] == "/owner"
    assert http.get("/owner", headers={USER: "Olga"}).status_code == 200
    for headers in ({}, {USER: "rita@example.org"}, {USER: "eve"}):
        assert http.get("/owner", headers=headers).status_code == 401
    assert [(member.name, member.role) for member in list_team(lite, study.id)] == [("olga", "owner")]
    http.get("/sign-in", headers={USER: "rita@example.org"})
    assert http.get("/owner", headers={USER: "rita@example.org"}).status_code == 200
    assert http.get("/owner/settings", headers={USER: "rita@example.org"}).status_code == 403


@pytest.mark.parametrize("host", ["10.0.1.7", "127.0.0.1", "testclient", "", "::2"])
def test_the_header_of_anybody_else_counts_for_nothing(lite: Store, host: str) -> None:
    study = make_study(lite)
    http = browser(lite, host)
    headers = {USER: "olga", "x-forwarded-for": "10.0.0.7"}
    assert http.get("/sign-in", headers=headers).status_code == 404
    assert http.get("/", headers=headers).status_code == 200
    assert list_team(lite, study.id) == ()
    trusted = browser(lite)
    trusted.get("/sign-in", headers=headers)
    assert trusted.get("/owner", headers=headers).status_code == 200
    http.cookies.update(trusted.cookies)
    assert http.get("/owner", headers=headers).status_code == 401


def test_a_header_that_comes_twice_names_nobody(lite: Store) -> None:
    make_study(lite)
    request = Request({
        "type": "http", "client": ("10.0.0.7", 1), "headers": [(b"x-user", b"olga"), (b"x-user", b"eve")],
    })  # fmt: skip
    assert Proxy("x-user", ("10.0.0.7",)).user(request) == ""


def test_a_session_by_the_proxy_is_over_where_the_proxy_is_not_trusted_any_more(lite: Store) -> None:
    make_study(lite)
    http = browser(lite)
    http.get("/sign-in", headers={USER: "olga"})
    plain = TestClient(create_app(lite), URL, follow_redirects=False, client=("10.0.0.7", 1))
    plain.cookies.update(http.cookies)
    assert plain.get("/owner", headers={USER: "olga"}).status_code == 401


@pytest.mark.parametrize("addresses", [(), ("proxy.local",), ("10.0.0.0/40",)])
def test_a_proxy_without_an_address_is_refused(addresses: tuple[str, ...]) -> None:
    with pytest.raises(TutelageError, match="address"):
        Proxy("X-Forwarded-User", addresses)


@for_each(
    [
        ("OLGA@a.org", "owner"),
        ("x@b.org", "reviewer"),
        ("olga@b.org", "reviewer"),
        ("b.org", None),
        ("@b.org", "reviewer"),
        ("x@c.org", None),
        ("", None),
        ("x@b.org.c", None),
    ]
)
def test_roles_go_by_whole_addresses_and_domains(contact: str, role: str | None) -> None:
    assert Roles(owners=("olga@a.org",), reviewers=("@b.org", "olga@a.org")).role_of(contact) == role

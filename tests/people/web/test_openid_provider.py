"""Signing in at a provider: the flow as a browser goes through it, and everything that must not get in."""

import base64
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from offenders import for_each
from starlette.testclient import TestClient

from tutelage.base.errors import TutelageError
from tutelage.people import Store, list_events, list_raters, rater_of_session
from tutelage.people.store.members import list_team, remove_member
from tutelage.people.web import Served, create_app, create_server
from tutelage.people.web.identity import Provider, Roles, SignInMethods
from tutelage.people.web.site import cookie_name

from .conftest import URL, make_study
from .provider import CLIENT, SECRET, StubProvider, provider

pytest.importorskip("authlib", reason="the extra oidc is not installed here")


@pytest.fixture(scope="module")
def running() -> Iterator[StubProvider]:
    with provider() as stub:
        yield stub


@pytest.fixture
def stub(running: StubProvider) -> StubProvider:
    running.claims, running.key, running.algorithm = {}, "right", "RS256"
    running.told.clear()
    return running


def sign_in(stub: StubProvider, **roles: tuple[str, ...]) -> SignInMethods:
    found = Roles(**roles) if roles else Roles(owners=("olga@example.org",), reviewers=("@example.org",))
    return SignInMethods(Provider(stub.issuer, CLIENT, SECRET), None, found)


def browser(store: Store, stub: StubProvider, **roles: tuple[str, ...]) -> TestClient:
    return TestClient(create_app(store, sign_in=sign_in(stub, **roles)), URL, follow_redirects=False)


def signed_in(http: TestClient, stub: StubProvider, root: str = "") -> httpx.Response:
    """Go to the provider and back."""
    begun = http.get(f"{root}/sign-in")
    assert begun.status_code == 303
    reply = http.get(stub.authorise(begun.headers["location"]))
    while "/sign-in/callback" in reply.headers.get("location", ""):  # from the front to the study
        reply = http.get(reply.headers["location"])
    return reply


def test_a_person_with_a_role_becomes_a_member_of_the_same_name_once(lite: Store, stub: StubProvider) -> None:
    study = make_study(lite)
    for _ in range(2):
        http = browser(lite, stub)
        assert "/sign-in" in http.get("/").text
        reply = signed_in(http, stub)
        assert (reply.status_code, reply.headers["location"]) == (303, "/owner")
        member = rater_of_session(lite, http.cookies[cookie_name(lite, secure=False)])
        assert member is not None
        assert (member.name, member.role, member.contact) == ("Olga", "owner", "olga@example.org")
        assert http.get("/owner").status_code == 200
        assert "tutelage_signing" not in http.cookies
    assert len(list_team(lite, study.id)) == 1
    sent = stub.told[0]
    assert len(sent["code_verifier"]) >= 43
    assert base64.b64decode(sent["authorization"].removeprefix("Basic ")).decode() == f"{CLIENT}:{SECRET}"


def test_the_role_follows_the_settings_and_a_removed_member_stays_out(lite: Store, stub: StubProvider) -> None:
    study = make_study(lite)
    http = browser(lite, stub)
    signed_in(http, stub)
    session = {"cookie": f"{cookie_name(lite, secure=False)}={http.cookies[cookie_name(lite, secure=False)]}"}
    assert http.get("/owner/settings").status_code == 200
    later = browser(lite, stub, owners=("new@example.org",), reviewers=("@EXAMPLE.org",))
    assert later.get("/owner", headers=session).status_code == 401
    signed_in(later, stub)
    assert later.get("/owner").status_code == 200
    assert later.get("/owner/settings").status_code == 403
    [olga] = list_team(lite, study.id)
    assert [event.action for event in list_events(lite, study.id)][:1] == ["role_changed"]
    remove_member(lite, olga.id, actor="somebody")
    assert later.get("/owner").status_code == 401
    refused = signed_in(later, stub)
    assert refused.status_code == 403
    assert "taken away" in refused.text


def test_two_people_of_one_name_are_two(lite: Store, stub: StubProvider) -> None:
    study = make_study(lite)
    for subject in ("u1", "u2"):
        stub.claims = {"sub": subject}
        signed_in(browser(lite, stub), stub)
    assert [member.name for member in list_team(lite, study.id)] == ["Olga", "Olga 2"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nonce": ({"nonce": "another"}, "identity token"),
    "no nonce": ({"nonce": None}, "identity token"),
    "issuer": ({"iss": "https://evil.example"}, "identity token"),
    "audience": ({"aud": "another"}, "identity token"),
    "no audience": ({"aud": None}, "identity token"),
    "expired": ({"exp": int(time.time()) - 3600}, "identity token"),
    "never expires": ({"exp": None}, "identity token"),
    "of tomorrow": ({"nbf": int(time.time()) + 3600}, "identity token"),
    "no subject": ({"sub": None}, "identity token"),
    "another client": ({"aud": [CLIENT, "another"], "azp": "another"}, "another client"),
    "not verified": ({"email_verified": False}, "verified"),
    "does not say": ({"email_verified": None}, "verified"),
    "no address": ({"email": None}, "verified"),
    "no role": ({"email": "eve@evil.example"}, "no role"),
    "domain as a part": ({"email": "eve@notexample.org"}, "no role"),
    "domain below": ({"email": "eve@example.org.evil.example"}, "no role"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_token_that_does_not_hold_lets_nobody_in(lite: Store, stub: StubProvider, fault: str) -> None:
    study = make_study(lite)
    stub.claims, complaint = WRONG[fault]
    http = browser(lite, stub)
    reply = signed_in(http, stub)
    assert reply.status_code == 403
    assert complaint in reply.text
    assert cookie_name(lite, secure=False) not in http.cookies
    assert list_raters(lite, study.id) == ()


def test_a_token_with_another_key_lets_nobody_in(lite: Store, stub: StubProvider) -> None:
    make_study(lite)
    stub.key = "wrong"
    assert signed_in(browser(lite, stub), stub).status_code == 403


def test_a_code_counts_for_the_browser_that_began_and_once(lite: Store, stub: StubProvider) -> None:
    make_study(lite)
    one, other = browser(lite, stub), browser(lite, stub)
    back = stub.authorise(one.get("/sign-in").headers["location"])
    assert "began no sign-in" in other.get(back).text
    other.get("/sign-in")
    assert "not the sign-in that this browser began" in other.get(back).text
    assert stub.told == []
    kept = {"cookie": f"tutelage_signing={one.cookies['tutelage_signing']}"}
    assert one.get(back).status_code == 303
    again = one.get(back, headers=kept)
    assert again.status_code == 403
    assert "did not accept" in again.text
    assert "denied" in one.get(f"/sign-in/callback?error=denied&state={_state(one)}").text
    one.cookies.set("tutelage_signing", "nonsense", path="/sign-in")
    assert one.get(back).status_code == 403


def _state(http: TestClient) -> str:
    return httpx.URL(http.get("/sign-in").headers["location"]).params["state"]


def test_an_answer_of_another_provider_is_refused(lite: Store, stub: StubProvider) -> None:
    make_study(lite)
    http = browser(lite, stub)
    back = stub.authorise(http.get("/sign-in").headers["location"])
    assert http.get(f"{back}&iss=https%3A%2F%2Fevil.example").status_code == 403


def test_signing_in_to_a_study_among_several_stays_there(lite: Store, stub: StubProvider) -> None:
    studies = [make_study(lite), make_study(lite, name="other")]
    server = create_server([Served(lite, study) for study in studies], sign_in=sign_in(stub))
    http = TestClient(server, URL, follow_redirects=False)
    reply = signed_in(http, stub, "/s/other")
    assert reply.headers["location"] == "/s/other/owner"
    assert [len(list_team(lite, study.id)) for study in studies] == [0, 1]
    assert http.get("/s/other/owner").status_code == 200
    assert http.get("/s/tutoring/owner").status_code == 401
    asked = http.get("/s/other/sign-in").headers["location"]
    assert parse_qs(urlsplit(asked).query)["redirect_uri"] == [f"{URL}/sign-in/callback"]  # one for both
    for state in ("", "x", "/s/nowhere.x", "https://evil.test.x", "//evil.test/.x"):
        assert http.get("/sign-in/callback", params={"state": state, "code": "c"}).status_code == 404


@for_each(["http://id.example.org", "id.example.org", "ftp://x", ""])
def test_a_provider_without_encryption_is_refused(issuer: str) -> None:
    with pytest.raises(TutelageError, match="https"):
        Provider(issuer, CLIENT)


def test_a_provider_that_is_gone_or_another_is_a_sentence(lite: Store, stub: StubProvider) -> None:
    make_study(lite)
    gone = SignInMethods(Provider("http://127.0.0.1:9", CLIENT), None, Roles())
    reply = TestClient(create_app(lite, sign_in=gone), URL).get("/sign-in")
    assert reply.status_code == 502
    assert "cannot be asked" in reply.text
    other = SignInMethods(Provider(stub.issuer + "/", CLIENT), None, Roles())
    reply = TestClient(create_app(lite, sign_in=other), URL).get("/sign-in")
    assert "describes itself as" in reply.text
    assert SECRET not in repr(Provider(stub.issuer, CLIENT, SECRET))


def test_without_a_provider_there_is_nothing_to_sign_in_at(lite: Store) -> None:
    make_study(lite)
    http = TestClient(create_app(lite), URL, follow_redirects=False)
    assert http.get("/sign-in").status_code == http.get("/sign-in/callback?code=x&state=y").status_code == 404
    assert "/sign-in" not in http.get("/").text

"""Coming in and going out: invitations, personal links, sessions, attempts."""

import re
from pathlib import Path

import pytest
from offenders import for_each
from starlette.testclient import TestClient

from tutelage.people import (
    Store,
    add_rater,
    create_invite,
    end_session,
    find_rater,
    list_events,
    list_invites,
    list_raters,
    personal_link,
    rater_of_session,
    start_session,
)
from tutelage.people.recruitment import Recruitment
from tutelage.people.settings import NewInvitation
from tutelage.people.store.visits import entry_of, recruit
from tutelage.people.web import create_app
from tutelage.people.web.auth import Attempts, csrf_token, is_own_origin

from ...worlds import Clock
from ..conftest import URL, Browser, World, csrf_in, make_study


def accept(browser: Browser, token: str, name: str = "anna") -> str:
    """The session that the browser is given."""
    reply = browser.form(f"/join/{token}", {"name": name})
    assert reply.status_code == 303, reply.text
    found = re.match(rf"{browser.cookie}=([\w-]+); ", reply.headers["set-cookie"])
    assert found is not None
    return found[1]


def test_looking_at_an_invitation_uses_nothing_up(world: World) -> None:
    token = create_invite(world.store, world.study.id).secret
    for _ in range(3):
        page = world.nobody().get(f"/join/{token}")
        assert page.status_code == 200
        assert "<form" in page.text
        assert "set-cookie" not in page.headers
    assert list_invites(world.store, world.study.id)[0].uses == 0
    assert list_raters(world.store, world.study.id) == ()


def test_accepting_makes_a_rater_with_a_session_once(world: World) -> None:
    token = create_invite(world.store, world.study.id).secret
    session = accept(world.nobody(), token)
    rater = rater_of_session(world.store, session)
    assert rater is not None
    assert (rater.name, rater.role, rater.study_id) == ("anna", "rater", world.study.id)
    again = world.nobody().form(f"/join/{token}", {"name": "berta"})
    assert again.status_code == 400
    assert "used already" in again.text
    assert find_rater(world.store, world.study.id, "berta") is None


def test_the_name_may_be_corrected_without_losing_the_invitation(world: World) -> None:
    token = create_invite(world.store, world.study.id).secret
    add_rater(world.store, world.study.id, "anna")
    taken = world.nobody().form(f"/join/{token}", {"name": "anna"})
    assert taken.status_code == 400
    assert 'value="anna"' in taken.text
    assert world.nobody().form(f"/join/{token}", {"name": "  "}).status_code == 400
    assert accept(world.nobody(), token, "anna b.")


def test_an_invitation_for_owners_makes_owners(world: World) -> None:
    token = create_invite(world.store, world.study.id, NewInvitation(role="owner")).secret
    browser = world.nobody()
    browser.session, browser.blind = accept(browser, token, "boss"), False
    assert browser.get("/").headers["location"] == "/owner"
    assert browser.get("/owner").status_code == 200


def test_the_cookie_is_out_of_reach_and_does_not_travel(world: World) -> None:
    reply = world.nobody().form(f"/join/{create_invite(world.store, world.study.id).secret}", {"name": "anna"})
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" not in cookie


def test_behind_https_the_cookie_is_secure_and_bound_to_the_host(world: World) -> None:
    public = World(world.store, world.study, public_url="https://rate.example.org")
    reply = public.client.post(
        f"/join/{create_invite(world.store, world.study.id).secret}",
        data={"name": "anna"},
        headers={"origin": "https://rate.example.org"},
    )
    assert reply.status_code == 303
    assert reply.headers["set-cookie"].startswith("__Host-tutelage_")
    assert "; Secure" in reply.headers["set-cookie"]


@pytest.mark.parametrize("url", ["rate.example.org", "ftp://x", "https://", "https://x.org/sub?a=b"])
def test_a_public_url_that_is_none_is_refused(lite: Store, url: str) -> None:
    with pytest.raises(Exception, match="URL"):
        create_app(lite, public_url=url)


def test_no_token_is_kept_in_the_database(world: World, folder: Path) -> None:
    invite = create_invite(world.store, world.study.id).secret
    session = accept(world.nobody(), invite)
    link = start_session(world.store, 1)
    stored = b"".join(path.read_bytes() for path in folder.glob("study.sqlite*"))
    for token in (invite, session, link):
        assert len(token) >= 43  # 256 bits
        assert token.encode() not in stored


def test_a_session_planted_beforehand_is_of_no_use(world: World) -> None:
    """Session fixation: whatever cookie is there before, coming in gives a new one and ends the old."""
    planted = start_session(world.store, add_rater(world.store, world.study.id, "mallory").id)
    browser = world.nobody()
    browser.session = planted
    session = accept(browser, create_invite(world.store, world.study.id).secret)
    assert session != planted
    assert rater_of_session(world.store, planted) is None
    rater = rater_of_session(world.store, session)
    assert rater is not None
    assert rater.name == "anna"


def test_leaving_ends_the_session_and_gives_back_what_was_asked(world: World) -> None:
    browser = world.rater()
    first = browser.next()["question"]
    reply = browser.form("/leave")
    assert reply.status_code == 200
    assert "Max-Age=0" in reply.headers["set-cookie"]
    assert rater_of_session(world.store, browser.session) is None
    assert browser.get("/rate").status_code == 401
    texts = {response["text"] for response in first["responses"]}
    asked = [question for _ in range(1) if (question := world.rater().next()["question"])]
    assert {response["text"] for response in asked[0]["responses"]} == texts


def test_a_personal_link_works_once_and_is_a_session_of_the_same_rater(world: World) -> None:
    rater = add_rater(world.store, world.study.id, "anna")
    link = start_session(world.store, rater.id, days=1)
    page = world.nobody().get(f"/return/{link}")
    assert "anna" in page.text
    assert "set-cookie" not in page.headers
    reply = world.nobody().form(f"/return/{link}")
    assert reply.status_code == 303
    session = reply.headers["set-cookie"].split("=")[1].split(";")[0]
    assert session != link
    found = rater_of_session(world.store, session)
    assert found is not None
    assert found.id == rater.id
    assert rater_of_session(world.store, link) is None
    assert world.nobody().form(f"/return/{link}").status_code == 404


def personal(page: str) -> str:
    """The token of the personal link on a page."""
    return page.split(f'value="{URL}/return/')[1].split('"')[0]


def test_leaving_shows_a_link_that_brings_the_same_rater_back_again_and_again(world: World) -> None:
    browser = world.rater("Bea")
    link = personal(browser.form("/leave").text)
    assert "Bea" in world.nobody().get(f"/return/{link}").text
    for _ in range(2):
        reply = world.nobody().form(f"/return/{link}")
        session = reply.headers["set-cookie"].split("=")[1].split(";")[0]
        found = rater_of_session(world.store, session)
        assert found is not None
        assert found.name == "Bea"
    assert [rater.name for rater in list_raters(world.store, world.study.id)] == ["Bea"]
    assert world.nobody().get(f"/join/{link}").status_code == 404  # it invites nobody new


def test_a_personal_link_that_was_withdrawn_or_is_old_opens_nothing(world: World) -> None:
    rater = add_rater(world.store, world.study.id, "Bea")
    old, withdrawn = (personal_link(world.store, rater.id, days=days) for days in (1, 30))
    owner = world.owner()
    number = list_invites(world.store, world.study.id, rater=rater.id)[0].id
    for wrong in ({}, {"rater": "x"}, {"rater": "999"}):
        assert owner.form("/owner/invitations/withdraw", {"invite": number, **wrong}).status_code == 404
    reply = owner.form("/owner/invitations/withdraw", {"invite": number, "rater": rater.id})
    assert reply.headers["location"] == f"/owner/raters/{rater.id}"
    assert isinstance(world.store.clock, Clock)
    world.store.clock.seconds += 2 * 86_400
    for link in (old, withdrawn):
        assert world.nobody().get(f"/return/{link}").status_code == 404
        assert world.nobody().form(f"/return/{link}").status_code == 404


def test_an_owner_is_shown_no_link_on_leaving(world: World) -> None:
    assert world.owner().form("/leave").headers["location"] == "/"


def test_whoever_is_signed_in_may_go_on_under_the_known_name(world: World) -> None:
    token = create_invite(world.store, world.study.id, NewInvitation(uses=5)).secret
    page = world.rater("Bea").get(f"/join/{token}").text
    assert "Continue as Bea" in page
    assert "Continue as" not in world.nobody().get(f"/join/{token}").text
    other = World(world.store, make_study(world.store, name="another"))
    assert "Continue as" not in other.rater("Bea").get(f"/join/{token}").text


@pytest.mark.parametrize("name", ["ada", " ADA", "Ａda", "Ada"])
def test_one_name_is_one_person_whatever_its_capitals(world: World, name: str) -> None:
    add_rater(world.store, world.study.id, "Ada")
    token = create_invite(world.store, world.study.id, NewInvitation(uses=5)).secret
    refused = world.nobody().form(f"/join/{token}", {"name": name})
    assert refused.status_code == 400
    assert "There is a rater called Ada already" in refused.text
    assert "personal link" in refused.text
    assert list_invites(world.store, world.study.id)[0].uses == 0
    found = find_rater(world.store, world.study.id, name)
    assert found is not None
    assert found.name == "Ada"
    accept(world.nobody(), token, "Ada B.")


def test_a_page_says_what_to_do_without_a_link(world: World) -> None:
    assert "personal link" in world.nobody().get("/").text
    assert "personal link" in world.nobody().get("/rate").text


def test_links_that_never_existed_may_be_tried_twenty_times(world: World) -> None:
    for attempt in range(20):
        path = ("/join", "/return", "/enter")[attempt % 3]
        assert world.nobody().get(f"{path}/wrong{attempt}").status_code == 404
    for path in ("/join/other", "/return/other", "/enter/other"):
        stopped = world.nobody().get(path)
        assert stopped.status_code == 429
        assert 0 < int(stopped.headers["retry-after"]) <= 600


def test_wrong_links_from_an_address_lock_out_no_link_that_exists(world: World) -> None:
    """Invitations, personal links, links that work once and links of platforms, before and after the twentieth."""
    store, study = world.store, world.study
    recruit(store, study.id, Recruitment("prolific", code="DONE", screened_code="OUT"))
    entry = entry_of(store, study.id).partition("?")[0]
    rater = add_rater(store, study.id, "Ada").id
    for _ in range(25):
        world.nobody().get("/join/wrong")
    assert world.nobody().get("/join/wrong").status_code == 429
    accept(world.nobody(), create_invite(store, study.id).secret, "Bea")
    for link in (personal_link(store, rater), start_session(store, rater)):
        assert world.nobody().get(f"/return/{link}").status_code == 200
        assert world.nobody().form(f"/return/{link}").status_code == 303
    assert world.nobody().get(f"{entry}?PROLIFIC_PID=p&STUDY_ID=s&SESSION_ID=s").status_code == 200


def test_a_class_may_come_in_from_one_address(world: World) -> None:
    token = create_invite(world.store, world.study.id, NewInvitation(uses=30)).secret
    for number in range(30):
        accept(world.nobody(), token, f"student {number}")


def test_attempts_are_forgotten_after_a_while() -> None:
    clock = Clock(0.0)
    attempts = Attempts(most=3, seconds=60, clock=clock)
    for _ in range(3):
        assert attempts.wait("a") == 0
        attempts.count("a")
    assert 1 <= attempts.wait("a") <= 60
    assert attempts.wait("b") == 0
    clock.seconds += 61
    assert attempts.wait("a") == 0


def test_behind_a_proxy_everybody_is_counted_by_their_own_address(world: World) -> None:
    public = World(world.store, world.study, public_url="https://rate.example.org", trusted=("10.0.0.0/24",))

    def status(peer: str, forwarded: str) -> int:
        client = TestClient(public.app, "https://rate.example.org", client=(peer, 1))
        return client.get("/join/w", headers={"x-forwarded-for": forwarded}).status_code

    for peer in ("127.0.0.1", "10.0.0.7", "::ffff:10.0.0.7"):
        assert {status(peer, f"8.8.8.8, 1.1.1.1, {peer}") for _ in range(6)} == {404}
    assert [status("127.0.0.1", "1.1.1.1") for _ in range(3)] == [404, 404, 429]
    assert status("127.0.0.1", "1.1.1.1, 2.2.2.2") == 404
    # anybody but the proxy may write anything into the header
    assert [status("10.0.1.7", f"{number}.1.1.1") for number in range(21)] == [404] * 20 + [429]


def test_the_page_of_a_refused_origin_names_the_flag(world: World) -> None:
    token = create_invite(world.store, world.study.id).secret
    reply = world.nobody().form(f"/join/{token}", {"name": "a"}, origin="https://rate.example.org")
    assert reply.status_code == 403
    assert "--public-url https://rate.example.org" in reply.text
    assert URL in reply.text


def test_the_flag_that_the_page_names_helps(world: World) -> None:
    """A proxy that ends https and calls us by another name: refused without the flag, served with it."""
    headers = {"origin": "https://rate.example.org", "host": "127.0.0.1:8000"}
    token = create_invite(world.store, world.study.id).secret
    assert world.client.post(f"/join/{token}", data={"name": "a"}, headers=headers).status_code == 403
    public = World(world.store, world.study, public_url="https://rate.example.org/")
    assert public.client.post(f"/join/{token}", data={"name": "a"}, headers=headers).status_code == 303


@for_each(
    [
        ({"origin": "http://h:1", "host": "h:1"}, "", True),
        ({"origin": "https://h", "host": "h"}, "", True),  # a proxy that keeps the host
        ({"origin": "http://h:2", "host": "h:1"}, "", False),
        ({"origin": "null", "host": "h"}, "", False),
        ({"origin": "", "host": ""}, "", False),
        ({"origin": "file://", "host": ""}, "", False),
        ({"origin": "https://p", "host": "h"}, "https://p", True),
        ({"origin": "http://p", "host": "h"}, "https://p", False),
        ({"origin": "http://h", "host": "h"}, "https://p", False),
        ({"host": "h"}, "", False),
        ({"host": "h", "sec-fetch-site": "same-origin"}, "", True),
        ({"host": "h", "sec-fetch-site": "same-site"}, "", False),
        ({"host": "h", "sec-fetch-site": "none"}, "", False),
    ]
)
def test_whose_pages_may_change_something(headers: dict[str, str], public: str, own: bool) -> None:
    assert is_own_origin(headers, public) is own


def test_the_token_in_the_page_is_that_of_the_session(world: World) -> None:
    browser = world.rater()
    assert csrf_in(browser.get("/rate").text) == csrf_token(browser.session)
    assert browser.session not in browser.get("/rate").text


def test_a_session_that_was_ended_or_forged_is_nobodys(world: World) -> None:
    browser = world.rater()
    end_session(world.store, browser.session)
    assert browser.get("/rate").status_code == 401
    name = world.nobody().cookie
    for forged in ("x", "0" * 43, "é", "../..", "a b"):
        cookie = f"{name}={forged}".encode("latin-1")
        assert world.client.get("/rate", headers={b"cookie": cookie}).status_code == 401


def test_two_sites_on_one_machine_keep_their_cookies_apart(world: World, folder: Path) -> None:
    from tutelage.people import open_store
    from tutelage.people.web.site import cookie_name

    other = open_store(folder / "other.sqlite")
    assert cookie_name(other, secure=False) != cookie_name(world.store, secure=False)
    other.close()


def test_everybody_is_sent_where_they_belong(world: World) -> None:
    assert "invitation" in world.nobody().get("/").text
    assert world.rater().get("/").headers["location"] == "/rate"
    assert world.owner().get("/").headers["location"] == "/owner"
    new = world.browser_of(add_rater(world.store, world.study.id, "new"))
    assert new.get("/").headers["location"] == "/welcome"
    assert "Be <em>kind</em>" in new.get("/welcome").text


def test_agreeing_is_noted_once(world: World) -> None:
    browser = world.browser_of(add_rater(world.store, world.study.id, "new"))
    for _ in range(2):
        browser.form("/welcome")
    assert len(list_events(world.store, world.study.id, action="consent")) == 1

"""Signing in at a provider in a real browser, and what a reviewer finds behind it."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from people.web.provider import CLIENT, SECRET, StubProvider, provider
from people.worlds import opened
from playwright.sync_api import Page, expect
from tiers import long_except

from tutelage.people import Answer, Plan, add_rater, list_votes, next_assignment, submit
from tutelage.people.store.members import list_team
from tutelage.people.web.identity import Provider, Roles, SignInMethods

from .sites import Site, is_narrow, press, shown
from .test_accessibility import faults

pytest.importorskip("authlib", reason="the extra oidc is not installed here")

Visit = Callable[..., Page]
ROLES = Roles(owners=("olga@example.org",), reviewers=("@example.org",))
REVIEWED = ("Overview", "Inbox", "Items", "Raters", "Models", "Export", "History", "Your sessions")
"""The pages in a reviewer's menu."""


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    """A provider at another site than that of the study: cookies are those of a host, whatever its port."""
    with provider() as running:
        running.issuer = running.issuer.replace("127.0.0.1", "localhost")
        yield running


@pytest.fixture
def guarded(stub: StubProvider) -> Iterator[Site]:
    """A site at which owners and reviewers sign in."""
    sign_in = SignInMethods(Provider(stub.issuer, CLIENT, SECRET), None, ROLES)
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder) / "study.sqlite", time.time)
        with Site(store, sign_in=sign_in) as running:
            yield running
        store.close()


def sign_in(page: Page, site: Site, stub: StubProvider) -> None:
    """From the first page to the provider and back, by keyboard."""
    page.goto(site.url)
    assert faults(page) == []
    page.focus("main a.primary")
    press(page, "Enter")
    page.wait_for_url(f"{stub.issuer}/authorize**")
    press(page, "Tab Enter")


def test_an_owner_signs_in_at_the_provider_and_out_again(guarded: Site, stub: StubProvider, visit: Visit) -> None:
    study = guarded.study(pairs=2)
    page = visit(width=360)
    sign_in(page, guarded, stub)
    page.wait_for_url(f"{guarded.url}/owner")
    (olga,) = list_team(guarded.store, study.id)
    assert (olga.name, olga.role) == ("Olga", "owner")
    page.goto(f"{guarded.url}/owner/settings")
    expect(page.locator("h1")).to_have_text("Settings")
    page.click(".me summary")
    page.click(".me form[action='/leave'] button")
    page.wait_for_url(f"{guarded.url}/")
    page.goto(f"{guarded.url}/owner")
    expect(page.locator("main")).to_contain_text("You are not signed in")
    sign_in(page, guarded, stub)
    page.wait_for_url(f"{guarded.url}/owner")
    assert len(list_team(guarded.store, study.id)) == 1


def test_whoever_has_no_role_and_whoever_comes_back_twice_are_told_so(
    guarded: Site, stub: StubProvider, visit: Visit
) -> None:
    study = guarded.study(pairs=2)
    stub.claims = {"email": "mallory@elsewhere.example"}
    page = visit()
    sign_in(page, guarded, stub)
    page.wait_for_url("**/sign-in/callback?**")
    expect(page.locator("main")).to_contain_text("mallory@elsewhere.example has no role in this study")
    assert faults(page) == []
    stub.claims = {}
    page.reload()  # with the code that counted once
    expect(page.locator("main")).not_to_contain_text("mallory")
    assert urlsplit(page.url).path == "/sign-in/callback"
    assert list_team(guarded.store, study.id) == ()


@pytest.mark.parametrize(
    ("width", "dark"), long_except([(360, True)], [(1280, False), (360, True)]), ids=["wide", "phone"]
)
def test_a_reviewer_reads_every_page_of_the_menu_and_judges_an_item(
    guarded: Site, stub: StubProvider, visit: Visit, width: int, dark: bool
) -> None:
    study = guarded.study(pairs=3, plan=Plan(overlap=2, gold_rate=0, repeat_rate=0))
    for name, better in (("anna", "first"), ("bert", "second")):
        rater = add_rater(guarded.store, study.id, name).id
        while (question := next_assignment(guarded.store, rater)) is not None:
            side = "left" if question.left.startswith(better) else "right"
            submit(guarded.store, question.id, Answer(side, 2, reason="so it is"))
    stub.claims = {"sub": "u2", "email": "rita@example.org", "name": "Rita"}
    page = visit(width=width, dark=dark)
    sign_in(page, guarded, stub)
    page.wait_for_url(f"{guarded.url}/owner")
    entries = page.locator("header nav a, header .me a[href]")
    listed = dict(entries.evaluate_all("all => all.map((e) => [e.textContent.trim(), e.href])"))
    assert {name.rstrip(" 0123456789") for name in listed} == set(REVIEWED)
    for name, address in listed.items():
        page.goto(address)
        expect(page.locator("h1")).to_be_visible()
        assert faults(page) == [], name
        assert is_narrow(page), name
        posts = page.locator("form[method=post]").evaluate_all("all => all.map((e) => new URL(e.action).pathname)")
        assert set(posts) <= {"/leave", "/language", "/owner/sessions"}, name
    for path in ("settings", "invitations", "team", "programs"):
        page.goto(f"{guarded.url}/owner/{path}")
        expect(page.locator("main")).to_contain_text("Only an owner of the study may do that.")
    page.goto(f"{guarded.url}/owner/items?state=disagreed")
    page.click(".items a >> nth=0")
    page.click("text=Adjudicate")
    texts = shown(page).texts
    press(page, "1 Enter" if texts[0].startswith("first") else "7 Enter")
    page.wait_for_url("**/owner/items/i*")
    expect(page.locator("tbody .tag", has_text="adjudication")).to_be_visible()
    (vote,) = [vote for vote in list_votes(guarded.store, study.id) if vote.rater == "Rita"]
    assert (vote.chosen_by, vote.verdict, vote.strength) == ("reviewer", "a", 3)

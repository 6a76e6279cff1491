"""A study's own text about consent, and forgetting a rater, in a real browser: by keyboard, on the smallest screen."""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tutelage.people import add_rater, backup, start_session
from tutelage.people.settings import Consent
from tutelage.people.store.consents import ask_consent
from tutelage.people.web.site import cookie_name

from .sites import Site, is_narrow, press, shown
from .test_accessibility import faults

Visit = Callable[..., Page]


def test_a_text_of_ones_own_is_agreed_to_by_keyboard(site: Site, visit: Visit) -> None:
    study = site.study(pairs=3)
    owner = visit(width=360)
    site.sign_in(owner, study, "boss", role="owner")
    owner.goto(f"{site.url}/owner/consent")
    owner.fill("#text", "## Yours\n\nYou may go at any time.")
    press(owner, "Tab ArrowDown Tab")
    owner.keyboard.type("30")
    press(owner, "Enter")
    expect(owner.locator(".tag").first).to_have_text("version 1")
    expect(owner.locator("#votes")).to_have_value("erase")
    assert faults(owner) == []
    assert is_narrow(owner)
    page = visit(width=360)
    rater = add_rater(site.store, study.id, "anna")
    cookie = {"name": cookie_name(site.store, secure=False), "value": start_session(site.store, rater.id)}
    page.context.add_cookies([cookie | {"url": site.url}])  # type: ignore[list-item]
    page.goto(f"{site.url}/rate")
    page.wait_for_url("**/welcome")
    expect(page.locator(".text").first).to_contain_text("go at any time")
    assert faults(page) == []
    press(page, "Tab Enter")
    shown(page)
    ask_consent(site.store, study.id, Consent("Another text."))
    page.reload()
    page.wait_for_url("**/welcome")


def test_an_owner_forgets_a_rater(site: Site, visit: Visit) -> None:
    study = site.study(pairs=3)
    rater = add_rater(site.store, study.id, "Persephone")
    Path(backup(site.store)).write_bytes(b"damaged")
    page = visit(width=360)
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/raters/{rater.id}")
    assert faults(page) == []
    page.focus("#sure")
    press(page, "Tab Enter")
    expect(page.locator("#sure-problem")).to_be_visible()
    assert faults(page) == []
    page.focus("#sure")
    press(page, "Space Tab Enter")
    expect(page.locator("#forgotten-title")).to_be_visible()
    expect(page.locator("h1")).to_contain_text(f"forgotten {rater.id}")
    expect(page.locator(".shown")).to_contain_text("backup-manual")
    expect(page.locator(".shown")).to_contain_text("it is damaged")
    assert faults(page) == []
    assert is_narrow(page)

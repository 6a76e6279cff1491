"""Somebody from a platform in a real browser: from its link to the code by keyboard, on the smallest screen."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect
from tiers import long_except

from tutelage.people.recruitment import Recruitment
from tutelage.people.store.visits import entry_of, list_visits, recruit

from .sites import Requests, Site, is_narrow, press, shown, until
from .test_accessibility import faults

Visit = Callable[..., Page]


def link(site: Site, study: int, name: str = "W1") -> str:
    path = entry_of(site.store, study).partition("?")[0]
    return f"{site.url}{path}?workerId={name}&hitId=h&assignmentId=a-{name}"


@pytest.mark.parametrize("dark", long_except([True], [False, True]), ids=["light", "dark"])
def test_from_the_link_to_the_code_by_keyboard(site: Site, visit: Visit, dark: bool) -> None:
    study = site.study(pairs=6)
    recruit(site.store, study.id, Recruitment("mturk", answers=2))
    page = visit(width=360, dark=dark)
    page.goto(link(site, study.id))
    assert faults(page) == []
    assert is_narrow(page)
    expect(page.locator("form button")).to_be_focused()
    press(page, "Enter")
    page.wait_for_url("**/welcome")
    assert faults(page) == []
    press(page, "Tab")
    expect(page.locator("main button").first).to_be_focused()
    press(page, "Enter")
    first = shown(page)
    expect(page.locator("#progress-text")).to_have_text("0 of 2")
    press(page, "1 Enter")
    shown(page, first.question)
    press(page, "2 Enter")
    page.wait_for_url("**/finish")
    assert faults(page) == []
    assert is_narrow(page)
    assert len(page.input_value("#code")) == 10
    assert [each.state for each in list_visits(site.store, study.id)] == ["complete"]


def test_answers_that_are_still_on_their_way_reach_the_code(site: Site, visit: Visit) -> None:
    study = site.study(pairs=6)
    recruit(site.store, study.id, Recruitment("mturk", answers=1))
    page = visit()
    answers = Requests(page, "**/rate/answers")
    answers.answer = Requests.lose
    page.goto(link(site, study.id))
    page.click("text=Start")
    page.wait_for_url("**/welcome")
    page.click("text=agree")
    shown(page)
    press(page, "1 Enter")
    expect(page.locator("#pause-title")).to_have_text("Your last answers are being sent")
    answers.answer = Requests.let
    page.wait_for_url("**/finish")
    assert page.input_value("#code")


def test_the_last_answer_earns_the_code_though_leave_was_quicker(site: Site, visit: Visit) -> None:
    study = site.study(pairs=6)
    recruit(site.store, study.id, Recruitment("mturk", answers=1))
    page = visit()
    answers = Requests(page, "**/rate/answers")
    held: list[Route] = []
    answers.answer = held.append
    page.goto(link(site, study.id))
    page.click("text=Start")
    page.click("text=agree")
    shown(page)
    press(page, "1 Enter")
    page.click("#leave")
    until(lambda: page.wait_for_timeout(20) is None and len(held) == 1)
    held[0].continue_()
    expect(page.locator("#code")).to_be_visible()
    assert [each.state for each in list_visits(site.store, study.id)] == ["complete"]


def test_an_owner_sets_it_up_and_leaving_returns_the_place(site: Site, visit: Visit) -> None:
    study = site.study(pairs=6)
    page = visit(width=360)
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/recruiting")
    page.select_option("#platform", "mturk")
    page.fill("#places", "1")
    page.fill("#pay", "12")
    page.fill("#fee", "20%")
    page.press("#fee", "Enter")
    expect(page.locator("#cost")).to_contain_text("Total")
    assert faults(page) == []
    assert is_narrow(page)
    guest = visit()
    guest.goto(link(site, study.id))
    guest.click("text=Start")
    guest.wait_for_url("**/welcome")
    other = visit()
    other.goto(link(site, study.id, "W2"))
    other.click("text=Start")
    expect(other.locator(".lead")).to_contain_text("taken")
    guest.click("text=rather not")
    expect(guest.locator("h1")).to_have_text("Goodbye")
    assert faults(guest) == []
    other.goto(link(site, study.id, "W2"))
    other.click("text=Start")
    other.wait_for_url("**/welcome")

"""Leaving in a real browser: what waits in it reaches the server first, and what cannot be sent is told and kept."""

from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from tutelage.people import list_votes, start_session
from tutelage.people.store.access import end_session

from .sites import Requests, Site, is_narrow, open_rating, press, ready, saved, shown, until
from .test_accessibility import faults

Visit = Callable[..., Page]


def choices(site: Site, study: int) -> list[str]:
    return [vote.displayed["choice"] for vote in list_votes(site.store, study)]


def test_answers_that_are_under_way_arrive_before_the_session_ends(site: Site, visit: Visit) -> None:
    study = site.study(pairs=5)
    page = visit(width=360)
    answers, leaving = Requests(page, "**/rate/answers"), Requests(page, "**/leave")
    site.sign_in(page, study)
    question = open_rating(page, site).question
    ready(page)
    held: list[Route] = []
    left: list[str] = []

    def leave(route: Route) -> None:
        left.append(route.request.url)
        route.continue_()

    answers.answer, leaving.answer = held.append, leave
    for key in "17":
        press(page, f"{key} Enter")
        question = shown(page, question).question
    page.click("#leave")
    expect(page.locator("#leaving")).to_have_text("Your answers are being sent first; then you leave.")
    page.click("#leave")  # it does not leave any sooner
    assert faults(page) == []
    assert is_narrow(page)
    assert (left, choices(site, study.id)) == ([], [])
    answers.answer = Requests.let
    until(lambda: page.wait_for_timeout(20) is None and len(held) == 1)
    held[0].continue_()
    expect(page.get_by_role("heading", name="Goodbye")).to_be_visible()
    assert choices(site, study.id) == ["left", "right"]
    assert len(left) == 1


def test_without_a_network_nothing_is_lost_and_leaving_waits(site: Site, visit: Visit) -> None:
    study = site.study([(f"first {n} " * 60, f"second {n} " * 60) for n in range(5)])
    page = visit(width=360, height=500, dark=True)
    site.sign_in(page, study)
    question = open_rating(page, site).question
    ready(page)
    page.context.set_offline(True)
    press(page, "1 Enter")
    question = shown(page, question).question
    press(page, "7 Enter")
    shown(page, question)
    page.evaluate("scrollTo(0, 600)")
    page.focus("#leave")
    press(page, "Enter")
    notice = page.locator("#leaving")
    expect(notice).to_be_in_viewport()
    expect(notice).to_contain_text("You have not left yet: 2 answers could not be sent.")
    expect(notice).to_contain_text("kept in this browser and will be sent by itself")
    assert faults(page) == []
    assert is_narrow(page)
    press(page, "Enter")  # pressed again it tries again, and keeps them again
    expect(notice).to_contain_text("2 answers could not be sent")
    assert page.url == f"{site.url}/rate"
    page.context.set_offline(False)
    saved(page)
    expect(notice).to_have_text("Everything is sent now: you can leave.")
    assert choices(site, study.id) == ["left", "right"]
    page.click("#leave")
    expect(page.get_by_role("heading", name="Goodbye")).to_be_visible()


def test_who_is_signed_out_elsewhere_leaves_the_answers_in_the_browser(site: Site, visit: Visit) -> None:
    study = site.study(pairs=4)
    page = visit()
    rater = site.sign_in(page, study)
    question = open_rating(page, site).question
    ready(page)
    (cookie,) = page.context.cookies()
    end_session(site.store, str(cookie["value"]))
    press(page, "1 Enter")
    shown(page, question)
    expect(page.locator("#save")).to_contain_text("Not sent")
    page.click("#leave")
    expect(page.locator("#leaving")).to_contain_text("You have not left yet: 1 answer could not be sent.")
    expect(page.locator("#leaving")).to_contain_text("Press Leave again to go")
    page.click("#leave")
    page.wait_for_url(lambda url: not url.endswith("/rate"))
    assert choices(site, study.id) == []
    page.goto(f"{site.url}/return/{start_session(site.store, rater)}")
    page.click("main button")
    page.wait_for_url("**/rate")
    saved(page)
    assert choices(site, study.id) == ["left"]

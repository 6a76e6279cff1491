"""Several studies on one server in one browser: links, scripts, and what the browser keeps stay with their study."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from starlette.types import ASGIApp

from tutelage.people import Store, Study, create_invite, list_votes, open_store, start_session
from tutelage.people.settings import NewInvitation
from tutelage.people.store.members import list_team
from tutelage.people.web import Served, create_server

from .sites import Requests, Site, go, press, saved, shown
from .test_accessibility import faults

Visit = Callable[..., Page]


class Several(Site):
    """A server with the studies of several databases."""

    def __init__(self, stores: list[Store]) -> None:
        super().__init__(stores[0])
        self.stores = stores
        self.studies: list[Study] = []
        for store, name in zip(stores, ("north", "south"), strict=True):
            self.store = store
            self.studies.append(self.study([(f"{name} a {n}", f"{name} b {n}") for n in range(3)], name=name))

    def application(self) -> ASGIApp:
        return create_server([Served(*each) for each in zip(self.stores, self.studies, strict=True)])

    def link(self, number: int, **more: Any) -> str:
        """An invitation to a study."""
        token = create_invite(self.stores[number], self.studies[number].id, NewInvitation(**more)).secret
        return f"{self.url}/s/{self.studies[number].name}/join/{token}"


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Several]:
    with (
        closing(open_store(tmp_path / "one.sqlite")) as one,
        closing(open_store(tmp_path / "two.sqlite")) as two,
        Several([one, two]) as site,
    ):
        yield site


def join(page: Page, link: str, name: str) -> None:
    page.goto(link)
    page.fill("#name", name)
    page.click("text=Start")


def rate_in(page: Page, site: Several, number: int, name: str) -> None:
    """Come in as a rater, up to the first question."""
    join(page, site.link(number), name)
    page.click("main button.primary")
    shown(page)


def test_answers_wait_for_the_study_that_they_are_about(several: Several, visit: Visit) -> None:
    """Both databases give the same numbers to study, rater and question, and one browser rates in both."""
    page = visit()
    north = Requests(page, "**/s/north/rate/answers")
    north.answer = Requests.lose
    rate_in(page, several, 0, "anna")
    press(page, "2 Enter")
    expect(page.locator("#save")).to_contain_text("1 answer")
    rate_in(page, several, 1, "anna")
    assert all("south" in text for text in shown(page).texts)
    saved(page)
    press(page, "1 Enter")
    saved(page)
    assert [len(list_votes(s, 1)) for s in several.stores] == [0, 1]
    north.answer = Requests.let
    page.goto(f"{several.url}/s/north/rate")
    shown(page)
    saved(page)
    assert [len(list_votes(s, 1)) for s in several.stores] == [1, 1]


def test_an_owner_works_below_the_path_and_finds_the_study_on_the_front_page(several: Several, visit: Visit) -> None:
    page = visit()
    page.goto(several.url)
    expect(page.locator("main")).not_to_contain_text("south")
    assert faults(page) == []
    join(page, several.link(1, role="reviewer"), "rita")
    page.wait_for_url(f"{several.url}/s/south/owner")
    join(page, several.link(0, role="owner"), "olga")
    page.goto(several.url)
    expect(page.locator("main li")).to_have_text(["north", "south"])
    assert faults(page) == []
    page.click("main >> text=north")
    go(page, "People", "Invitations")
    page.click("text=Make the link")
    expect(page.locator("#link")).to_have_value(re.compile(rf"^{re.escape(several.url)}/s/north/join/"))
    link = page.input_value("#link")
    assert visit().goto(link).status == 200  # type: ignore[union-attr]
    go(page, "Work", "Items")
    page.click("ol.items a >> nth=0")
    page.click("text=Adjudicate")
    shown(page)
    press(page, "2 Enter")
    page.wait_for_url("**/s/north/owner/items/**")
    expect(page.locator("tbody")).to_contain_text("adjudication")
    page.click(".me summary")
    page.click("text=Leave")
    page.wait_for_url(f"{several.url}/s/north/")
    page.goto(several.url)
    expect(page.locator("main li")).to_have_text(["south"])


def test_a_link_that_works_once_is_used_below_the_path(several: Several, visit: Visit) -> None:
    page = visit()
    join(page, several.link(0, role="owner"), "olga")
    [olga] = list_team(several.stores[0], 1)
    other = visit()
    other.goto(f"{several.url}/s/north/return/{start_session(several.stores[0], olga.id)}")
    other.click("main button")
    other.wait_for_url(f"{several.url}/s/north/owner")
    page.goto(f"{several.url}/s/north/owner/sessions")
    page.click("text=End all others")
    expect(page.locator("main li")).to_have_count(1)
    other.goto(f"{several.url}/s/north/owner")
    expect(other.locator("h1")).to_have_text("Not signed in")

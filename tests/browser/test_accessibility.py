"""For everybody: no serious fault by axe-core, everything by keyboard and seen to be, and on the smallest screen."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tiers import long_except

from tutelage.people import (
    Answer,
    Correction,
    Plan,
    Span,
    add_rater,
    create_study,
    exclude,
    next_assignment,
    start_session,
    submit,
)

from .sites import Site, go, open_rating, press, shown

Visit = Callable[..., Page]
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
OWNERS = (
    "", "/inbox", "/inbox?closed=yes", "/raters", "/raters/2", "/items?by=added&state=open", "/items", "/items/i0",
    "/models", "/recruiting", "/consent", "/programs", "/settings", "/invitations", "/history", "/import", "/export",
    "/team", "/sessions",
)  # fmt: skip
"""The owner's pages, below /owner."""
WITHIN = """(words) => {
    const [inner, outer] = [words, words.closest(".face")].map((each) => each.getBoundingClientRect());
    return inner.height > 8 && inner.left >= outer.left && inner.right <= outer.right && inner.bottom <= outer.bottom;
}"""
"""Whether the words of a point are shown, and do not leave it."""
RICH = (
    "# Title\n\nSome *text* with `code`, $x^2$ and [a link](https://example.org).\n\n"
    "```python\ndef f(x):\n    return x  # comment\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
)


RUN = """(only) => axe.run(document, {
    resultTypes: ["violations"],
    preload: false,
    runOnly: only || axe._audit.rules
        .filter((rule) => rule.enabled && !rule.tags.includes("experimental"))
        .filter((rule) => !["minor", "moderate"].includes(rule.impact))
        .map((rule) => rule.id),
}).then((found) => found.violations)"""
"""Runs the rules whose faults are serious, or only some. Those that preload are experimental, or not serious."""


def faults(page: Page) -> list[str]:
    """What axe-core finds that is serious or worse, and where: all rules by day, those of colours by night too."""
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(AXE)
    found = []
    for scheme, rules in (("light", None), ("dark", ["color-contrast"])):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        violations: list[dict[str, Any]] = page.evaluate(RUN, rules)
        found += [
            f"{scheme}: {rule['id']} ({rule['impact']}): {node['html'][:160]} {node['failureSummary'][:200]}"
            for rule in violations
            if rule["impact"] in ("serious", "critical")
            for node in rule["nodes"]
        ]
    page.emulate_media(color_scheme="null")
    return found


def busy(site: Site, more: str = "", name: str = "otto") -> Any:
    """A study with something on every page: responses with `more`, and a rater of this name."""
    study = site.study(
        [(RICH + more, f"Another *answer* {n}.") for n in range(8)],
        criteria=("clear", "accurate"),
        guidelines=RICH,
        plan=Plan(overlap=2, gold_rate=0, repeat_rate=0),
        corrections=True,
        spans=("wrong fact", "too hard"),
    )
    said = {"correction": Correction("Some other *text*.", 0), "spans": (Span(0, 0, 4, "wrong fact"),)}
    for each, choice in (("anna", "left"), (name, "right")):
        rater = add_rater(site.store, study.id, each).id
        for number in range(6):
            question = next_assignment(site.store, rater)
            assert question is not None
            flags = ("broken",) if number == 1 else ()
            submit(site.store, question.id, Answer(choice, 2, reason="Because.", flags=flags, active_ms=9_000, **said))  # type: ignore[arg-type]
    exclude(site.store, study.id, "rater", name, "a test")
    return study


@pytest.mark.parametrize("width", long_except([360], [1280, 360]))
def test_the_raters_screen_has_no_serious_fault(site: Site, visit: Visit, width: int) -> None:
    study = busy(site)
    page = visit(width=width)
    page.goto(site.invitation(study))
    assert faults(page) == []
    site.sign_in(page, study, "berta")
    page.goto(f"{site.url}/welcome")
    assert faults(page) == []
    first = open_rating(page, site)
    assert faults(page) == []
    press(page, "6 f Escape n")
    page.locator(".quiet").nth(1).click()
    page.click("#submit")
    expect(page.locator("#hint")).to_be_visible()
    assert faults(page) == []
    press(page, "Escape 1 Enter")
    shown(page, first.question)
    press(page, "u")
    expect(page.locator("#editing")).to_be_visible()
    assert faults(page) == []
    page.click("#open-guidelines")
    expect(page.locator("#guidelines")).to_be_visible()
    assert faults(page) == []
    press(page, "Escape")
    page.click("#open-keys")
    expect(page.locator("#keys")).to_be_visible()
    assert faults(page) == []


def test_the_pages_around_it_have_no_serious_fault(site: Site, visit: Visit) -> None:
    study = site.study(pairs=1)
    site.add(study, [("first, *of course*", "second")], pool="training", start=100)
    page = visit(width=800)
    page.goto(site.url)
    assert faults(page) == []
    page.goto(f"{site.url}/rate")  # who is not signed in is refused
    assert faults(page) == []
    rater = site.sign_in(page, study, "berta", training=True)
    page.goto(f"{site.url}/return/{start_session(site.store, rater)}")
    assert faults(page) == []
    question = open_rating(page, site)
    press(page, "1 Enter" if question.texts[0].startswith("first") else "7 Enter")
    expect(page.locator("#lesson")).to_be_visible()
    assert faults(page) == []
    press(page, "Enter")
    expect(page.locator("#pause")).to_be_visible()
    assert faults(page) == []
    press(page, "Enter")
    shown(page, question.question)
    press(page, "s 1 Enter")
    expect(page.locator("#pause-title")).to_have_text("That is all for now")
    assert faults(page) == []
    invitation = site.invitation(study)
    page.goto(invitation)  # somebody who is signed in
    assert faults(page) == []
    page.goto(f"{site.url}/rate")
    page.click("#leave")
    expect(page.locator("#link")).to_be_visible()
    assert faults(page) == []
    page.goto(invitation)
    page.fill("#name", "BERTA")
    page.click("text=Start")
    expect(page.locator("#name-problem")).to_be_visible()
    assert faults(page) == []


@pytest.mark.parametrize("width", long_except([360], [1280, 360]))
def test_the_owners_pages_have_no_serious_fault_and_fit(site: Site, visit: Visit, width: int) -> None:
    """Whatever the length of words, of code and of names."""
    wide = "\n\n" + "word " * 60 + "x" * 300 + "\n\n`" + "code" * 100 + "`\n\n    " + "code " * 90
    study = busy(site, wide, "an unusually long name of a rater " * 2)
    page = visit(width=width)
    site.sign_in(page, study, "boss", role="owner")
    for path in OWNERS:
        page.goto(f"{site.url}/owner{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert faults(page) == [], path
        if path == "/raters":
            for cell in page.locator("table tbody td:visible").all():  # on a phone it has become a list that fits
                box = cell.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= width
    go(page, "People", "Invitations")
    page.wait_for_url("**/owner/invitations")
    people = page.locator("nav details:has-text('People')")
    page.focus("nav summary:has-text('Work')")
    press(page, "Tab Enter")  # from one heading to the next
    expect(people).to_have_attribute("open", "")
    assert faults(page) == []
    press(page, "ArrowDown ArrowDown")
    expect(people.locator("a[aria-current=page]")).to_be_focused()
    press(page, "Escape")
    expect(people).not_to_have_attribute("open", "")
    expect(people.locator("summary[aria-current]")).to_be_focused()
    press(page, "Enter ArrowUp Tab")  # past the last page: the heading closes
    expect(people).not_to_have_attribute("open", "")
    page.click("text=Make the link")
    expect(page.locator("#link")).to_be_visible()
    assert faults(page) == []
    page.goto(f"{site.url}/owner/nothing")
    assert faults(page) == []
    page.goto(f"{site.url}/owner/raters")
    page.click(".me summary")
    page.click("button[value=ar]")
    expect(page.locator("html[lang=ar][dir=rtl] h1")).to_have_text("المشاركون")
    for path in ("/raters", "/settings", "/export", "/recruiting", "/programs"):
        page.goto(f"{site.url}/owner{path}")
        assert faults(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_an_empty_study_has_no_serious_fault(site: Site, visit: Visit) -> None:
    study = create_study(site.store, "empty")
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    for path in ("", "/raters", "/items", "/models", "/export", "/history"):
        page.goto(f"{site.url}/owner{path}")
        assert faults(page) == [], path


def test_a_ranking_has_no_serious_fault(site: Site, visit: Visit) -> None:
    study = site.study([[RICH, "b", "c", "d", "e", "f"]] * 2, kind="ranking")
    page = visit(width=360)
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "1 2 2")
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("width", long_except([360], [360, 1280]))
def test_ratings_have_no_serious_fault(site: Site, visit: Visit, width: int) -> None:
    criteria = ("helpful", "correct", "clear and well organised")
    study = site.study([[RICH, "b", "c"]] * 2, kind="likert", scale=7, criteria=criteria)
    page = visit(width=width)
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "1 7 2")
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", long_except([360], [360, 1280]))
def test_criteria_have_no_serious_fault(site: Site, visit: Visit, width: int) -> None:
    study = site.study([[RICH, "b", "c"]] * 2, kind="checklist", scale=2)
    page = visit(width=width)
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "1 3 2")
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_fault_would_be_found(site: Site, visit: Visit) -> None:
    study = busy(site)
    page = visit()
    site.sign_in(page, study, "berta")
    open_rating(page, site)
    page.evaluate("document.querySelector('#submit').replaceChildren()")
    page.evaluate("document.querySelector('#ask').classList.add('dim')")
    sheet = "[...document.styleSheets].at(-1)"
    rule = "@media (prefers-color-scheme: dark) { .dim { color: #444 !important } }"
    page.evaluate(f"{sheet}.insertRule('{rule}', {sheet}.cssRules.length)")
    found = faults(page)
    assert any("button-name" in fault for fault in found if fault.startswith("light"))
    assert any("color-contrast" in fault for fault in found if fault.startswith("dark"))
    assert not any("color-contrast" in fault for fault in found if fault.startswith("light"))


def test_everything_is_reached_by_tab_and_seen_to_be(site: Site, visit: Visit) -> None:
    study = busy(site)
    page = visit()
    site.sign_in(page, study, "berta")
    open_rating(page, site)
    press(page, "1 f Escape")
    page.locator("#open-reason").click()
    reached, ringless = [], []
    for _ in range(70):
        page.keyboard.press("Tab")
        state = page.evaluate(
            """() => {
                const e = document.activeElement;
                const seen = e.matches("input[type=radio], input[type=checkbox]") && e.nextElementSibling || e;
                const name = e.id || e.name || e.textContent.trim().slice(0, 20);
                return [name, getComputedStyle(seen).outlineStyle, e.tagName];
            }"""
        )
        if state[2] == "BODY":  # past the last one; the next is the first
            continue
        reached.append(state[0])
        if state[1] == "none":
            ringless.append(state[0])
    assert ringless == []
    wanted = (
        "open-guidelines",
        "open-keys",
        "leave",
        "criterion-0",
        "criterion-1",
        "open-flags",
        "open-reason",
        "open-correction",
        "open-spans",
        "flag",
        "reason",
        "verdict",
        "submit",
    )
    assert [name for name in wanted if name not in reached] == []


def test_a_screen_reader_is_told_what_each_control_means(site: Site, visit: Visit) -> None:
    study = busy(site)
    page = visit()
    site.sign_in(page, study, "berta")
    open_rating(page, site)
    question = page.get_by_role("group", name="Which response is better?")
    names = (
        "A much better",
        "A better",
        "A slightly better",
        "about equal",
        "B slightly better",
        "B better",
        "B much better",
        "Both bad",
        "Can’t judge",
    )
    for name in names:
        assert question.get_by_role("radio", name=name, exact=True).count() == 1, name
    for letter in "AB":
        assert page.get_by_role("article", name=f"Response {letter}").count() == 1
    assert page.get_by_role("group", name="Clear").get_by_role("radio").count() == 3
    assert page.get_by_role("status").inner_text() == "Saved"
    assert page.get_by_role("progressbar", name="Progress").count() == 1
    expect(page.locator("#ask")).to_be_focused()


@pytest.mark.parametrize("height", long_except([640], [640, 740]))
def test_the_smallest_screen_is_enough(site: Site, visit: Visit, height: int) -> None:
    study = site.study(
        [("word " * 200 + "x" * 300, RICH + "\n\n" + "y" * 200)] * 3, criteria=("age-appropriate", "clear")
    )
    page = visit(width=360, height=height, has_touch=True)
    site.sign_in(page, study)
    first = open_rating(page, site)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    bar = page.locator("#verdict").bounding_box()
    assert bar is not None
    assert bar["y"] + bar["height"] <= height + 1  # it is there without scrolling
    assert bar["height"] < height * 0.35  # and leaves room to read
    for number in range(7):
        box = page.locator(".point").nth(number).bounding_box()
        assert box is not None
        assert box["width"] >= 44
        assert box["height"] >= 44
        words = page.locator(".point .words").nth(number)
        expect(words).to_have_text(re.compile("better|equal"))
        assert words.evaluate(WITHIN)
    page.locator(".point").nth(5).tap()
    expect(page.locator("#said")).to_have_text("B better")
    page.locator("#submit").tap()
    shown(page, first.question)
